"""Lines of canonical JSON that differ in a few values: what is the same in all of them is made into text once."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from json.encoder import encode_basestring_ascii
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from evidence.contracts import Prediction, Readout
from loops.answers import Answers, spans
from loops.cell_events import NOWHERE
from loops.cells import Batch, Ints
from loops.opened import Asked
from loops.ways import Way
from scoring.metrics import Array, rounded_all

END: Final = "\x00"
"""Ends a piece of a line; no NUL is in canonical JSON."""
REPEAT: Final = "repeat"


def text_json(text: str | None) -> str:
    """The JSON of a text of a score file, as `canonical_json` writes it."""
    return "null" if text is None else encode_basestring_ascii(text)


def number_texts(values: Array) -> list[str]:
    """The JSON of many numbers of a score file, (n,); null for NaN.

    msgspec and Python write the same digits, and from 1e-4 on, up to 1e16, without an exponent.
    """
    found = rounded_all(values)
    size = np.abs(found)
    texts = msgspec.json.encode(found.tolist()).decode()[1:-1].split(",") if len(values) else []
    for n in np.flatnonzero(((size > 0) & (size < 1e-4)) | (size > 1e15)).tolist():
        texts[n] = repr(float(found[n]))
    return texts


def head_text(label: str | None, status: str, reason: str) -> str:
    """An answer as a line of scores/readouts.jsonl has it, up to its value."""
    why = f'"reason":{text_json(reason)},' if reason else ""
    return f'{{"label":{text_json(label)},{why}"status":{text_json(status)},"value":'


class ReadoutLines:
    """The lines of scores/readouts.jsonl, one for each readout of a cell, some cells at a time.

    A line is made of as many pieces as any other, so that what differs from cell to cell goes into those of all lines
    at once: in the order of the keys a stage has two after a piece of fixed text, head and value (both empty in a cell
    without it), the repeat has one.
    """

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._head_texts: list[str] = []

    def of(self, batch: Batch) -> str:
        """The lines of some cells."""
        given = {stage: first != NOWHERE for stage, first in batch.first.items()}
        codes = batch.way
        for there in given.values():
            codes = 2 * codes + there
        forms, form = np.unique(codes, return_inverse=True)
        shown = [
            (batch.ways[code >> len(given)], tuple(s for n, s in enumerate(reversed(given)) if code >> n & 1))
            for code in forms.tolist()
        ]
        fixed = list(_fixed(shown, tuple(given)))
        made = list(itertools.chain.from_iterable([fixed[n] for n in form.tolist()]))
        size = np.array([len(way.truth) for way in batch.ways], dtype=np.intp)[batch.way]
        width, at = 3 * len(given) + 3, 0
        for name in sorted((*given, REPEAT)):
            if name == REPEAT:
                made[at + 1 :: width] = list(map(str, np.repeat(batch.repeat, size).tolist()))
                at += 2
            else:
                there = given[name]
                self._fill(made, at + 1, width, spans(batch.first[name][there], size[there]), np.repeat(there, size))
                at += 3
        return "".join(made)

    def _fill(self, made: list[str], at: int, width: int, entries: Ints, lines: NDArray[np.bool_]) -> None:
        """Write the heads and the values of answers (n,), in this order, into those lines that are chosen, (lines,)."""
        answers, texts = self._answers, self._head_texts
        texts += [head_text(*head) for head in answers.heads.things[len(texts) :]]
        heads = [texts[head] for head in np.asarray(answers.head)[entries].tolist()]
        values = number_texts(np.asarray(answers.value)[entries])
        if lines.all():
            made[at::width], made[at + 1 :: width] = heads, values
            return
        for line, head, value in zip(np.flatnonzero(lines).tolist(), heads, values, strict=True):
            made[line * width + at], made[line * width + at + 1] = head, value


def _fixed(shown: Sequence[tuple[Way, tuple[str, ...]]], stages: tuple[str, ...]) -> Iterator[list[str]]:
    """The pieces of the lines of cells with these ways, which have some of the stages.

    The numbers of all of them are written together.
    """
    values = [math.nan if t.value is None else t.value for way, _ in shown for t in way.truth]
    n_truth = len(values)
    values += [x for way, _ in shown for p in (*way.adapted, *way.simulated) for x in (p.mean, p.sd)]
    texts = number_texts(np.array(values))
    truth, predicted = iter(texts[:n_truth]), iter(texts[n_truth:])
    for way, given in shown:
        asked, n = way.case.asked, len(way.truth)
        frame = _frame(asked, given, stages, _names(way.adapted), _names(way.simulated))
        made = [text_json(way.case.id)] * (PER_LINE * n)
        made[0::PER_LINE], made[1::PER_LINE], made[2::PER_LINE] = _predicted(asked, way.adapted, predicted)
        made[4::PER_LINE] = ["true" if name in way.queried else "false" for name in asked.names]
        made[5::PER_LINE], made[6::PER_LINE], made[7::PER_LINE] = _predicted(asked, way.simulated, predicted)
        made[8::PER_LINE] = [text_json(t.label) for t in way.truth]
        made[9::PER_LINE] = itertools.islice(truth, n)
        yield (frame % tuple(made)).split(END)


_STATED, _UNSTATED = '{"label":%s,"mean":%s,"sd":%s}', "%.0s" * 3
"""Both take three values; one writes nothing."""
PER_LINE = 10
"""Values of a line that cells of a case have in common: adapted (3), case, queried, simulator (3) and truth (2)."""


@functools.lru_cache(maxsize=64)
def _frame(
    asked: Asked,
    given: tuple[str, ...],
    stages: tuple[str, ...],
    adapted: Collection[str],
    simulated: Collection[str],
) -> str:
    """The lines of a cell as a format of what cells of its case have in common; END parts their pieces.

    `given` are its stages, `adapted` and `simulated` the readouts with predictions; of others there are no keys.
    """
    lines = [
        _line_format(readout, given, stages, readout.id in adapted, readout.id in simulated)
        for readout in asked.readouts
    ]
    return END.join(lines)


def _line_format(
    readout: Readout, given: Collection[str], stages: Collection[str], adapted: bool, simulated: bool
) -> str:
    fields = {
        "adapted": _STATED if adapted else None,
        "case": "%s",
        "queried": "%s",
        "readout": text_json(readout.id).replace("%", "%%"),
        REPEAT: END + END,
        "simulator": _STATED if simulated else None,
        "threshold": "null" if readout.threshold is None else float.__repr__(readout.threshold),
        "truth": '{"label":%s,"value":%s}',
        **dict.fromkeys(stages, END + END + END),
    }
    text = ""
    for key in sorted(fields):
        field = fields[key]
        if field is None:
            text += _UNSTATED
        elif key in stages:
            text += f'"{key}":{field}}},' if key in given else field
        else:
            text += f'"{key}":{field},'
    return "{" + text.removesuffix(",") + "}\n"


def _names(predictions: Sequence[Prediction]) -> tuple[str, ...]:
    return tuple([p.readout for p in predictions])


def _predicted(asked: Asked, predictions: Sequence[Prediction], texts: Iterator[str]) -> Iterable[Sequence[str]]:
    """Labels, means and deviations for each readout; nothing where it has no prediction. `texts` gives the numbers."""
    numbers = list(itertools.islice(texts, 2 * len(predictions)))
    if _names(predictions) == asked.names:
        labels, _ = asked.decide(predictions)
        return list(map(text_json, labels)), numbers[::2], numbers[1::2]
    stated = dict(zip(_names(predictions), zip(predictions, numbers[::2], numbers[1::2], strict=True), strict=True))
    none = ("", "", "")
    rows = []
    for readout in asked.readouts:
        p = stated.get(readout.id)
        rows.append(none if p is None else (text_json(readout.decide(p[0])), *p[1:]))
    return zip(*rows, strict=True)

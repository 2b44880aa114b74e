"""Lines of canonical JSON that differ in a few values: what is the same in all of them is made into text once."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from evidence.contracts import Prediction, Readout
from evidence.values import canonical_json
from loops.answers import Answers
from loops.cells import Cell
from scoring.metrics import DIGITS, Array

SLOT: Final = "\x00slot"
"""Stands in a row for the value that differs from line to line."""
_SLOT_TEXT: Final = canonical_json(SLOT)
_ENCODE = msgspec.json.Encoder(order="sorted").encode
_EXPONENT = re.compile("e(?<=[0-9]e)")


def template(row: Mapping[str, Any]) -> str:
    """The canonical JSON of a row as a format with `%s` for each value that is SLOT, in the order of the keys.

    The row holds texts, numbers (finite), None, and dictionaries of these.
    """
    slots = sum(value is SLOT for value in row.values())
    text = _ENCODE(row).decode()
    if not text.isascii() or text.count("\\") != slots or "\x7f" in text or "0.0000" in text or _EXPONENT.search(text):
        text = canonical_json(row)  # the two may write this otherwise
    if text.count(_SLOT_TEXT[1:-1]) == slots:
        return _escaped(text).replace(_SLOT_TEXT, "%s")
    fields = (  # some other text of the row looks like a slot
        _escaped(canonical_json(key)) + ":" + ("%s" if value is SLOT else _escaped(canonical_json(value)))
        for key, value in sorted(row.items())
    )
    return "{" + ",".join(fields) + "}"


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def number_text(value: float | None) -> str:
    """The JSON of a number of a score file."""
    return "null" if value is None else float.__repr__(round(value, DIGITS) + 0.0)


@functools.lru_cache(maxsize=4096)
def _text(text: str | None) -> str:
    return canonical_json(text)


def number_texts(values: Array) -> list[str]:
    """`number_text` of many numbers, (n,); NaN is no number.

    Where k = values * 10**DIGITS, rounded, is certain in spite of the rounding of this product, k / 10**DIGITS is the
    float nearest to the rounded decimal, which is what `round` gives. msgspec and Python write the same digits, and
    from 1e-4 on without an exponent.
    """
    scaled = np.clip(values, -1e8, 1e8) * 10.0**DIGITS
    k = np.rint(scaled)
    certain = (np.abs(scaled - k) < 0.499) & (np.abs(k) < 2.0**43) & ((k == 0) | (np.abs(k) >= 10.0**DIGITS * 1e-4))
    texts = msgspec.json.encode((k / 10.0**DIGITS + 0.0).tolist()).decode()[1:-1].split(",") if len(values) else []
    for n in np.flatnonzero(~(certain | np.isnan(values))).tolist():
        texts[n] = number_text(float(values[n]))
    return texts


def head_text(label: str | None, status: str, reason: str) -> str:
    """An answer as a line of scores/readouts.jsonl has it, up to its value."""
    why = f'"reason":{canonical_json(reason)},' if reason else ""
    return f'{{"label":{_text(label)},{why}"status":{_text(status)},"value":'


class _Format(NamedTuple):
    """Lines of a cell in pieces: where each stage's heads and values go, and the repeat, and the pieces of a line."""

    pieces: list[str]
    places: list[tuple[str, int]]
    repeat: int
    width: int


_Key = tuple[str, tuple[str, ...], tuple[str, ...]]
"""Cells with the same case, measurements and stages have the same format."""


class ReadoutLines:
    """The lines of scores/readouts.jsonl, some cells at a time, cells of a case one after the other."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._formats: dict[_Key, _Format] = {}
        self._head_texts: list[str] = []
        self._heads: list[str] = []
        self._values: list[str] = []

    def of(self, cells: Sequence[Cell]) -> Iterator[str]:
        """For each cell its lines, one for each readout."""
        self._take_up()
        keys: list[_Key] = [(cell.case.id, cell.measured, tuple(cell.answers)) for cell in cells]
        new = {key: cell for key, cell in zip(keys, cells, strict=True) if key not in self._formats}
        self._formats.update(zip(new, _formats(list(new.values())), strict=True))
        for key, cell in zip(keys, cells, strict=True):
            pieces, places, repeat, width = self._formats[key]
            made, size = pieces.copy(), len(cell.truth)
            for stage, at in places:
                first = cell.answers[stage]
                made[at::width] = self._heads[first : first + size]
                made[at + 1 :: width] = self._values[first : first + size]
            made[repeat::width] = [str(cell.repeat)] * size
            yield "".join(made)
        self._formats = {key: form for key, form in self._formats.items() if key[0] == keys[-1][0]}

    def _take_up(self) -> None:
        """Write the answers that are new."""
        start, answers, texts = len(self._heads), self._answers, self._head_texts
        texts += [head_text(*head) for head in answers.heads.things[len(texts) :]]
        self._heads += [texts[head] for head in answers.head[start:]]
        self._values += number_texts(np.array(answers.value[start:]))


def _formats(cells: Sequence[Cell]) -> Iterator[_Format]:
    """The format of each cell; the numbers of all of them are written together."""
    values = [math.nan if t.value is None else t.value for cell in cells for t in cell.truth]
    values += [x for cell in cells for p in (*cell.simulated, *cell.adapted) for x in (p.mean, p.sd)]
    texts = number_texts(np.array(values))
    n_truth = sum(len(cell.truth) for cell in cells)
    truth, predicted = iter(texts[:n_truth]), iter(texts[n_truth:])
    for cell in cells:
        names = sorted((*cell.answers, "repeat"))
        pieces, places, repeat, width = list[str](), list[tuple[str, int]](), 0, 0
        for name in names:
            if name == "repeat":
                repeat = width + 1
            else:
                places.append((name, width + 1))
            width += 2 + (name != "repeat")
        fixed = "".join(_lines(cell, truth, predicted)).split(SLOT)  # no other NUL is in canonical JSON
        for n, text in enumerate(fixed[:-1]):
            pieces += [text, ""] if names[n % len(names)] == "repeat" else [text, "", ""]
        yield _Format([*pieces, fixed[-1]], places, repeat, width)


def _lines(cell: Cell, truth: Iterator[str], predicted: Iterator[str]) -> Iterator[str]:
    """The lines of a cell with SLOTs; `truth` and `predicted` give the texts of its numbers in order."""
    case, stages = _text(cell.case.id), tuple(cell.answers)
    simulated, adapted = (
        {p.readout: (p, next(predicted), next(predicted)) for p in predictions}
        for predictions in (cell.simulated, cell.adapted)
    )
    for readout, true in zip(cell.case.readouts, cell.truth, strict=True):
        name, threshold = readout.id, readout.threshold
        before, after = simulated.get(name), adapted.get(name)
        before_text = _predicted(readout, before)
        after_text = before_text if before and after and before[0] is after[0] else _predicted(readout, after)
        yield _line_format(stages, after is not None, before is not None) % (
            *after_text,
            case,
            "true" if name in cell.queried else "false",
            _text(name),
            *before_text,
            "null" if threshold is None else float.__repr__(threshold),
            _text(true.label),
            next(truth),
        )


def _predicted(readout: Readout, stated: tuple[Prediction, str, str] | None) -> tuple[str, ...]:
    return () if stated is None else (_text(readout.decide(stated[0])), stated[1], stated[2])


@functools.lru_cache(maxsize=256)
def _line_format(stages: tuple[str, ...], adapted: bool, simulated: bool) -> str:
    """A line with SLOTs and, in the order of the keys, `%s` for what cells of a case may have in common."""
    numbers = '{"label":%s,"mean":%s,"sd":%s}'
    fields = {
        **({"adapted": numbers} if adapted else {}),
        **({"simulator": numbers} if simulated else {}),
        **dict.fromkeys(("case", "queried", "readout", "threshold"), "%s"),
        "truth": '{"label":%s,"value":%s}',
        "repeat": SLOT,
        **dict.fromkeys(stages, SLOT + "}"),
    }
    return "{" + ",".join([f'"{key}":{fields[key]}' for key in sorted(fields)]) + "}\n"

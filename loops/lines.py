"""Lines of canonical JSON that differ in a few values: what is the same in all of them is made into text once."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from evidence.contracts import Case, Prediction, Readout
from evidence.values import canonical_json
from loops.answers import Answers
from loops.cells import Cell
from scoring.metrics import DIGITS, Array

SLOT: Final = "\x00slot"
"""Stands in a row for the value that differs from line to line."""
_SLOT_TEXT: Final = canonical_json(SLOT)


def template(row: Mapping[str, Any]) -> str:
    """The canonical JSON of a row as a format with `%s` for each value that is SLOT, in the order of the keys."""
    text = canonical_json(row)
    slots = sum(value is SLOT for value in row.values())
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


class ReadoutLines:
    """The lines of scores/readouts.jsonl, cell by cell, cells of a case one after the other."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._case: Case | None = None
        self._formats: dict[tuple[tuple[str, ...], tuple[str, ...]], _Format] = {}
        self._heads: list[str] = []
        self._values: list[str] = []

    def of(self, cell: Cell) -> str:
        """One line for each readout."""
        if self._case is not cell.case:
            self._case, self._formats = cell.case, {}
        key = cell.measured, tuple(cell.answers)
        form = self._formats.get(key)
        if form is None:
            form = self._formats[key] = _format(cell)
        if len(self._heads) < len(self._answers):
            self._take_up()
        pieces, places, repeat, width = form
        made, size = pieces.copy(), len(cell.case.readouts)
        for stage, at in places:
            first = cell.answers[stage]
            made[at::width] = self._heads[first : first + size]
            made[at + 1 :: width] = self._values[first : first + size]
        made[repeat::width] = [str(cell.repeat)] * size
        return "".join(made)

    def _take_up(self) -> None:
        """Write the answers that are new."""
        start, answers = len(self._heads), self._answers
        texts = [head_text(*head) for head in answers.heads.things]
        self._heads += [texts[head] for head in answers.head[start:]]
        self._values += number_texts(np.array(answers.value[start:]))


def _format(cell: Cell) -> _Format:
    names = sorted((*cell.answers, "repeat"))
    pieces, places, repeat, width = list[str](), list[tuple[str, int]](), 0, 0
    for name in names:
        if name == "repeat":
            repeat = width + 1
        else:
            places.append((name, width + 1))
        width += 2 + (name != "repeat")
    fixed = "".join(_lines(cell)).split(SLOT)  # no other NUL is in canonical JSON
    for n, text in enumerate(fixed[:-1]):
        pieces += [text, ""] if names[n % len(names)] == "repeat" else [text, "", ""]
    return _Format([*pieces, fixed[-1]], places, repeat, width)


def _lines(cell: Cell) -> Iterator[str]:
    case, slots = _text(cell.case.id), {"repeat": SLOT, **dict.fromkeys(cell.answers, SLOT + "}")}
    simulated = {p.readout: p for p in cell.simulated}
    adapted = {p.readout: p for p in cell.adapted}
    for readout, truth in zip(cell.case.readouts, cell.truth, strict=True):
        fields = {
            "case": case,
            "readout": _text(readout.id),
            "queried": "true" if readout.id in cell.queried else "false",
            "truth": f'{{"label":{_text(truth.label)},"value":{number_text(truth.value)}}}',
            "threshold": "null" if readout.threshold is None else float.__repr__(readout.threshold),
            **slots,
        }
        for name, by_readout in (("simulator", simulated), ("adapted", adapted)):
            if readout.id in by_readout:
                fields[name] = _predicted(readout, by_readout[readout.id])
        yield "{" + ",".join([f'"{key}":{fields[key]}' for key in sorted(fields)]) + "}\n"


def _predicted(readout: Readout, p: Prediction) -> str:
    return f'{{"label":{_text(readout.decide(p))},"mean":{number_text(p.mean)},"sd":{number_text(p.sd)}}}'

"""Lines of canonical JSON that differ in a few values: what is the same in all of them is made into text once."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from evidence.contracts import Case, Prediction, Readout
from evidence.values import canonical_json
from loops.cells import Cell
from scoring.metrics import DIGITS

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


@functools.lru_cache(maxsize=16384)
def answer_text(status: str, label: str | None, value: float | None, reason: str) -> str:
    """An answer as a line of scores/readouts.jsonl has it."""
    why = f'"reason":{canonical_json(reason)},' if reason else ""
    return f'{{"label":{_text(label)},{why}"status":{_text(status)},"value":{number_text(value)}}}'


class ReadoutLines:
    """The lines of scores/readouts.jsonl, cell by cell, cells of a case one after the other."""

    def __init__(self) -> None:
        self._case: Case | None = None
        self._pieces: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}

    def of(self, cell: Cell) -> str:
        """One line for each readout."""
        if self._case is not cell.case:
            self._case, self._pieces = cell.case, {}
        stages = tuple(cell.answers)
        pieces = self._pieces.get((cell.measured, stages))
        if pieces is None:
            pieces = self._pieces[cell.measured, stages] = _pieces(cell)
        made, width = pieces.copy(), 2 * (len(stages) + 1)
        for n, name in enumerate(sorted((*stages, "repeat"))):
            if name == "repeat":
                made[2 * n + 1 :: width] = [str(cell.repeat)] * len(cell.case.readouts)
            else:
                answers = cell.answers[name]
                made[2 * n + 1 :: width] = [answer_text(a.status, a.label, a.value, a.reason) for a in answers]
        return "".join(made)


def _pieces(cell: Cell) -> list[str]:
    """The text of a cell's lines in pieces: every other one, empty, is what may differ from repeat to repeat."""
    fixed = "".join(_lines(cell)).split(SLOT)  # no other NUL is in canonical JSON
    pieces = [""] * (2 * len(fixed) - 1)
    pieces[::2] = fixed
    return pieces


def _lines(cell: Cell) -> Iterator[str]:
    case, slots = _text(cell.case.id), dict.fromkeys(("repeat", *cell.answers), SLOT)
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

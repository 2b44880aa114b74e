"""The answers and predictions of a run in columns, one entry a readout of a cell: all that scores are made of.

Cells are added one by one, those of a case one after the other; what the repeats of a case share is coded once.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evidence.contracts import Answer, Prediction
from loops.cells import STAGES, Cell
from scoring.metrics import Marks

SIMULATED = "simulator alone"
ADAPTED = "simulator + adapter"
CONSTANT = "constant (near zero)"
MISSING = -1
"""The code of a missing label."""


class Row:
    """One row of the table: label codes (MISSING where there is none), absolute errors (NaN), and what else was stated.

    `more` of a stage is the confidence that goes with a label, of predictions their mean and standard deviation (NaN).
    `probabilities` are a stage's, each with the place of the true label among the readout's, and how many those are.
    """

    def __init__(self, filled: int, more: int) -> None:
        self.label = array("h", [MISSING]) * filled
        self.error = array("d", [math.nan]) * filled
        self.more = tuple(array("d", [math.nan]) * filled for _ in range(more))
        self.probabilities: list[tuple[tuple[float, ...], int, int]] = []

    def add(self, part: _Part) -> None:
        """Append the entries of one cell."""
        self.label.extend(part.label)
        self.error.extend(part.error)
        for column, entries in zip(self.more, part.more, strict=True):
            column.extend(entries)

    def fill(self, length: int) -> None:
        """Append missing entries up to a length."""
        lacking = length - len(self.label)
        if lacking > 0:
            self.label.extend(array("h", [MISSING]) * lacking)
            for column in (self.error, *self.more):
                column.extend(array("d", [math.nan]) * lacking)


class _Part(NamedTuple):
    """The entries of one row for one cell."""

    label: array[int]
    error: array[float]
    more: tuple[array[float], ...]


class _Shared:
    """The columns that all repeats of a case share."""

    def __init__(self, cell: Cell, number: int, codes: dict[str, int]):
        readouts = cell.case.readouts
        for readout in readouts:
            for label in readout.labels:
                codes.setdefault(label, len(codes))
        self.case = cell.case
        self.codes = codes
        self.truths = cell.truth
        self.names = [r.id for r in readouts]
        self.number = array("i", [number] * len(readouts))
        self.truth = array("h", [codes[t.label] for t in cell.truth])
        self.place = array("h", [r.labels.index(t.label) for r, t in zip(readouts, cell.truth, strict=True)])
        self.threshold = array("d", [_nan(r.threshold) for r in readouts])
        self.value = array("d", [_nan(t.value) for t in cell.truth])
        self.numeric = all(r.numeric for r in readouts)
        self.baselines = {name: self.predicted(predictions) for name, predictions in cell.baselines.items()}
        self.fixed: dict[str, _Part] = {}
        if cell.simulated:
            self.fixed[SIMULATED] = self.predicted(cell.simulated)
        if self.numeric:
            self.fixed[CONSTANT] = self.predicted([Prediction(readout=r.id, mean=0.0, sd=0.0) for r in readouts])
        self._ways: dict[tuple[str, ...], tuple[array[int], _Part | None]] = {}

    def way(self, cell: Cell) -> tuple[array[int], _Part | None]:
        """Which readouts were measured, and the adapter's predictions, where these were measured."""
        found = self._ways.get(cell.measured)
        if found is None:
            queried = array("b", [r.id in cell.queried for r in cell.case.readouts])
            found = self._ways[cell.measured] = queried, self.predicted(cell.adapted) if cell.adapted else None
        return found

    def predicted(self, predictions: Sequence[Prediction]) -> _Part:
        """Predictions by the readout they name; a readout without one is missing."""
        by_readout = {p.readout: p for p in predictions}
        given = [by_readout.get(name) for name in self.names]
        label = [
            MISSING if p is None else self.codes[r.decide(p)] for r, p in zip(self.case.readouts, given, strict=True)
        ]
        mean = array("d", [math.nan if p is None else p.mean for p in given])
        error = array("d", [abs(m - v) for m, v in zip(mean, self.value, strict=True)])
        sd = array("d", [math.nan if p is None else p.sd for p in given])
        return _Part(array("h", label), error, (mean, sd))

    def answered(self, answers: Sequence[Answer]) -> _Part:
        """Answers, in the order of the readouts."""
        codes, nan = self.codes, math.nan
        label = [MISSING if a.label is None else codes[a.label] for a in answers]
        error = [nan if a.value is None else abs(a.value - v) for a, v in zip(answers, self.value, strict=True)]
        confidence = [nan if a.confidence is None or a.label is None else a.confidence for a in answers]
        return _Part(array("h", label), array("d", error), (array("d", confidence),))


class Columns:
    """All readouts of all cells added so far. `rows` are by name: stages, simulator, adapter, baselines, constant."""

    def __init__(self, cases: Sequence[str]):
        self.cases = tuple(cases)
        self.codes: dict[str, int] = {}
        self.rows: dict[str, Row] = {}
        self._baselines: dict[str, Row] = {}
        self.given: dict[str, array[int]] = {}
        self.readouts: list[str] = []
        self.done: Counter[str] = Counter()
        self.balance: Counter[str] = Counter()
        self.numeric = True
        self.case, self.truth, self.place, self.queried = array("i"), array("h"), array("h"), array("b")
        self.threshold, self.value = array("d"), array("d")
        self._order = {case: number for number, case in enumerate(cases)}
        self._shared: _Shared | None = None
        self._names: dict[str, str] = {}

    @property
    def labels(self) -> tuple[str, ...]:
        """Every label of the run, in the order first shown."""
        return tuple(self.codes)

    def add(self, cell: Cell) -> None:
        """Append the readouts of a cell."""
        shared = self._of(cell)
        queried, adapted = shared.way(cell)
        before = len(self.truth)
        self.readouts += shared.names
        self.case.extend(shared.number)
        self.truth.extend(shared.truth)
        self.place.extend(shared.place)
        self.threshold.extend(shared.threshold)
        self.value.extend(shared.value)
        self.queried.extend(queried)
        self.done[cell.case.id] += 1
        for stage, answers in cell.answers.items():
            row = _row(self.rows, stage, before, 1)
            row.add(shared.answered(answers))
            self._given(stage, before, len(answers))
            for at, answer in enumerate(answers):
                if answer.probabilities is not None and answer.label is not None:
                    row.probabilities.append(
                        (answer.probabilities, shared.place[at], len(cell.case.readouts[at].labels))
                    )
        for name, part in shared.fixed.items():
            _row(self.rows, name, before, 2).add(part)
        for name, part in shared.baselines.items():
            _row(self._baselines, name, before, 2).add(part)
        if adapted is not None:
            _row(self.rows, ADAPTED, before, 2).add(adapted)

    def finish(self) -> None:
        """Make all columns equally long: what a cell does not have is missing."""
        if not self.numeric:
            self.rows.pop(CONSTANT, None)
        before = [name for name in (*STAGES, SIMULATED, ADAPTED) if name in self.rows]
        after = [name for name in (CONSTANT,) if name in self.rows]
        self.rows = {
            **{name: self.rows[name] for name in before},
            **dict(sorted(self._baselines.items())),
            **{name: self.rows[name] for name in after},
        }
        for row in self.rows.values():
            row.fill(len(self.truth))
        for given in self.given.values():
            given.extend(array("b", [0]) * (len(self.truth) - len(given)))

    def marks(self, where: NDArray[np.bool_]) -> dict[str, Marks]:
        """Every row as marks of the readouts chosen by a mask."""
        case, truth = (np.asarray(column).astype(np.intp)[where] for column in (self.case, self.truth))
        return {
            name: Marks(case, truth, np.asarray(row.label).astype(np.intp)[where], np.asarray(row.error)[where])
            for name, row in self.rows.items()
        }

    def was_given(self, stage: str) -> NDArray[np.bool_]:
        """Where a cell has this stage."""
        return np.asarray(self.given[stage]).astype(bool)

    def was_queried(self) -> NDArray[np.bool_]:
        """Which readouts were measured."""
        return np.asarray(self.queried).astype(bool)

    def predicted(self, row: Row) -> NDArray[np.bool_]:
        """Where a row has a prediction of a numeric readout."""
        mean, _ = row.more
        return ~np.isnan(mean) & ~np.isnan(self.threshold)

    def _of(self, cell: Cell) -> _Shared:
        shared = self._shared
        if shared is None or shared.case is not cell.case:
            shared = self._shared = _Shared(cell, self._order[cell.case.id], self.codes)
            shared.names = [self._names.setdefault(name, name) for name in shared.names]
            self.numeric &= shared.numeric
            self.balance.update(t.label for t in cell.truth)
        return shared

    def _given(self, stage: str, before: int, n: int) -> None:
        given = self.given.setdefault(stage, array("b"))
        if len(given) < before:
            given.extend(array("b", [0]) * (before - len(given)))
        given.extend(array("b", [1]) * n)


def _row(rows: dict[str, Row], name: str, before: int, more: int) -> Row:
    """A row with an entry for each of the readouts before."""
    row = rows.get(name)
    if row is None:
        row = rows[name] = Row(before, more)
    elif len(row.label) < before:
        row.fill(before)
    return row


def _nan(value: float | None) -> float:
    return math.nan if value is None else value

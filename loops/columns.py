"""The answers and predictions of a run in columns, one entry a readout of a cell: all that scores are made of.

Cells are added one by one, those of a case one after the other. Of a cell only its answers and the number of its block
(loops.blocks) are kept.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loops.blocks import ADAPTED, CONSTANT, MISSING, SIMULATED, Blocks, Coded, Predicted
from loops.cells import STAGES, Cell
from loops.lean import Answer
from scoring.metrics import Array, Marks


class Row(NamedTuple):
    """One row of the table: label codes (MISSING where there is none), absolute errors (NaN), and what else was stated.

    `more` of a stage is the confidence that goes with a label, of predictions their mean and standard deviation (NaN).
    `probabilities` are a stage's, each with the place of the true label among the readout's, and how many those are.
    """

    label: NDArray[np.int16]
    error: Array
    more: tuple[Array, ...] = ()
    probabilities: Sequence[tuple[tuple[float, ...], int, int]] = ()


class _Stage:
    """The answers of one stage, in the order of the cells."""

    def __init__(self) -> None:
        self.label, self.given = array("h"), array("b")
        self.value, self.confidence = array("d"), array("d")
        self.probabilities: list[tuple[tuple[float, ...], int, int]] = []

    def fill(self, length: int) -> None:
        """Append missing entries up to a length."""
        lacking = length - len(self.label)
        if lacking > 0:
            self.label.extend(array("h", [MISSING]) * lacking)
            self.given.extend(array("b", [0]) * lacking)
            for column in (self.value, self.confidence):
                column.extend(array("d", [math.nan]) * lacking)

    def add(self, answers: Sequence[Answer], coded: Coded) -> None:
        """Append the answers of a cell, in the order of its readouts."""
        codes, nan = coded.codes, math.nan
        self.label.extend([codes.get(a.label, MISSING) for a in answers])  # type: ignore[arg-type]
        self.given.extend(array("b", [1]) * len(answers))
        self.value.extend([nan if a.value is None else a.value for a in answers])
        self.confidence.extend([nan if a.confidence is None else a.confidence for a in answers])
        for place, width, a in zip(coded.place, coded.widths, answers, strict=True):
            if a.probabilities is not None and a.label is not None:
                self.probabilities.append((a.probabilities, place, width))

    def row(self, truth: Array) -> Row:
        """The row of the table, for these true values."""
        label = np.asarray(self.label)
        confidence = np.where(label == MISSING, np.nan, np.asarray(self.confidence))
        return Row(label, np.abs(np.asarray(self.value) - truth), (confidence,), self.probabilities)


class Columns:
    """All readouts of all cells added; whole when `finish` was called.

    `rows` are by name: stages, simulator, adapter, baselines, constant. `given`: stage -> where a cell has it. `done`:
    case -> cells; `balance`: label -> cases and readouts it is true of. Numbers that are not there are NaN.
    """

    def __init__(self, cases: Sequence[str]):
        self.cases = tuple(cases)
        self.codes: dict[str, int] = {}
        self.done: Counter[str] = Counter()
        self.balance: Counter[str] = Counter()
        self.rows: dict[str, Row] = {}
        self.given: dict[str, NDArray[np.bool_]] = {}
        self.case, self.truth, self.place = (np.zeros(0, dtype=np.intp) for _ in range(3))
        self.threshold, self.value = np.zeros(0), np.zeros(0)
        self.queried = np.zeros(0, dtype=bool)
        self._order = {case: number for number, case in enumerate(cases)}
        self._numeric = True
        self._blocks = Blocks()
        self._cells = array("i")
        self._stages: dict[str, _Stage] = {}
        self._n = 0
        self._coded: Coded | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """Every label of the run, in the order first shown."""
        return tuple(self.codes)

    def add(self, cell: Cell) -> None:
        """Append the readouts of a cell."""
        coded = self._coded
        if coded is None or coded.case is not cell.case:
            coded = self._coded = Coded(cell, self._order[cell.case.id], self.codes)
            self._numeric &= coded.numeric
            self.balance.update(t.label for t in cell.truth)
        self._cells.append(self._blocks.of(coded, cell))
        for name, answers in cell.answers.items():
            stage = self._stages.get(name)
            if stage is None:
                stage = self._stages[name] = _Stage()
            stage.fill(self._n)
            stage.add(answers, coded)
        self._n += len(coded.names)
        self.done[cell.case.id] += 1

    def finish(self) -> None:
        """Make the columns of what was added: what a cell does not have is missing."""
        blocks = self._blocks
        blocks.finish()
        at = blocks.places(self._cells)
        self.case, self.truth, self.place = (np.asarray(c)[at] for c in (blocks.case, blocks.truth, blocks.place))
        self.threshold, self.value = np.asarray(blocks.threshold)[at], np.asarray(blocks.value)[at]
        self.queried = np.asarray(blocks.queried)[at].astype(bool)
        for stage in self._stages.values():
            stage.fill(self._n)
        self.given = {name: np.asarray(stage.given).astype(bool) for name, stage in self._stages.items()}
        made = {name: stage.row(self.value) for name, stage in self._stages.items()}
        made |= {name: _row(predicted, at) for name, predicted in blocks.rows.items()}
        baselines = {name: _row(blocks.baselines[name], at) for name in sorted(blocks.baselines)}
        self.rows = {
            **{name: made[name] for name in (*STAGES, SIMULATED, ADAPTED) if name in made},
            **baselines,
            **{name: made[name] for name in (CONSTANT,) if name in made and self._numeric},
        }

    def marks(self, where: NDArray[np.bool_]) -> dict[str, Marks]:
        """Every row as marks of the readouts chosen by a mask."""
        case, truth = (column.astype(np.intp)[where] for column in (self.case, self.truth))
        return {
            name: Marks(case, truth, row.label.astype(np.intp)[where], row.error[where])
            for name, row in self.rows.items()
        }

    def predicted(self, row: Row) -> NDArray[np.bool_]:
        """Where a row has a prediction of a numeric readout."""
        mean, _ = row.more
        return ~np.isnan(mean) & ~np.isnan(self.threshold)


def _row(predicted: Predicted, at: NDArray[np.intp]) -> Row:
    error, mean, sd = (np.asarray(column)[at] for column in predicted.numbers)
    return Row(np.asarray(predicted.label)[at], error, (mean, sd))

"""The answers and predictions of a run in columns, one entry a readout of a cell: all that scores are made of.

Cells are added one by one, those of a case one after the other. Of a cell only its answers and the number of its block
(loops.blocks) are kept.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loops.blocks import ADAPTED, CONSTANT, MISSING, SIMULATED, Blocks, Coded, Predicted, spans
from loops.cells import STAGES, Cell
from loops.lean import Answer
from scoring.metrics import Array, Marks

AT_ONCE = 512
"""Answers of a stage that are coded at a time."""


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
    """The answers of one stage, and the numbers of the cells that have it. `probabilities` go with the nth answer."""

    def __init__(self, codes: Mapping[str, int]) -> None:
        self.cells = array("i")
        self.label, self.value, self.confidence = array("h"), array("d"), array("d")
        self.probabilities: list[tuple[int, tuple[float, ...]]] = []
        self._codes = codes
        self._new: list[Answer] = []

    def add(self, cell: int, answers: Sequence[Answer]) -> None:
        """Append the answers of a cell, in the order of its readouts."""
        self.cells.append(cell)
        self._new += answers
        if len(self._new) > AT_ONCE:
            self.take_up()

    def take_up(self) -> None:
        """Code the answers that were added since last time."""
        new, codes, nan, before = self._new, self._codes, math.nan, len(self.label)
        self.label.extend([MISSING if a.label is None else codes[a.label] for a in new])
        self.value.extend([nan if a.value is None else a.value for a in new])
        self.confidence.extend([nan if a.confidence is None or a.label is None else a.confidence for a in new])
        stated = [a.probabilities for a in new]
        if stated.count(None) < len(stated):
            self.probabilities += [
                (before + n, p)
                for n, (a, p) in enumerate(zip(new, stated, strict=True))
                if p is not None and a.label is not None
            ]
        self._new = []


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
        self.case, self.truth, self.place, self.width = (np.zeros(0, dtype=np.intp) for _ in range(4))
        self.threshold, self.value = np.zeros(0), np.zeros(0)
        self.queried = np.zeros(0, dtype=bool)
        self._order = {case: number for number, case in enumerate(cases)}
        self._numeric = True
        self._blocks = Blocks()
        self._cells = array("i")
        self._stages: dict[str, _Stage] = {}
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
        for name, answers in cell.answers.items():
            stage = self._stages.get(name)
            if stage is None:
                stage = self._stages[name] = _Stage(self.codes)
            stage.add(len(self._cells), answers)
        self._cells.append(self._blocks.of(coded, cell))
        self.done[cell.case.id] += 1

    def finish(self) -> None:
        """Make the columns of what was added: what a cell does not have is missing."""
        blocks, cells = self._blocks, np.asarray(self._cells, dtype=np.intp)
        blocks.finish()
        size = np.asarray(blocks.size, dtype=np.intp)[cells]
        at = spans(np.asarray(blocks.start, dtype=np.intp)[cells], size)
        self.case, self.truth, self.place = (np.asarray(c)[at] for c in (blocks.case, blocks.truth, blocks.place))
        self.width, self.queried = np.asarray(blocks.width)[at], np.asarray(blocks.queried)[at].astype(bool)
        self.threshold, self.value = np.asarray(blocks.threshold)[at], np.asarray(blocks.value)[at]
        start, made = np.cumsum(size) - size, {}
        for name, stage in self._stages.items():
            mine = np.asarray(stage.cells)
            made[name] = self._stage(name, stage, spans(start[mine], size[mine]))
        made |= {name: _row(predicted, at, self.value) for name, predicted in blocks.rows.items()}
        baselines = {name: _row(blocks.baselines[name], at, self.value) for name in sorted(blocks.baselines)}
        self.rows = {
            **{name: made[name] for name in (*STAGES, SIMULATED, ADAPTED) if name in made},
            **baselines,
            **{name: made[name] for name in (CONSTANT,) if name in made and self._numeric},
        }

    def _stage(self, name: str, stage: _Stage, at: NDArray[np.intp]) -> Row:
        """The row of a stage, whose answers are to the readouts `at`."""
        stage.take_up()
        given = self.given[name] = np.zeros(len(self.truth), dtype=bool)
        given[at] = True
        label = np.full(len(self.truth), MISSING, dtype=np.int16)
        error, confidence = np.full(len(self.truth), np.nan), np.full(len(self.truth), np.nan)
        label[at] = stage.label
        error[at] = np.abs(np.asarray(stage.value) - self.value[at])
        confidence[at] = stage.confidence
        probabilities = [(p, int(self.place[at[n]]), int(self.width[at[n]])) for n, p in stage.probabilities]
        return Row(label, error, (confidence,), probabilities)

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


def _row(predicted: Predicted, at: NDArray[np.intp], value: Array) -> Row:
    mean, sd = np.asarray(predicted.mean)[at], np.asarray(predicted.sd)[at]
    return Row(np.asarray(predicted.label)[at], np.abs(mean - value), (mean, sd))

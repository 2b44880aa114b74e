"""The answers and predictions of a run in columns, one entry a readout of a cell: all that scores are made of.

Batches of cells are added in the order of the case file. Of a cell only where its answers are (loops.answers) and the
number of its block (loops.blocks) are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loops.answers import Answers, joined, spans
from loops.blocks import ADAPTED, CONSTANT, MISSING, SIMULATED, Blocks, Coded, Codes, Predicted
from loops.cell_events import NOWHERE
from loops.cells import Batch
from loops.run_events import STAGES
from loops.ways import Way
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


class Columns:
    """All readouts of all cells of the batches added; whole when `finish` was called.

    `rows` are by name: stages, simulator, adapter, baselines, constant. `given`: stage -> where a cell has it. `done`:
    case -> cells; `balance`: label -> cases and readouts it is true of. Numbers that are not there are NaN.
    """

    def __init__(self, cases: Sequence[str], answers: Answers):
        self.cases = tuple(cases)
        self.answers = answers
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
        self._cells: list[NDArray[np.intp]] = []
        self._stages: dict[str, list[NDArray[np.intp]]] = {}
        self._coded: Coded | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """Every label of the run, in the order first shown."""
        return tuple(self.codes)

    def add(self, batch: Batch) -> None:
        """Append the readouts of some cells."""
        self._cells.append(np.array([self._block(way) for way in batch.ways], dtype=np.intp)[batch.way])
        for name, first in batch.first.items():
            self._stages.setdefault(name, []).append(first)

    def _block(self, way: Way) -> int:
        """The number of the block of the cells that measured this."""
        coded = self._coded
        if coded is None or coded.case is not way.case:
            asked = way.case.asked
            codes = coded.codes if coded is not None and coded.codes.asked is asked else Codes(asked, self.codes)
            coded = self._coded = Coded(way, self._order[way.case.id], codes)
            self._numeric &= asked.numeric
            self.balance.update([t.label for t in way.truth])
        block = coded.blocks.get(way.measured)
        return self._blocks.add(coded, way) if block is None else block

    def finish(self) -> None:
        """Make the columns of what was added: what a cell does not have is missing."""
        blocks, cells = self._blocks, joined(self._cells)
        blocks.finish()
        size = np.asarray(blocks.size, dtype=np.intp)[cells]
        at = spans(np.asarray(blocks.start, dtype=np.intp)[cells], size)
        counts = np.bincount(np.asarray(blocks.number, dtype=np.intp)[cells], minlength=len(self.cases))
        self.done = Counter(dict(zip(self.cases, counts.tolist(), strict=True)))
        self.case, self.truth, self.place = (np.asarray(c)[at] for c in (blocks.case, blocks.truth, blocks.place))
        self.width, self.queried = np.asarray(blocks.width)[at], np.asarray(blocks.queried)[at].astype(bool)
        self.threshold, self.value = np.asarray(blocks.threshold)[at], np.asarray(blocks.value)[at]
        start, made = np.cumsum(size) - size, {}
        for name, firsts in self._stages.items():
            first = np.concatenate(firsts)
            mine = np.flatnonzero(first != NOWHERE)
            if len(mine):
                made[name] = self._stage(name, spans(first[mine], size[mine]), spans(start[mine], size[mine]))
        made |= {name: _row(predicted, at, self.value) for name, predicted in blocks.rows.items()}
        baselines = {name: _row(blocks.baselines[name], at, self.value) for name in sorted(blocks.baselines)}
        self.rows = {
            **{name: made[name] for name in (*STAGES, SIMULATED, ADAPTED) if name in made},
            **baselines,
            **{name: made[name] for name in (CONSTANT,) if name in made and self._numeric},
        }

    def _stage(self, name: str, entries: NDArray[np.intp], at: NDArray[np.intp]) -> Row:
        """The row of a stage, whose answers are to the readouts `at`."""
        answers, n = self.answers, len(self.truth)
        given = self.given[name] = np.zeros(n, dtype=bool)
        given[at] = True
        codes = [MISSING if label is None else self.codes.get(label, MISSING) for label, _, _ in answers.heads.things]
        label = np.full(n, MISSING, dtype=np.int16)
        error, confidence = np.full(n, np.nan), np.full(n, np.nan)
        label[at] = np.array(codes, dtype=np.int16)[np.asarray(answers.head)[entries]]
        error[at] = np.abs(np.asarray(answers.value)[entries] - self.value[at])
        confidence[at] = np.asarray(answers.confidence)[entries]
        confidence[label == MISSING] = np.nan
        probabilities = []
        if answers.probabilities:
            for entry, to in zip(entries.tolist(), at.tolist(), strict=True):
                if label[to] != MISSING and entry in answers.probabilities:
                    probabilities.append((answers.probabilities[entry], int(self.place[to]), int(self.width[to])))
        return Row(label, error, (confidence,), probabilities)

    def marks(self, where: NDArray[np.bool_]) -> dict[str, Marks]:
        """Every row as marks of the readouts chosen by a mask."""
        kept = slice(None) if where.all() else np.flatnonzero(where)
        case, truth = (column[kept].astype(np.intp) for column in (self.case, self.truth))
        return {
            name: Marks(case, truth, row.label[kept].astype(np.intp), row.error[kept])
            for name, row in self.rows.items()
        }

    def predicted(self, row: Row) -> NDArray[np.bool_]:
        """Where a row has a prediction of a numeric readout."""
        mean, _ = row.more
        return ~np.isnan(mean) & ~np.isnan(self.threshold)


def _row(predicted: Predicted, at: NDArray[np.intp], value: Array) -> Row:
    mean, sd = np.asarray(predicted.mean)[at], np.asarray(predicted.sd)[at]
    return Row(np.asarray(predicted.label)[at], np.abs(mean - value), (mean, sd))

"""What cells of a case that measured the same have in common, coded once: a block of table rows, one a readout."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

from evidence.contracts import Prediction
from loops.cells import Cell

SIMULATED = "simulator alone"
ADAPTED = "simulator + adapter"
CONSTANT = "constant (near zero)"
MISSING = -1
"""The code of a missing label."""


class Predicted:
    """Predictions by row of the table: label codes (MISSING), means and standard deviations (NaN)."""

    def __init__(self) -> None:
        self.label, self.mean, self.sd = array("h"), array("d"), array("d")

    def add(self, label: Sequence[int], mean: Sequence[float], sd: Sequence[float]) -> None:
        """Append the entries of a block."""
        self.label.extend(label)
        self.mean.extend(mean)
        self.sd.extend(sd)

    def fill(self, length: int) -> None:
        """Append missing entries up to a length."""
        lacking = length - len(self.label)
        if lacking > 0:
            self.label.extend(array("h", [MISSING]) * lacking)
            for column in (self.mean, self.sd):
                column.extend(array("d", [math.nan]) * lacking)


class Coded:
    """The readouts of a case in codes; `codes` are those of the run, to which its labels are added."""

    def __init__(self, cell: Cell, number: int, codes: dict[str, int]):
        readouts = cell.case.readouts
        for readout in readouts:
            for label in readout.labels:
                codes.setdefault(label, len(codes))
        self.case = cell.case
        self.codes = codes
        self.names = [r.id for r in readouts]
        self.width = array("h", [len(r.labels) for r in readouts])
        self.number = array("i", [number]) * len(readouts)
        self.truth = array("h", [codes[t.label] for t in cell.truth])
        self.place = array("h", [r.labels.index(t.label) for r, t in zip(readouts, cell.truth, strict=True)])
        self.threshold = array("d", [_nan(r.threshold) for r in readouts])
        self.value = array("d", [_nan(t.value) for t in cell.truth])
        self.numeric = all(r.numeric for r in readouts)
        self.blocks: dict[tuple[str, ...], int] = {}


class Blocks:
    """The table. Block k, of case `number[k]`, is `size[k]` rows from `start[k]`.

    Predictions are by the name of their row in the scores.
    """

    def __init__(self) -> None:
        self.number, self.start, self.size = array("i"), array("q"), array("i")
        self.case, self.truth, self.place, self.queried = array("i"), array("h"), array("h"), array("b")
        self.width, self.threshold, self.value = array("h"), array("d"), array("d")
        self.rows: dict[str, Predicted] = {}
        self.baselines: dict[str, Predicted] = {}

    def finish(self) -> None:
        """Make all columns equally long."""
        for predicted in (*self.rows.values(), *self.baselines.values()):
            predicted.fill(len(self.truth))

    def add(self, coded: Coded, cell: Cell) -> int:
        """The number of a new block, that of a cell which measured what none of its case did before."""
        number = coded.blocks[cell.measured] = len(self.start)
        self.number.append(coded.number[0])
        self.start.append(len(self.truth))
        self.size.append(len(coded.names))
        if cell.simulated:
            self._add_predicted(self.rows, SIMULATED, coded, cell.simulated)
        if coded.numeric:
            zeros = [0.0] * len(coded.names)
            near_zero = [coded.codes[r.classify(0.0)] for r in coded.case.readouts]
            self._row(self.rows, CONSTANT).add(near_zero, zeros, zeros)
        if cell.adapted:
            self._add_predicted(self.rows, ADAPTED, coded, cell.adapted)
        for name, predictions in cell.baselines.items():
            self._add_predicted(self.baselines, name, coded, predictions)
        self.case.extend(coded.number)
        self.truth.extend(coded.truth)
        self.place.extend(coded.place)
        self.width.extend(coded.width)
        self.threshold.extend(coded.threshold)
        self.value.extend(coded.value)
        self.queried.extend([name in cell.queried for name in coded.names])
        return number

    def _add_predicted(
        self, rows: dict[str, Predicted], name: str, coded: Coded, predictions: Sequence[Prediction]
    ) -> None:
        """Predictions by the readout they name; a readout without one is missing."""
        row, codes, readouts = self._row(rows, name), coded.codes, coded.case.readouts
        if [p.readout for p in predictions] == coded.names:
            labels = [codes[r.decide(p)] for r, p in zip(readouts, predictions, strict=True)]
            row.add(labels, [p.mean for p in predictions], [p.sd for p in predictions])
            return
        by_readout = {p.readout: p for p in predictions}
        given = [by_readout.get(name) for name in coded.names]
        row.add(
            [MISSING if p is None else codes[r.decide(p)] for r, p in zip(readouts, given, strict=True)],
            [math.nan if p is None else p.mean for p in given],
            [math.nan if p is None else p.sd for p in given],
        )

    def _row(self, rows: dict[str, Predicted], name: str) -> Predicted:
        """A row with an entry for each of the readouts before."""
        if name not in rows:
            rows[name] = Predicted()
        rows[name].fill(len(self.truth))
        return rows[name]


def _nan(value: float | None) -> float:
    return math.nan if value is None else value

"""What cells of a case that measured the same have in common, coded once: a block of table rows, one a readout."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

from evidence.contracts import Prediction
from loops import lean
from loops.opened import Asked
from loops.ways import Way

Predictions = Sequence[Prediction] | Sequence[lean.Prediction]

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


class Codes:
    """What cases ask in codes; `codes` are those of the run, to which the labels are added."""

    def __init__(self, asked: Asked, codes: dict[str, int]):
        for readout in asked.readouts:
            for label in readout.labels:
                codes.setdefault(label, len(codes))
        self.asked = asked
        self.codes = codes
        self.width = array("h", [len(r.labels) for r in asked.readouts])
        self.places = [{label: n for n, label in enumerate(r.labels)} for r in asked.readouts]
        self.threshold = array("d", [_nan(r.threshold) for r in asked.readouts])
        self.zeros = [0.0] * len(asked.names)
        self.near_zero = [codes[r.classify(0.0)] for r in asked.readouts] if asked.numeric else []


class Coded:
    """A case in codes: its number in the run, its truth, and the blocks of the cells that measured the same."""

    def __init__(self, way: Way, number: int, codes: Codes):
        truth, code = way.truth, codes.codes
        self.case = way.case
        self.codes = codes
        self.number = array("i", [number]) * len(truth)
        self.truth = array("h", [code[t.label] for t in truth])
        self.place = array("h", [places[t.label] for places, t in zip(codes.places, truth, strict=True)])
        self.value = array("d", [_nan(t.value) for t in truth])
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

    def add(self, coded: Coded, way: Way) -> int:
        """The number of a new block, that of a cell which measured what none of its case did before."""
        number = coded.blocks[way.measured] = len(self.start)
        codes, names = coded.codes, coded.codes.asked.names
        self.number.append(coded.number[0])
        self.start.append(len(self.truth))
        self.size.append(len(names))
        if way.simulated:
            self._add_predicted(self.rows, SIMULATED, codes, way.simulated)
        if codes.asked.numeric:
            self._row(self.rows, CONSTANT).add(codes.near_zero, codes.zeros, codes.zeros)
        if way.adapted:
            self._add_predicted(self.rows, ADAPTED, codes, way.adapted)
        for name, predictions in way.baselines.items():
            self._add_predicted(self.baselines, name, codes, predictions)
        self.case.extend(coded.number)
        self.truth.extend(coded.truth)
        self.place.extend(coded.place)
        self.width.extend(codes.width)
        self.threshold.extend(codes.threshold)
        self.value.extend(coded.value)
        self.queried.extend([name in way.queried for name in names])
        return number

    def _add_predicted(self, rows: dict[str, Predicted], name: str, codes: Codes, predictions: Predictions) -> None:
        """Predictions by the readout they name; a readout without one is missing."""
        row, code, asked = self._row(rows, name), codes.codes, codes.asked
        if tuple([p.readout for p in predictions]) == asked.names:
            labels, means = asked.decide(predictions)
            row.add([code[label] for label in labels], means, [p.sd for p in predictions])
            return
        by_readout = {p.readout: p for p in predictions}
        given = [by_readout.get(name) for name in asked.names]
        row.add(
            [MISSING if p is None else code[r.decide(p)] for r, p in zip(asked.readouts, given, strict=True)],
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

"""How well the first measurement of each case was chosen: every menu entry is tried on the sealed observations.

For one entry, "right" is the number of readouts (all of them, the measured one too) whose class is right after the
adapter was given that one observation, and "mae" the mean absolute error. The oracle takes the most right, then the
smallest error, then the first id. Nothing of this is known while a run goes on.
"""

from __future__ import annotations

import functools
import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evidence.contracts import Adapter, Case, Joint, Measurement, Prediction, Readout, Truth
from evidence.errors import ConfigError
from evidence.registry import ADAPTERS
from loops.cells import Cell
from loops.config import Component, build
from loops.information import Worth, expected_noise, joint_posterior, worth
from loops.lines import SLOT, template
from loops.policies import best_for_cost
from loops.prepare import affordable
from scoring.metrics import Array, rounded

CHOOSERS = ("chosen", "oracle", "eig", "eag")


class Outcome(NamedTuple):
    """Readouts right and mean absolute error over all readouts of a case; None where no readout has a value."""

    right: int
    mae: float | None


class Tried(NamedTuple):
    """A case without a measurement and after each affordable entry, and what each was expected to be worth.

    joint: whose joint posterior the expectations come from; None, and no expectations, where there is none.
    """

    before: Outcome
    after: Mapping[str, Outcome]
    expected: Mapping[str, Worth]
    joint: str | None
    picks: Mapping[str, str | None]


class Choices:
    """The choice of every cell with a simulator, added one by one, those of a case one after the other.

    A case is tried once; its repeats with the same first measurement have the same row.
    """

    def __init__(self, adapter: Adapter, name: str, cost: float | None):
        self._adapter, self._name, self._cost = adapter, name, cost
        self._case: Case | None = None
        self._tried: Tried | None = None
        self._rows: dict[str | None, Chosen] = {}
        self._numbers = array("d")

    def add(self, cell: Cell) -> Chosen | None:
        """Count a cell. Its row but for `repeat`, and its line; None where there is no simulator."""
        if cell.inputs is None:
            return None
        if self._case is not cell.case or self._tried is None:
            self._case, self._rows = cell.case, {}
            self._tried = _try(cell, self._adapter, self._name, self._cost)
        chosen = cell.measured[0] if cell.measured else None
        found = self._rows.get(chosen)
        if found is None:
            row = _row(cell.case, chosen, self._tried)
            found = self._rows[chosen] = Chosen(row, template(row) + "\n", array("d", _numbers(row)))
        self._numbers.extend(found.numbers)
        return found

    def summary(self) -> dict[str, Any] | None:
        """Means over cells: accuracy and error after each way of choosing, regrets, expected and realised gain."""
        return _summarise(np.asarray(self._numbers).reshape(-1, len(_COLUMNS))) if self._numbers else None


class Chosen(NamedTuple):
    """One row of scores/cases.jsonl with a SLOT for `repeat`, the format of its line, and its numbers."""

    row: Mapping[str, Any]
    line: str
    numbers: array[float]


_RESULTS = ("right", "mae")
_GAINS = ("expected_gain", "gain")
_COLUMNS = (
    ("n_readouts",),
    *(("before", key) for key in _RESULTS),
    *((way, key) for way in (*CHOOSERS, "random") for key in _RESULTS),
    *((way, key) for way in CHOOSERS for key in _GAINS),
    *(("regret", key) for key in _RESULTS),
)
"""The numbers of a row that the summary needs."""


def _numbers(row: Mapping[str, Any]) -> list[float]:
    """The numbers of a row in the order of _COLUMNS, NaN (in memory only) where there is none."""
    plain = [row["n_readouts"], *map(row["before"].get, _RESULTS)]
    for keys, ways in ((_RESULTS, (*CHOOSERS, "random")), (_GAINS, CHOOSERS)):
        for way in ways:
            plain += (None, None) if row[way] is None else map(row[way].get, keys)
    plain += map(row["regret"].get, _RESULTS)
    return [math.nan if value is None else value for value in plain]


def _summarise(table: Array) -> dict[str, Any]:
    columns = dict(zip(_COLUMNS, table.T, strict=True))
    readouts = columns["n_readouts",]
    ways: dict[str, Any] = {
        "before": {
            "accuracy": rounded(_sum(columns["before", "right"]) / _sum(readouts)),
            "mae": _mean(columns["before", "mae"]),
        }
    }
    for way in (*CHOOSERS, "random"):
        right = columns[way, "right"]
        known = ~np.isnan(right)
        n = _sum(readouts[known])
        ways[way] = {
            "n_cells": int(known.sum()),
            "accuracy": rounded(_sum(right[known]) / n) if n else None,
            "mae": _mean(columns[way, "mae"]),
        }
    return {
        "n_cells": len(table),
        "ways": ways,
        "regret_right": _mean(columns["regret", "right"]),
        "regret_mae": _mean(columns["regret", "mae"]),
        "gain": {way: _gains(columns, way) for way in CHOOSERS},
    }


def _gains(columns: Mapping[tuple[str, ...], Array], way: str) -> dict[str, Any]:
    """Expected and realised gain in readouts right, over the cells where both are known."""
    expected, gain = (columns[way, key] for key in _GAINS)
    return {"expected": _mean(expected), "realised": _mean(gain[~np.isnan(expected)])}


def _sum(values: Array) -> float:
    """In the order of the cells, so that the same archive gives the same digits."""
    return float(sum(values.tolist()))


def _mean(values: Array) -> float | None:
    known = values[~np.isnan(values)].tolist()
    return rounded(math.fsum(known) / len(known)) if known else None


def _try(cell: Cell, adapter: Adapter, name: str, cost: float | None) -> Tried:
    ids = affordable([], cell.case, cost)
    entries = {m.id: m for m in cell.case.menu}
    menu = [entries[m] for m in ids]
    sealed = {o.measurement: o for o in cell.sealed}
    assert cell.inputs is not None  # noqa: S101 - only cells with a simulator come here
    nothing = list(map(_mark, cell.case.readouts, cell.truth, adapter.calibrate(cell.inputs, [])))
    after = {m: _outcome(_marked(cell, adapter.calibrate(cell.inputs, [sealed[m]]), nothing)) for m in ids}
    found = _joint(cell, adapter, name)
    noise = expected_noise(cell.inputs)
    expected = {} if found is None else {m.id: worth(found[0], cell.case.readouts, m.readout, noise) for m in menu}
    picks = {
        "oracle": min(ids, key=lambda m: (-after[m].right, _large(after[m].mae), m), default=None),
        "eig": _best(menu, expected, lambda w: w.information),
        "eag": _best(menu, expected, lambda w: w.accuracy),
    }
    return Tried(_outcome(nothing), after, expected, None if found is None else found[1], picks)


def _joint(cell: Cell, adapter: Adapter, name: str) -> tuple[Joint, str] | None:
    """The adapter's joint posterior before any measurement, else that of the gaussian adapter, and whose it is."""
    own = joint_posterior(adapter, cell.inputs, [])
    if own is not None:
        return own, name
    try:
        joint = joint_posterior(_gaussian(), cell.inputs, [])
    except ConfigError:  # too few training perturbations
        return None
    return None if joint is None else (joint, "gaussian")


@functools.cache
def _gaussian() -> Adapter:
    adapter: Adapter = build(ADAPTERS, Component(name="gaussian"), "adapter 'gaussian'")
    return adapter


def _best(menu: Sequence[Measurement], expected: Mapping[str, Worth], of: Callable[[Worth], float]) -> str | None:
    return best_for_cost(menu, {k: of(w) for k, w in expected.items()}) if expected else None


_Mark = tuple[Prediction, bool, float | None]
"""A prediction, whether its class is right, and its absolute error where the readout has a value."""


def _mark(readout: Readout, truth: Truth, p: Prediction) -> _Mark:
    return p, readout.decide(p) == truth.label, None if truth.value is None else abs(p.mean - truth.value)


def _marked(cell: Cell, predictions: Sequence[Prediction], known: Sequence[_Mark]) -> list[_Mark]:
    """The marks of predictions; one that is the same object as in `known` has the same mark."""
    asked = zip(known, cell.case.readouts, cell.truth, predictions, strict=True)
    return [mark if mark[0] is p else _mark(readout, truth, p) for mark, readout, truth, p in asked]


def _outcome(marks: Sequence[_Mark]) -> Outcome:
    errors = [error for _, _, error in marks if error is not None]
    return Outcome(sum([right for _, right, _ in marks]), math.fsum(errors) / len(errors) if errors else None)


def _row(case: Case, chosen: str | None, tried: Tried) -> dict[str, Any]:
    picks = {"chosen": chosen, **tried.picks}
    best = min((o.mae for o in tried.after.values() if o.mae is not None), default=None)
    mine = tried.after.get(chosen) if chosen else None
    oracle = picks["oracle"]
    return {
        "case": case.id,
        "repeat": SLOT,
        "n_readouts": len(case.readouts),
        "before": _plain(tried.before),
        "menu": {m: {**_plain(o), **_plain_worth(tried.expected.get(m))} for m, o in tried.after.items()},
        "joint": tried.joint,
        **{way: _pick(tried, picks[way]) for way in CHOOSERS},
        "random": _random(tried),
        "regret": {
            "right": tried.after[oracle].right - mine.right if mine and oracle else None,
            "mae": None if mine is None or mine.mae is None or best is None else rounded(mine.mae - best),
        },
    }


def _pick(tried: Tried, measurement: str | None) -> dict[str, Any] | None:
    """What one choice gave: outcome, realised gain, and the gain that was expected of it."""
    if measurement is None or measurement not in tried.after:
        return None
    outcome, expected = tried.after[measurement], tried.expected.get(measurement)
    return {
        "measurement": measurement,
        **_plain(outcome),
        "gain": outcome.right - tried.before.right,
        "expected_gain": None if expected is None else rounded(expected.accuracy),
    }


def _random(tried: Tried) -> dict[str, Any] | None:
    """The mean over the menu: what a uniform draw gives on average."""
    if not tried.after:
        return None
    outcomes = list(tried.after.values())
    errors = [o.mae for o in outcomes if o.mae is not None]
    mae = rounded(math.fsum(errors) / len(errors)) if errors else None
    return {"right": rounded(sum(o.right for o in outcomes) / len(outcomes)), "mae": mae}


def _plain(outcome: Outcome) -> dict[str, Any]:
    return {"right": outcome.right, "mae": rounded(outcome.mae)}


def _plain_worth(expected: Worth | None) -> dict[str, Any]:
    if expected is None:
        return {"information": None, "accuracy": None}
    return {"information": rounded(expected.information), "accuracy": rounded(expected.accuracy)}


def _large(value: float | None) -> float:
    return math.inf if value is None else value

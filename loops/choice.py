"""How well the first measurement of each case was chosen: every menu entry is tried on the sealed observations.

For one entry, "right" is the number of readouts (all of them, the measured one too) whose class is right after the
adapter was given that one observation, and "mae" the mean absolute error. The oracle takes the most right, then the
smallest error, then the first id. Nothing of this is known while a run goes on.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evidence.contracts import Adapter, AdapterInputs, Joint, Measurement, Prediction
from evidence.errors import ConfigError, ContractError
from evidence.registry import ADAPTERS
from loops.cells import Batch
from loops.choice_rows import CHOOSERS, COLUMNS, GAINS, Chosen, Tried
from loops.config import Component, build
from loops.information import Worth, expected_noise, joint_posterior, worth
from loops.opened import Asked, Case, Truth
from loops.policies import best_for_cost
from loops.prepare import affordable
from loops.ways import Way
from scoring.metrics import Array, rounded, rounded_all


class Choices:
    """The choice of every cell with a simulator; batches of cells are added in the order of the case file.

    A case is tried once; its repeats with the same first measurement have the same row.
    """

    def __init__(self, adapter: Adapter, name: str, cost: float | None):
        self._adapter, self._name, self._cost = adapter, name, cost
        self._menu: tuple[Asked, Sequence[Measurement]] | None = None
        self._case: Case | None = None
        self._tried: Tried | None = None
        self._rows: dict[str | None, Chosen] = {}
        self._numbers: list[Array] = []

    def add(self, batch: Batch) -> list[Chosen] | None:
        """Count some cells. The row of each of their ways; None where there is no simulator."""
        chosen = [self._chosen(way, way.inputs) for way in batch.ways if way.inputs is not None]
        if not chosen:
            return None
        numbers = rounded_all(np.array([row.numbers for row in chosen]).ravel())
        self._numbers.append(numbers.reshape(-1, len(COLUMNS))[batch.way])
        return chosen

    def _chosen(self, way: Way, inputs: AdapterInputs) -> Chosen:
        if self._case is not way.case or self._tried is None:
            self._case, self._rows = way.case, {}
            self._tried = _try(way, inputs, self._adapter, self._name, self._affordable(way.case.asked))
        first = way.measured[0] if way.measured else None
        if first not in self._rows:
            self._rows[first] = Chosen(way.case, first, self._tried)
        return self._rows[first]

    def _affordable(self, asked: Asked) -> Sequence[Measurement]:
        if self._menu is None or self._menu[0] is not asked:
            self._menu = asked, [asked.entries[m] for m in affordable([], asked.menu, self._cost)]
        return self._menu[1]

    def summary(self) -> dict[str, Any] | None:
        """Means over cells: accuracy and error after each way of choosing, regrets, expected and realised gain."""
        return _summarise(np.concatenate(self._numbers)) if self._numbers else None


def _summarise(table: Array) -> dict[str, Any]:
    columns = dict(zip(COLUMNS, table.T, strict=True))
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
    expected, gain = (columns[way, key] for key in GAINS)
    return {"expected": _mean(expected), "realised": _mean(gain[~np.isnan(expected)])}


def _sum(values: Array) -> float:
    """In the order of the cells, so that the same archive gives the same digits."""
    return float(sum(values.tolist()))


def _mean(values: Array) -> float | None:
    known = values[~np.isnan(values)].tolist()
    return rounded(math.fsum(known) / len(known)) if known else None


def _try(way: Way, inputs: AdapterInputs, adapter: Adapter, name: str, menu: Sequence[Measurement]) -> Tried:
    sealed = {o.measurement: o for o in way.sealed}
    alone = {way.measured[0]: way.adapted} if len(way.measured) == 1 else {}  # the loop has tried it
    after = [alone[m.id] if m.id in alone else adapter.calibrate(inputs, [sealed[m.id]]) for m in menu]
    right, mae = _outcomes(way.case.asked, way.truth, [adapter.calibrate(inputs, []), *after])
    ids, found, worths = [m.id for m in menu], _joint(inputs, adapter, name), list[Worth]()
    if found is not None:
        noise = expected_noise(inputs)
        worths = [worth(found[0], way.case.asked.readouts, m.readout, noise) for m in menu]
    least = min([(-r, error, m) for r, error, m in zip(right[1:], mae[1:], ids, strict=True)], default=None)
    picks = {
        "oracle": None if least is None else least[2],
        "eig": _best(menu, ids, [w.information for w in worths]),
        "eag": _best(menu, ids, [w.accuracy for w in worths]),
    }
    return Tried(tuple(ids), right, mae, worths, None if found is None else found[1], picks)


def _outcomes(
    asked: Asked, truth: Sequence[Truth], made: Sequence[tuple[Prediction, ...]]
) -> tuple[list[int], list[float]]:
    """Readouts right and mean absolute error of each of several predictions of all readouts, which are numeric."""
    n, times = len(truth), len(made)
    if set(map(len, made)) != {n}:
        raise ContractError(f"adapter: expected predictions of {n} readouts, got {sorted(set(map(len, made)))}")
    decided, means = asked.decide(list(itertools.chain.from_iterable(made)))
    right = list(map(operator.eq, decided, [t.label for t in truth] * times))
    values = [t.value for t in truth if t.value is not None]
    errors, starts = list(map(abs, map(operator.sub, means, values * times))), range(0, times * n, n)
    return [sum(right[k : k + n]) for k in starts], [math.fsum(errors[k : k + n]) / n for k in starts]


def _joint(inputs: AdapterInputs, adapter: Adapter, name: str) -> tuple[Joint, str] | None:
    """The adapter's joint posterior before any measurement, else that of the gaussian adapter, and whose it is."""
    own = joint_posterior(adapter, inputs, [])
    if own is not None:
        return own, name
    if not inputs.training:
        return None
    try:
        joint = joint_posterior(_gaussian(), inputs, [])
    except ConfigError:  # too few training perturbations
        return None
    return None if joint is None else (joint, "gaussian")


@functools.cache
def _gaussian() -> Adapter:
    adapter: Adapter = build(ADAPTERS, Component(name="gaussian"), "adapter 'gaussian'")
    return adapter


def _best(menu: Sequence[Measurement], ids: Sequence[str], gains: Sequence[float]) -> str | None:
    return best_for_cost(menu, dict(zip(ids, gains, strict=True))) if gains else None

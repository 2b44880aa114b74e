"""How well the first measurement of each case was chosen: every menu entry is tried on the sealed observations.

For one entry, "right" is the number of readouts (all of them, the measured one too) whose class is right after the
adapter was given that one observation, and "mae" the mean absolute error. The oracle takes the most right, then the
smallest error, then the first id. Nothing of this is known while a run goes on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from evidence.contracts import Adapter, Joint, Measurement, Prediction
from evidence.errors import ConfigError
from evidence.registry import ADAPTERS
from loops.cells import Cell
from loops.config import Component, build
from loops.information import Worth, expected_noise, joint_posterior, worth
from loops.policies import best_for_cost
from loops.prepare import affordable
from scoring.metrics import rounded

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


def choice_rows(cells: Sequence[Cell], adapter: Adapter, name: str, cost: float | None) -> list[dict[str, Any]]:
    """One row for each cell with a simulator, in their order; see docs/scoring.md for its keys."""
    tried: dict[str, Tried] = {}
    rows = []
    for cell in cells:
        if cell.inputs is None:
            continue
        if cell.case.id not in tried:
            tried[cell.case.id] = _try(cell, adapter, name, cost)
        rows.append(_row(cell, tried[cell.case.id]))
    return rows


def summarise(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Means over cells: accuracy and error after each way of choosing, regrets, expected and realised gain."""
    if not rows:
        return None
    readouts = sum(row["n_readouts"] for row in rows)
    ways: dict[str, Any] = {
        "before": {"accuracy": rounded(sum(r["before"]["right"] for r in rows) / readouts), "mae": _mae(rows, "before")}
    }
    for way in (*CHOOSERS, "random"):
        known = [row for row in rows if row[way] is not None]
        n = sum(row["n_readouts"] for row in known)
        ways[way] = {
            "n_cells": len(known),
            "accuracy": rounded(sum(row[way]["right"] for row in known) / n) if n else None,
            "mae": _mae(known, way),
        }
    return {
        "n_cells": len(rows),
        "ways": ways,
        "regret_right": _mean([row["regret"]["right"] for row in rows]),
        "regret_mae": _mean([row["regret"]["mae"] for row in rows]),
        "gain": {way: _gains(rows, way) for way in CHOOSERS},
    }


def _try(cell: Cell, adapter: Adapter, name: str, cost: float | None) -> Tried:
    ids = affordable([], cell.case, cost)
    menu = [cell.case.measurement(m) for m in ids]
    sealed = {o.measurement: o for o in cell.sealed}
    assert cell.inputs is not None  # noqa: S101 - only cells with a simulator come here
    after = {m: _outcome(cell, adapter.calibrate(cell.inputs, [sealed[m]])) for m in ids}
    found = _joint(cell, adapter, name)
    noise = expected_noise(cell.inputs)
    expected = {} if found is None else {m.id: worth(found[0], cell.case.readouts, m.readout, noise) for m in menu}
    picks = {
        "oracle": min(ids, key=lambda m: (-after[m].right, _large(after[m].mae), m), default=None),
        "eig": _best(menu, expected, lambda w: w.information),
        "eag": _best(menu, expected, lambda w: w.accuracy),
    }
    before = _outcome(cell, adapter.calibrate(cell.inputs, []))
    return Tried(before, after, expected, None if found is None else found[1], picks)


def _joint(cell: Cell, adapter: Adapter, name: str) -> tuple[Joint, str] | None:
    """The adapter's joint posterior before any measurement, else that of the gaussian adapter, and whose it is."""
    own = joint_posterior(adapter, cell.inputs, [])
    if own is not None:
        return own, name
    gaussian = build(ADAPTERS, Component(name="gaussian"), "adapter 'gaussian'")
    try:
        joint = joint_posterior(gaussian, cell.inputs, [])
    except ConfigError:  # too few training perturbations
        return None
    return None if joint is None else (joint, "gaussian")


def _best(menu: Sequence[Measurement], expected: Mapping[str, Worth], of: Callable[[Worth], float]) -> str | None:
    return best_for_cost(menu, {k: of(w) for k, w in expected.items()}) if expected else None


def _outcome(cell: Cell, predictions: Sequence[Prediction]) -> Outcome:
    right, errors = 0, []
    for readout, truth, prediction in zip(cell.case.readouts, cell.truth, predictions, strict=True):
        right += readout.decide(prediction) == truth.label
        if truth.value is not None:
            errors.append(abs(prediction.mean - truth.value))
    return Outcome(right, math.fsum(errors) / len(errors) if errors else None)


def _row(cell: Cell, tried: Tried) -> dict[str, Any]:
    chosen = cell.measured[0] if cell.measured else None
    picks = {"chosen": chosen, **tried.picks}
    best = min((o.mae for o in tried.after.values() if o.mae is not None), default=None)
    mine = tried.after.get(chosen) if chosen else None
    oracle = picks["oracle"]
    return {
        "case": cell.case.id,
        "repeat": cell.repeat,
        "n_readouts": len(cell.case.readouts),
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
    return {
        "right": rounded(sum(o.right for o in outcomes) / len(outcomes)),
        "mae": _mean([o.mae for o in outcomes]),
    }


def _plain(outcome: Outcome) -> dict[str, Any]:
    return {"right": outcome.right, "mae": rounded(outcome.mae)}


def _plain_worth(expected: Worth | None) -> dict[str, Any]:
    if expected is None:
        return {"information": None, "accuracy": None}
    return {"information": rounded(expected.information), "accuracy": rounded(expected.accuracy)}


def _gains(rows: Sequence[Mapping[str, Any]], way: str) -> dict[str, Any]:
    """Expected and realised gain in readouts right, over the cells where both are known."""
    known = [row[way] for row in rows if row[way] is not None and row[way]["expected_gain"] is not None]
    return {"expected": _mean([k["expected_gain"] for k in known]), "realised": _mean([k["gain"] for k in known])}


def _mae(rows: Sequence[Mapping[str, Any]], way: str) -> float | None:
    return _mean([row[way]["mae"] for row in rows])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return rounded(math.fsum(known) / len(known)) if known else None


def _large(value: float | None) -> float:
    return math.inf if value is None else value

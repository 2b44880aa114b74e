"""Refitted predictions for every set of measurements that a case can end with, made before the first model call."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from evidence.checks import check_predictions
from evidence.contracts import Case, Observation, Refit, Simulator
from evidence.errors import ConfigError
from loops.config import Budget

MAX_SETS = 500
"""Sets of measurements a case may have: each is one refit."""


def refit_menu(simulator: Simulator, case: Case, sealed: Sequence[Observation], budget: Budget) -> tuple[Refit, ...]:
    """The simulator refitted on every set of usable menu entries that the budget pays.

    Raises ConfigError for a simulator without `refit`, and for more than MAX_SETS sets.
    """
    refit: Any = getattr(simulator, "refit", None)
    if refit is None:
        raise ConfigError(
            f"adapter 'refit' needs a simulator that can be updated on a measurement; {type(simulator).__name__} "
            "cannot. Use adapter 'gaussian', 'affine' or 'local'"
        )
    ids = tuple(r.id for r in case.readouts)
    usable = {o.measurement: o for o in sealed if o.informs(ids)}
    sets = list(itertools.islice(_affordable_sets(case, sorted(usable), budget), MAX_SETS + 1))
    if len(sets) > MAX_SETS:
        raise ConfigError(
            f"adapter 'refit': {budget.measurements} measurements from a menu of {len(usable)} are more than "
            f"{MAX_SETS} sets to refit on; lower budget.measurements or set budget.cost"
        )
    made = []
    for measurements in sets:
        predictions = refit(case.perturbation, ids, [usable[m] for m in measurements])
        check_predictions(f"simulator refitted on {', '.join(measurements)}", ids, predictions)
        made.append(Refit(measurements=measurements, predictions=predictions))
    return tuple(made)


def _affordable_sets(case: Case, usable: Sequence[str], budget: Budget) -> Iterator[tuple[str, ...]]:
    cost = {m.id: m.cost for m in case.menu}
    for size in range(1, min(budget.measurements, len(usable)) + 1):
        for chosen in itertools.combinations(usable, size):
            if budget.cost is None or math.fsum(cost[m] for m in chosen) <= budget.cost:
                yield chosen

"""Fine-tuning a trained GEARS ensemble on measured program changes of one perturbation.

Each member's weights are moved by gradient steps until every measured readout is predicted within its standard error
(the discrepancy principle, Morozov 1966), or for a fixed number of steps. The stored members are not changed.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from evidence.conditions import Condition
from evidence.values import derive_seed
from simulators.gears import compat
from simulators.gears.model import Gears, mean_effects
from simulators.gears.training import Member

STEPS, RATE = 60, 1e-3
"""Largest number of Adam steps, and their rate: that of GEARS' own training."""
SMALLEST_ERROR = 1e-4
"""Standard error, in log1p units, that an exact measurement counts as."""


class Goal(NamedTuple):
    """What was measured. A readout is sum over conditions and genes of signs[c] * change[c, g] * weights[k, g].

    signs: (n_conditions,). weights: (n_measured, n_genes). value, se: (n_measured,), constants already taken out.
    """

    signs: NDArray[np.float64]
    weights: NDArray[np.float64]
    value: NDArray[np.float64]
    se: NDArray[np.float64]


def refitted_changes(gears: Gears, conditions: Sequence[Condition], goal: Goal) -> NDArray[np.float64]:
    """(n_members, n_conditions, n_genes) changes predicted after fine-tuning; without a goal those of `predict`."""
    targets = gears.targets(conditions)
    return np.stack([_refitted(member, targets, goal) for member in gears.members])


def _refitted(member: Member, targets: list[list[int]], goal: Goal) -> NDArray[np.float64]:
    network = copy.deepcopy(member.network).eval()
    n_genes = len(member.facts.genes)
    signs, weights, value = (torch.from_numpy(x).float() for x in (goal.signs, goal.weights, goal.value))
    error = torch.from_numpy(np.maximum(goal.se, SMALLEST_ERROR)).float()
    optimiser = torch.optim.Adam(network.parameters(), lr=RATE)
    with compat.quiet(), compat.seeded(derive_seed(member.facts.seed, "refit"), member.facts.options.threads):
        for _ in range(STEPS if len(goal.value) else 0):
            change = mean_effects(network, targets, n_genes).float()
            miss = (weights @ (signs @ change) - value) / error
            if bool((miss.abs() <= 1).all()):
                break
            optimiser.zero_grad()
            miss.square().sum().backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        with torch.no_grad():
            return np.asarray(mean_effects(network, targets, n_genes).numpy(), dtype=np.float64)

"""Counterfactual prediction: control cells decoded under a perturbation. No treated cell is ever an input."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from evidence.conditions import Condition
from evidence.errors import DataError
from simulators.cpa import compat
from simulators.cpa.facts import CONTROL_DOSE, MAX_TARGETS, Member


def predict_change(member: Member, conditions: Sequence[Condition]) -> NDArray[np.float64]:
    """(n_conditions, n_genes): counterfactual expression of control cells minus that of the same cells as control.

    No treated cell is an input. Both terms come from the decoder, so what it reconstructs badly cancels.
    """
    position = {drug: number for number, drug in enumerate(member.facts.drugs)}
    unknown = sorted({t for c in conditions for t in c.targets if t not in position})
    if unknown:
        raise DataError(f"CPA has no embedding of {', '.join(unknown)}: in no training condition")
    before = _decode(member, [1, 0], [CONTROL_DOSE, 0.0])
    rows = [
        _decode(
            member,
            [position[t] + 2 for t in c.targets] + [0] * (MAX_TARGETS - len(c.targets)),
            [member.facts.doses[position[t]] for t in c.targets] + [0.0] * (MAX_TARGETS - len(c.targets)),
        )
        - before
        if c.targets
        else np.zeros_like(before)
        for c in conditions
    ]
    return np.array(rows).reshape(len(rows), len(member.facts.genes))


def _decode(member: Member, perts: list[int], doses: list[float]) -> NDArray[np.float64]:
    """(n_genes,) mean decoded expression of the control cells under one perturbation."""
    x = torch.from_numpy(member.control)
    with torch.no_grad(), compat.seeded(0, member.facts.options.threads):
        inferred = member.network.inference(
            x=x,
            perts={"true": torch.tensor([perts] * len(x))},
            perts_doses={"true": torch.tensor([doses] * len(x), dtype=torch.float32)},
            covars_dict={},
        )
        decoded = member.network.generative(z=inferred["z"])["px"].loc
    return np.asarray(decoded.numpy().mean(axis=0, dtype=np.float64))

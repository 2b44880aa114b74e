"""Counterfactual prediction: control cells decoded under a perturbation. No treated cell is ever an input.

Why many predictions are cheap. A cell's basal state does not depend on the perturbation: it is encoded once. Upstream's
mean expression is linear in the decoder's last hidden layer, so the layer is averaged over cells and mapped to genes
once, and the decoder's variances and samples, which nothing here reads, are not made.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from evidence.conditions import Condition
from evidence.errors import DataError
from simulators.cpa import compat
from simulators.cpa.facts import CONTROL_DOSE, MAX_TARGETS, Member

_PADDING, _CONTROL = 0, 1
"""Upstream's numbers of no drug and of the control; drugs follow."""


def predict_change(member: Member, conditions: Sequence[Condition]) -> NDArray[np.float64]:
    """(n_conditions, n_genes): counterfactual expression of control cells minus that of the same cells as control.

    No treated cell is an input. Both terms come from the decoder, so what it reconstructs badly cancels.
    """
    perts, doses = _asked(member, conditions)
    with torch.no_grad(), compat.seeded(0, member.facts.options.threads):
        return _changes(_decode(member, perts, doses), conditions)


def upstream_change(member: Member, conditions: Sequence[Condition]) -> NDArray[np.float64]:
    """What `predict_change` gives, by upstream's own passes over all control cells, one for each condition."""
    x = torch.from_numpy(member.control)
    expression = []
    for pert, dose in zip(*_asked(member, conditions), strict=True):
        with torch.no_grad(), compat.seeded(0, member.facts.options.threads):
            inferred = member.network.inference(
                x=x,
                perts={"true": pert.expand(len(x), -1)},
                perts_doses={"true": dose.expand(len(x), -1)},
                covars_dict={},
            )
            cells = member.network.generative(z=inferred["z"])["px"].loc
        expression.append(cells.numpy().mean(axis=0, dtype=np.float64))
    return _changes(np.array(expression), conditions)


def _asked(member: Member, conditions: Sequence[Condition]) -> tuple[torch.Tensor, torch.Tensor]:
    """Upstream's numbers of the drugs and their doses, (1 + n_conditions, 2) each; the control first."""
    position = {drug: number for number, drug in enumerate(member.facts.drugs)}
    unknown = sorted({t for c in conditions for t in c.targets if t not in position})
    if unknown:
        raise DataError(f"CPA has no embedding of {', '.join(unknown)}: in no training condition")
    numbers, doses = [[_CONTROL, _PADDING]], [[CONTROL_DOSE, 0.0]]
    for condition in conditions:
        drugs, free = [position[t] for t in condition.targets], MAX_TARGETS - len(condition.targets)
        numbers.append([drug + _CONTROL + 1 for drug in drugs] + [_PADDING] * free)
        doses.append([member.facts.doses[drug] for drug in drugs] + [0.0] * free)
    return torch.tensor(numbers), torch.tensor(doses, dtype=torch.float32)


def _changes(expression: NDArray[np.float64], conditions: Sequence[Condition]) -> NDArray[np.float64]:
    control = np.array([condition.control for condition in conditions], dtype=bool)
    return np.where(control[:, None], 0.0, expression[1:] - expression[0])


def _decode(member: Member, perts: torch.Tensor, doses: torch.Tensor) -> NDArray[np.float64]:
    """(n_perturbations, n_genes) mean decoded expression of the control cells under each."""
    network, decoder = member.network, member.network.decoder
    encoded = network.encoder(torch.from_numpy(member.control))
    basal = encoded[1] if network.variational else encoded
    shifts = network.pert_network(perts, doses)
    hidden = torch.stack([decoder.encoder(basal + shift).double().mean(dim=0) for shift in shifts])
    mean = decoder.mean_encoder
    return np.asarray((hidden @ mean.weight.double().T + mean.bias.double()).numpy())

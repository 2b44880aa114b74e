"""CPA members on disk (see simulators.members): the network's state and the control cells, as tensors only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from simulators import members
from simulators.cpa import compat
from simulators.cpa.facts import Member, MemberFacts
from simulators.cpa.training import hyper
from simulators.members import member_folder

__all__ = ["load_member", "member_folder", "save_member"]

_Description = members.Description[MemberFacts]


def save_member(member: Member, folder: Path) -> None:
    """Write a member; the folder appears whole or not at all. A folder that is there already is left alone."""

    def write(path: Path) -> None:
        state = {name: value.detach().cpu() for name, value in member.network.state_dict().items()}
        torch.save({"state": state, "control": torch.from_numpy(member.control.copy())}, path)

    members.save(folder, _Description, member.facts, member.seconds, write)


def load_member(folder: Path) -> Member:
    """Read a member. Raises DataError if a file was changed or another cpa-tools made it. Nothing in it is run."""
    description = members.read(folder, _Description)
    facts = description.facts
    members.check_version(folder, facts, compat.PACKAGE, compat.VERSION)
    tensors = torch.load(folder / members.WEIGHTS, map_location="cpu", weights_only=True)
    return Member(facts, _network(facts, tensors["state"]), tensors["control"].numpy(), description.training_seconds)


def _network(facts: MemberFacts, state: dict[str, Any]) -> Any:
    upstream = compat.load()
    with compat.quiet(), compat.seeded(0), compat.fresh(upstream):
        network = upstream.CPAModule(
            n_genes=len(facts.genes), n_perts=len(facts.drugs) + 2, covars_encoder={}, **hyper(facts)
        ).float()
    network.load_state_dict(state)
    return network.eval()

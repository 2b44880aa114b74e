"""GEARS members on disk (see simulators.members): the network's state, its graphs and the control cells, as tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse

from simulators import members
from simulators.gears import compat
from simulators.gears.training import Member, MemberFacts
from simulators.members import member_folder

__all__ = ["load_member", "member_folder", "save_member"]

_Description = members.Description[MemberFacts]


def save_member(member: Member, folder: Path) -> None:
    """Write a member; the folder appears whole or not at all. A folder that is there already is left alone."""
    members.save(folder, _Description, member.facts, member.seconds, lambda path: torch.save(_tensors(member), path))


def load_member(folder: Path) -> Member:
    """Read a member. Raises DataError if a file was changed or another cell-gears made it. Nothing in it is run."""
    facts = members.read(folder, _Description).facts
    members.check_version(folder, facts, compat.PACKAGE, compat.VERSION)
    tensors = torch.load(folder / members.WEIGHTS, map_location="cpu", weights_only=True)
    return Member(facts, _network(facts, tensors), tensors["graphs"], _control(tensors, facts), None, None)


def _tensors(member: Member) -> dict[str, Any]:
    control = member.control
    parts = {"indptr": control.indptr.astype(np.int64), "indices": control.indices.astype(np.int64)}
    return {
        "state": {name: value.detach().cpu() for name, value in member.network.state_dict().items()},
        "graphs": member.graphs,
        "control": {name: torch.from_numpy(a.copy()) for name, a in (parts | {"data": control.data}).items()},
    }


def _control(tensors: dict[str, Any], facts: MemberFacts) -> sparse.csr_matrix:
    data, indices, indptr = (tensors["control"][name].numpy() for name in ("data", "indices", "indptr"))
    return sparse.csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, len(facts.genes)))


def _network(facts: MemberFacts, tensors: dict[str, Any]) -> Any:
    upstream = compat.load()
    options = facts.options
    config = {
        "num_genes": len(facts.genes),
        "num_perts": len(facts.graph_genes),
        "hidden_size": options.hidden_size,
        "decoder_hidden_size": options.decoder_hidden_size,
        "num_go_gnn_layers": 1,
        "num_gene_gnn_layers": 1,
        "uncertainty": False,
        "no_perturb": False,
        "device": "cpu",
        **tensors["graphs"],
    }
    with compat.quiet(), compat.seeded(0):
        network = upstream.Model(config)
    network.load_state_dict(tensors["state"])
    return network.eval()

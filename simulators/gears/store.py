"""GEARS members on disk: `weights.pt` (tensors only) and `description.json`, in a folder named by seed and hash."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import ValidationError
from scipy import sparse

from evidence.errors import DataError
from evidence.files import file_sha256
from evidence.values import NonNegative, Value, canonical_json
from simulators.gears import compat
from simulators.gears.training import Member, MemberFacts


class _Description(Value):
    format: Literal[1] = 1
    facts: MemberFacts
    weights_sha256: str
    training_seconds: NonNegative | None = None


def member_folder(out: Path, facts: MemberFacts) -> Path:
    """Where a member is kept."""
    return out / f"seed{facts.seed}-{facts.key[:16]}"


def save_member(member: Member, folder: Path) -> None:
    """Write a member; the folder appears whole or not at all. A folder that is there already is left alone."""
    if folder.is_dir():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".saving-", dir=folder.parent))
    try:
        torch.save(_tensors(member), work / "weights.pt")
        sha = file_sha256(work / "weights.pt")
        description = _Description(facts=member.facts, weights_sha256=sha, training_seconds=member.seconds)
        (work / "description.json").write_text(canonical_json(description))
        work.replace(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def load_member(folder: Path) -> Member:
    """Read a member. Raises DataError if a file was changed or another cell-gears made it. Nothing in it is run."""
    try:
        description = _Description.model_validate_json((folder / "description.json").read_text())
    except (OSError, ValidationError) as error:
        raise DataError(f"{folder}/description.json cannot be read: {error}") from error
    facts, weights = description.facts, folder / "weights.pt"
    if not weights.is_file() or file_sha256(weights) != description.weights_sha256:
        raise DataError(f"{weights} is not the file that was saved; delete {folder} and train again")
    made_by, ours = facts.versions.get(compat.PACKAGE), compat.VERSION
    if made_by != ours:
        raise DataError(f"{folder} was made with {compat.PACKAGE} {made_by}; expected {ours}: train again")
    tensors = torch.load(weights, map_location="cpu", weights_only=True)
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

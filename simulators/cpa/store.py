"""CPA members on disk: `weights.pt` (tensors only) and `description.json`, in a folder named by seed and hash."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import ValidationError

from evidence.errors import DataError
from evidence.values import NonNegative, Value, canonical_json
from simulators.cpa import compat
from simulators.cpa.facts import Member, MemberFacts
from simulators.cpa.training import hyper


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
        state = {name: value.detach().cpu() for name, value in member.network.state_dict().items()}
        torch.save({"state": state, "control": torch.from_numpy(member.control.copy())}, work / "weights.pt")
        sha = _file_sha256(work / "weights.pt")
        description = _Description(facts=member.facts, weights_sha256=sha, training_seconds=member.seconds)
        (work / "description.json").write_text(canonical_json(description))
        work.replace(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def load_member(folder: Path) -> Member:
    """Read a member. Raises DataError if a file was changed or another cpa-tools made it. Nothing in it is run."""
    try:
        description = _Description.model_validate_json((folder / "description.json").read_text())
    except (OSError, ValidationError) as error:
        raise DataError(f"{folder}/description.json cannot be read: {error}") from error
    facts, weights = description.facts, folder / "weights.pt"
    if not weights.is_file() or _file_sha256(weights) != description.weights_sha256:
        raise DataError(f"{weights} is not the file that was saved; delete {folder} and train again")
    made_by = facts.versions.get(compat.PACKAGE)
    if made_by != compat.VERSION:
        raise DataError(f"{folder} was made with {compat.PACKAGE} {made_by}; expected {compat.VERSION}: train again")
    tensors = torch.load(weights, map_location="cpu", weights_only=True)
    return Member(facts, _network(facts, tensors["state"]), tensors["control"].numpy(), description.training_seconds)


def _network(facts: MemberFacts, state: dict[str, Any]) -> Any:
    upstream = compat.load()
    with compat.quiet(), compat.seeded(0), compat.fresh(upstream):
        network = upstream.CPAModule(
            n_genes=len(facts.genes), n_perts=len(facts.drugs) + 2, covars_encoder={}, **hyper(facts)
        ).float()
    network.load_state_dict(state)
    return network.eval()


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

"""Trained members of an ensemble on disk: `weights.pt` and `description.json`, in a folder named by seed and hash.

How tensors are written and read is each simulator's own; this module needs no torch.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar

from pydantic import ValidationError

from evidence.errors import DataError
from evidence.files import file_sha256
from evidence.values import NonNegative, Value, canonical_json


class Facts(Protocol):
    """What a simulator knows of a member: at least its seed, the hash of everything else, and the versions."""

    @property
    def seed(self) -> int:
        """Seed of the member."""
        ...

    @property
    def key(self) -> str:
        """Hash of what decides the member."""
        ...

    @property
    def versions(self) -> dict[str, str]:
        """Package -> version."""
        ...


F = TypeVar("F", bound=Value)
WEIGHTS = "weights.pt"


class Description(Value, Generic[F]):
    """description.json: the facts, and the hash of the weights beside it."""

    format: Literal[1] = 1
    facts: F
    weights_sha256: str
    training_seconds: NonNegative | None = None


def member_folder(out: Path, facts: Facts) -> Path:
    """Where a member is kept."""
    return out / f"seed{facts.seed}-{facts.key[:16]}"


def save(
    folder: Path, kind: type[Description[F]], facts: F, seconds: float | None, write: Callable[[Path], None]
) -> None:
    """Write a member; the folder appears whole or not at all. A folder that is there already is left alone."""
    if folder.is_dir():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".saving-", dir=folder.parent))
    try:
        write(work / WEIGHTS)
        sha = file_sha256(work / WEIGHTS)
        description = kind(facts=facts, weights_sha256=sha, training_seconds=seconds)
        (work / "description.json").write_text(canonical_json(description))
        try:
            work.replace(folder)
        except OSError:
            if not folder.is_dir():  # another process may have been first
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def read(folder: Path, kind: type[Description[F]]) -> Description[F]:
    """Read a description. Raises DataError if it cannot be read or the weights are not those that were saved."""
    try:
        description = kind.model_validate_json((folder / "description.json").read_text())
    except (OSError, ValidationError) as error:
        raise DataError(f"{folder}/description.json cannot be read: {error}") from error
    weights = folder / WEIGHTS
    if not weights.is_file() or file_sha256(weights) != description.weights_sha256:
        raise DataError(f"{weights} is not the file that was saved; delete {folder} and train again")
    return description


def check_version(folder: Path, facts: Facts, package: str, expected: str) -> None:
    """Raise DataError unless this version of the package made the member."""
    made_by = facts.versions.get(package)
    if made_by != expected:
        raise DataError(f"{folder} was made with {package} {made_by}; expected {expected}: train again")

"""Writing files whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from evidence.errors import DataError, VcloopError


def file_sha256(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomic(path: Path, data: bytes, *, error: type[VcloopError] = DataError) -> None:
    """Write a whole file or nothing: a temporary file in the same folder, synced and renamed over the old one.

    Raises `error` naming the path where the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as fault:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise error(
            f"cannot write {path}: {fault.strerror or fault}; free some space or choose another folder"
        ) from fault

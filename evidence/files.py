"""Writing files whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path

from evidence.errors import DataError, VcloopError


def file_sha256(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomic(path: Path, data: bytes, *, error: type[VcloopError] = DataError) -> None:
    """Write a whole file or nothing, as `stream_atomic` does. Raises `error` where the file cannot be written."""
    with stream_atomic(path, error=error) as file:
        file.buffer.write(data)


def forget_unfinished(folder: Path) -> None:
    """Remove what processes of this machine that were killed while they wrote into a folder have left there."""
    for left in folder.glob(".*.tmp"):
        pid = left.name.split(".")[-2]
        if pid.isdigit() and not _running(int(pid)):
            with contextlib.suppress(OSError):
                left.unlink()


def _running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


@contextlib.contextmanager
def stream_atomic(path: Path, *, error: type[VcloopError] = DataError) -> Iterator[TextIOWrapper]:
    """Write a whole file bit by bit, or nothing: a temporary file in the same folder that takes the old one's place.

    The block writes UTF-8 text. When it ends the file is synced and renamed; when it raises the old file stays.
    Raises `error` naming the path where the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8", newline="") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as fault:
        raise error(
            f"cannot write {path}: {fault.strerror or fault}; free some space or choose another folder"
        ) from fault
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()

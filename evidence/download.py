"""Downloads that resume, verify and appear whole: for the original data sets that no package carries.

A cut connection is continued where it stopped; a finished file is checked by size and sha256 before it takes its name;
what fails the check is removed and never used. Archives are unpacked by name only, and nothing leaves the folder.
"""

from __future__ import annotations

import shutil
import tarfile
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import IO

import httpx

from evidence.errors import DataError
from evidence.files import file_sha256
from evidence.remote import Remote

Say = Callable[[str], None]
ATTEMPTS = 5
CHUNK = 1 << 20
TIMEOUT_S = 60.0


def download(remote: Remote, folder: Path, *, say: Say = lambda text: None, wait_s: float = 1.0) -> Path:
    """Bring a file into a folder and return its path; continues a partial download that is there.

    Raises DataError where the server refuses, keeps cutting the connection, or serves another file.
    """
    target = folder / remote.file
    if target.is_file():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    fault = ""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _fetch(remote, part, say)
            break
        except (httpx.TransportError, _Cut) as error:
            fault = str(error) or type(error).__name__
            say(f"{remote.file}: {fault}; attempt {attempt} of {ATTEMPTS}, {_size(part)} bytes are here")
            if attempt < ATTEMPTS:
                time.sleep(wait_s * 2 ** (attempt - 1))
    else:
        raise DataError(f"{remote.url}: no whole file after {ATTEMPTS} attempts ({fault}); run it again to go on")
    _verify(remote, part)
    part.replace(target)
    return target


class _Cut(Exception):
    """The connection ended before the file did."""


def _fetch(remote: Remote, part: Path, say: Say) -> None:
    have = _size(part)
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
    with httpx.stream("GET", remote.url, headers=headers, follow_redirects=True, timeout=TIMEOUT_S) as answer:
        if answer.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink()
            raise _Cut("the partial file was not of this file; started again")
        if answer.status_code >= 400:
            raise DataError(f"{remote.url}: the server answered {answer.status_code} {answer.reason_phrase}")
        resumed = answer.status_code == httpx.codes.PARTIAL_CONTENT
        length = answer.headers.get("Content-Length")
        expected = None if length is None else int(length) + (have if resumed else 0)
        say(
            f"{remote.file}: {'going on at' if resumed else 'downloading'} {have if resumed else expected or '?'} bytes"
        )
        with part.open("ab" if resumed else "wb") as file:
            for chunk in answer.iter_raw():  # as it comes: a larger buffer would be lost with the connection
                file.write(chunk)
    if expected is not None and _size(part) < expected:
        raise _Cut(f"the connection was cut at {_size(part)} of {expected} bytes")


def _verify(remote: Remote, part: Path) -> None:
    size = _size(part)
    if remote.size is not None and size != remote.size:
        part.unlink()
        raise DataError(f"{remote.url}: expected {remote.size} bytes, got {size}; nothing was kept")
    found = file_sha256(part)
    if remote.sha256 is not None and found != remote.sha256:
        part.unlink()
        raise DataError(f"{remote.url}: expected a file of sha256 {remote.sha256}, got {found}; nothing was kept")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def unpack(archive: Path, members: Mapping[str, str], folder: Path, *, max_bytes: int = 20 << 30) -> list[Path]:
    """Unpack the named members of a zip or tar archive into a folder, each whole or not at all.

    Raises DataError for an archive that cannot be read, a member that is missing, no plain file, or too large, and for
    a file name that would leave the folder.
    """
    for name in members.values():
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise DataError(f"{archive.name}: {name!r} would leave {folder}")
    try:
        if zipfile.is_zipfile(archive):
            return _unpack_zip(archive, members, folder, max_bytes)
        return _unpack_tar(archive, members, folder, max_bytes)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError) as error:
        raise DataError(f"{archive}: expected a zip or tar archive, got: {error}") from error


def _unpack_zip(archive: Path, members: Mapping[str, str], folder: Path, max_bytes: int) -> list[Path]:
    with zipfile.ZipFile(archive) as opened:
        names = set(opened.namelist())
        made = []
        for member, name in members.items():
            _check_member(archive, member, names, opened.getinfo(member).file_size if member in names else 0, max_bytes)
            with opened.open(member) as source:
                made.append(_write(source, folder / name))
        return made


def _unpack_tar(archive: Path, members: Mapping[str, str], folder: Path, max_bytes: int) -> list[Path]:
    with tarfile.open(archive) as opened:
        names = {info.name for info in opened if info.isreg()}
        made = []
        for member, name in members.items():
            _check_member(archive, member, names, opened.getmember(member).size if member in names else 0, max_bytes)
            source = opened.extractfile(member)
            if source is None:
                raise DataError(f"{archive.name}: {member!r} is no plain file")
            with source:
                made.append(_write(source, folder / name))
        return made


def _check_member(archive: Path, member: str, names: set[str], size: int, max_bytes: int) -> None:
    if member not in names:
        raise DataError(
            f"{archive.name}: expected a member {member!r}, it has {', '.join(sorted(names)[:5]) or 'none'}"
        )
    if size > max_bytes:
        raise DataError(f"{archive.name}: {member!r} has {size} bytes, expected at most {max_bytes}")


def _write(source: IO[bytes], target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    with part.open("wb") as file:
        shutil.copyfileobj(source, file, CHUNK)
    return part.replace(target)

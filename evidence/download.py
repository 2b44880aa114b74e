"""Downloads that resume, are checked, and appear whole or not at all; archives that are unpacked safely.

    download(url, target, sha256=..., size=...)     # target.part while it grows, renamed when it is right
    unpack(archive, folder)                         # into a hidden folder beside it, renamed at the end
    fetch_plates(case_file, folder)                 # the plates of BBBC021 that a case file names, and no other

Nothing here is called at import or by opening a setting.
"""

from __future__ import annotations

import hashlib
import shutil
import stat
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Sequence
from http.client import HTTPException, HTTPResponse
from pathlib import Path, PurePosixPath

from evidence.contracts import CaseFile
from evidence.errors import DataError
from evidence.files import write_atomic

CHUNK = 1 << 20
MAX_UNPACKED = 8 * 1024**3
TIMEOUT_S = 60.0
BBBC021_BASE = "https://data.broadinstitute.org/bbbc/BBBC021/"
BBBC021_TABLES = ("BBBC021_v1_image.csv", "BBBC021_v1_moa.csv")

Say = Callable[[str], None]


def download(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    size: int | None = None,
    attempts: int = 5,
    backoff_s: float = 1.0,
    progress: Say | None = None,
) -> Path:
    """Bring a URL to `target`. Does nothing where a right file is there; a wrong one there is an error, not replaced.

    A cut connection is taken up again where it stopped, `attempts` times in all. Raises DataError if the file cannot
    be had, or is not of the size (bytes) and sha256 expected; a wrong file is removed and never gets the name.
    """
    say = progress or (lambda _line: None)
    _check_url(url)
    if target.is_file():
        _verify(target, url, sha256, size, remove=False)
        say(f"{target.name}: already there")
        return target
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _fetch(url, part, attempts, backoff_s, say)
        _verify(part, url, sha256, size, remove=True)
        part.replace(target)
    except OSError as error:
        raise DataError(f"{url}: cannot write {part}: {error.strerror or error}") from error
    say(f"{target.name}: {target.stat().st_size} bytes")
    return target


class _Cut(Exception):
    """A connection that ended before the file did; never leaves this module."""


def _fetch(url: str, part: Path, attempts: int, backoff_s: float, say: Say) -> None:
    """Grow `part` until the server has no more to give."""
    problem = ""
    for attempt in range(attempts):
        if attempt:
            time.sleep(backoff_s * 2 ** (attempt - 1))
        have = part.stat().st_size if part.is_file() else 0
        if have:
            say(f"{part.name}: going on at byte {have}")
        try:
            _go_on(url, part, have)
        except urllib.error.HTTPError as error:
            if error.code == 416 and have:  # what is there is longer than the file: start again
                part.unlink()
            elif error.code < 500 and error.code not in (408, 429):
                raise DataError(f"{url}: the server answered {error.code} {error.reason}") from error
            problem = f"the server answered {error.code}"
        except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError, _Cut) as error:
            problem = str(error) or type(error).__name__
        else:
            return
    raise DataError(
        f"{url}: not whole after {attempts} attempts ({problem}). What came is kept in {part}; run again to go on"
    )


def _go_on(url: str, part: Path, have: int) -> None:
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})  # noqa: S310 - checked
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:  # noqa: S310 - http or https, see _check_url
        resumed = reply.status == 206 and _start(reply) == have
        total = _total(reply, have if resumed else 0)
        with part.open("ab" if resumed else "wb") as file:
            while chunk := reply.read(CHUNK):
                file.write(chunk)
    got = part.stat().st_size
    if total is not None and got < total:
        raise _Cut(f"the connection was cut at byte {got} of {total}")


def _start(reply: HTTPResponse) -> int:
    """The first byte of a partial reply ("bytes 100-199/200" -> 100), -1 where it does not say."""
    said = reply.headers.get("Content-Range", "").removeprefix("bytes ").split("-")[0]
    return int(said) if said.isdigit() else -1


def _total(reply: HTTPResponse, before: int) -> int | None:
    length = reply.headers.get("Content-Length", "")
    return before + int(length) if length.isdigit() else None


def _verify(path: Path, url: str, sha256: str | None, size: int | None, *, remove: bool) -> None:
    got_size = path.stat().st_size
    problem = "" if size in (None, got_size) else f"expected {size} bytes, got {got_size}"
    if not problem and sha256 is not None:
        with path.open("rb") as file:
            got = hashlib.file_digest(file, "sha256").hexdigest()
        problem = "" if got == sha256 else f"expected sha256 {sha256}, got {got}"
    if problem:
        if remove:
            path.unlink()
        after = "It was removed" if remove else f"{path} was left as it is: move it away to fetch it again"
        raise DataError(f"{url}: {problem}. {after}")


def _check_url(url: str) -> None:
    if not url.startswith(("https://", "http://")):
        raise DataError(f"expected an http or https address, got {url!r}")


# --- archives ----------------------------------------------------------------------------------------------------


def unpack(archive: Path, folder: Path, *, max_bytes: int = MAX_UNPACKED) -> Path:
    """Unpack a zip into a new folder. Raises DataError, and leaves nothing, for anything that is not a plain tree.

    Refused: absolute paths, "..", links, two members of one name, more than `max_bytes` in all, damaged members.
    """
    if folder.exists():
        raise DataError(f"{folder} exists: move it away to unpack {archive.name} again")
    growing = folder.with_name(f".{folder.name}.unpacking")
    shutil.rmtree(growing, ignore_errors=True)
    try:
        with zipfile.ZipFile(archive) as file:
            members = [m for m in file.infolist() if not m.is_dir()]
            _check_members(archive, members, max_bytes)
            for member in members:
                target = growing.joinpath(*_parts(member.filename))
                target.parent.mkdir(parents=True, exist_ok=True)
                with file.open(member) as source, target.open("wb") as sink:
                    shutil.copyfileobj(source, sink, CHUNK)
        growing.replace(folder)
    except (zipfile.BadZipFile, EOFError, OSError, RuntimeError, NotImplementedError) as error:
        raise DataError(f"{archive}: expected a whole zip archive, got: {error}. Fetch it again") from error
    finally:
        shutil.rmtree(growing, ignore_errors=True)
    return folder


def _check_members(archive: Path, members: Sequence[zipfile.ZipInfo], max_bytes: int) -> None:
    names = [m.filename for m in members]
    bad = [n for n in names if not _parts(n)]
    bad += [m.filename for m in members if stat.S_ISLNK(m.external_attr >> 16)]
    bad += sorted({n for n in names if names.count(n) > 1})
    if not members or bad:
        raise DataError(f"{archive}: not unpacked; members that are no plain files: {', '.join(bad[:5]) or 'none'}")
    total = sum(m.file_size for m in members)
    if total > max_bytes:
        raise DataError(f"{archive}: not unpacked; {total} bytes in all, more than {max_bytes}")


def _parts(name: str) -> tuple[str, ...]:
    """The parts of a member's path; empty for one that would leave the folder."""
    path = PurePosixPath(name.replace("\\", "/"))
    unsafe = path.is_absolute() or ".." in path.parts or ":" in name
    return () if unsafe else path.parts


# --- BBBC021 -----------------------------------------------------------------------------------------------------


def plates_of(case_file: CaseFile) -> tuple[str, ...]:
    """The plates that a microscopy case file needs: those of its queries, references and controls."""
    frozen = case_file.frozen
    queries = [q[key] for q in frozen["queries"].values() for key in ("field", "second") if q[key]]
    return tuple(sorted({field.split("/")[0] for field in (*queries, *frozen["pool"], *frozen["controls"])}))


def fetch_plates(
    case_file: CaseFile, folder: Path, *, base: str = BBBC021_BASE, progress: Say | None = None, backoff_s: float = 1.0
) -> tuple[Path, ...]:
    """Bring the tables and the zips of a case file's plates (about 0.8 GB each) into a folder; zips are read as such.

    The source gives no checksums: what came first is written down beside each zip and compared from then on.
    """
    for table in BBBC021_TABLES:
        if not any((folder / name).is_file() for name in (table, f"{table}.gz")):
            download(base + table, folder / table, progress=progress, backoff_s=backoff_s)
    made = []
    for plate in plates_of(case_file):
        target = folder / f"BBBC021_v1_images_{plate}.zip"
        note = target.with_name(target.name + ".sha256")
        known = note.read_text().split()[0] if note.is_file() else None
        download(base + target.name, target, sha256=known, progress=progress, backoff_s=backoff_s)
        _check_zip(target)
        if known is None:
            with target.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            write_atomic(note, f"{digest}  {target.name}\n".encode())
        made.append(target)
    return tuple(made)


def _check_zip(path: Path) -> None:
    """A file that is no zip (a page with an error, say) is removed."""
    if not zipfile.is_zipfile(path):
        path.unlink()
        raise DataError(f"{path.name}: expected a zip, got something else; it was removed. Check the address")

"""The plates of BBBC021 that a case file names, and no other, from their source: about 0.8 GB each.

Nothing here is called by opening a setting. Zips are read as they are; none is unpacked.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

from evidence.bbbc021_tables import Field
from evidence.contracts import CaseFile
from evidence.download import download
from evidence.errors import DataError
from evidence.files import file_sha256, write_atomic
from evidence.remote import Remote

BASE = "https://data.broadinstitute.org/bbbc/BBBC021/"
TABLES = ("BBBC021_v1_image.csv", "BBBC021_v1_moa.csv")
Say = Callable[[str], None]


def plates_of(case_file: CaseFile) -> tuple[str, ...]:
    """The plates that a microscopy case file needs: those of its queries, references and controls."""
    frozen = case_file.frozen
    queries = [q[key] for q in frozen["queries"].values() for key in ("field", "second") if q[key]]
    fields = (*queries, *frozen["pool"], *frozen["controls"])
    return tuple(sorted({Field.plate_of(field) for field in fields}))


def fetch_plates(
    case_file: CaseFile, folder: Path, *, base: str = BASE, say: Say = lambda text: None, wait_s: float = 1.0
) -> tuple[Path, ...]:
    """Bring the tables and the zips of a case file's plates into a folder; partial files are continued.

    The source gives no checksums: the sha256 of what came first is written beside each zip and compared from then on.
    Raises DataError for a plate that cannot be had, is no whole zip, or is another file than before.
    """
    for table in TABLES:
        if not any((folder / name).is_file() for name in (table, f"{table}.gz")):
            download(Remote(base + table, table), folder, say=say, wait_s=wait_s)
    return tuple(_fetch_plate(plate, folder, base, say, wait_s) for plate in plates_of(case_file))


def _fetch_plate(plate: str, folder: Path, base: str, say: Say, wait_s: float) -> Path:
    file = f"BBBC021_v1_images_{plate}.zip"
    note = folder / f"{file}.sha256"
    known = note.read_text().split()[0] if note.is_file() else None
    target = download(Remote(base + file, file, sha256=known), folder, say=say, wait_s=wait_s)
    found = file_sha256(target)
    if known is not None and found != known:
        raise DataError(
            f"{target}: expected sha256 {known}, as first fetched, got {found}. Move it away to fetch it again"
        )
    if not zipfile.is_zipfile(target):
        target.unlink()
        raise DataError(f"{base}{file}: expected a zip, got something else; it was removed. Check the address")
    if known is None:
        write_atomic(note, f"{found}  {file}\n".encode())
    return target

"""Original BBBC021 plates: 16-bit TIFFs in folders or zips, channels paired through the image table.

Each channel file has its own UUID, so a name never says which files belong together; the table does. Its PathName is
Week4/Week4_27481 (one copy has backslashes), the folder on disk and in the zip is Week4_27481/.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evidence.bbbc021 import IMAGE_TABLES, LABEL_COLUMNS, LABELS, SIDE, SourceName, Windows, site_of
from evidence.bbbc021_tables import CHANNELS, Field, JoinReport, folder_of, join_labels, read_rows
from evidence.cell_features import nuclei_centres, require_images
from evidence.errors import DataError

MAX_WINDOWS = 24
MAX_TIFF_BYTES = 64 * 1024 * 1024
META = ("Image_Metadata_Plate_DAPI", "Image_Metadata_Well_DAPI", "Image_Metadata_Compound")


class Files(NamedTuple):
    """The channel files of one field: (folder, file name) in the order of CHANNELS, and its row in the table."""

    row: int
    files: tuple[tuple[str, str], ...]


class Plates:
    """Plates under one or more roots; a plate is a folder named after it, or a zip that holds that folder."""

    name: SourceName = "plates"

    def __init__(
        self, *, roots: Sequence[Path], fields: Sequence[Field], files: Mapping[str, Files], report: JoinReport
    ):
        self.roots = tuple(roots)
        self.fields = tuple(fields)
        self.files = files
        self.report = report

    @classmethod
    def open(cls, folder: Path) -> Plates:
        """Read the tables in a folder; pixels lie in it, in its `plates` or in its `fullfields`."""
        table = next((folder / n for n in IMAGE_TABLES if (folder / n).is_file()), None)
        if table is None or not (folder / LABELS).is_file():
            raise DataError(f"{folder}: expected {' or '.join(IMAGE_TABLES)}, and {LABELS}")
        needed = [f"Image_{kind}_{channel}" for channel in CHANNELS for kind in ("FileName", "PathName")]
        rows = read_rows(table, (*needed, *META, "Image_Metadata_Concentration"))
        labels = read_rows(folder / LABELS, LABEL_COLUMNS)
        joined = join_labels(
            [(r["Image_Metadata_Compound"], r["Image_Metadata_Concentration"]) for r in rows],
            [(r["compound"], r["concentration"], r["moa"]) for r in labels],
        )
        fields, files = [], {}
        for number, (row, treatment) in enumerate(zip(rows, joined.treatments, strict=True), start=1):
            field = Field(row[META[0]], row[META[1]], site_of(row["Image_FileName_DAPI"]), treatment)
            if field.id in files:
                raise DataError(f"{table} row {number}: field {field.id} stands there twice")
            fields.append(field)
            files[field.id] = Files(
                number, tuple((folder_of(row[f"Image_PathName_{c}"]), row[f"Image_FileName_{c}"]) for c in CHANNELS)
            )
        fields.sort(key=lambda f: f.id)
        return cls(
            roots=(folder, folder / "plates", folder / "fullfields"), fields=fields, files=files, report=joined.report
        )

    def check(self, fields: Sequence[Field]) -> None:
        """Every channel file of every field must be there; all that are not are named together."""
        missing = [
            f"table row {self.files[field.id].row}, {channel}: {folder}/{name}"
            for field in fields
            for channel, (folder, name) in zip(CHANNELS, self.files[field.id].files, strict=True)
            if self._find(folder, name) is None
        ]
        if missing:
            places = ", ".join(map(str, self.roots))
            raise DataError(
                f"{len(missing)} image files are missing (looked for folders and zips in {places}):\n  "
                + "\n  ".join(missing)
            )

    def present(self) -> tuple[Field, ...]:
        """The fields whose files of every channel are on this machine."""
        return tuple(f for f in self.fields if all(self._find(*file) for file in self.files[f.id].files))

    def image(self, field: Field) -> NDArray[np.uint16]:
        """(h, w, 3) uint16 in the order of CHANNELS. Raises DataError for missing or damaged files."""
        self.check([field])
        planes = [read_tiff(self._bytes(*file), "/".join(file)) for file in self.files[field.id].files]
        if len({plane.shape for plane in planes}) != 1:
            raise DataError(f"field {field.id}: channels differ in shape: {[p.shape for p in planes]}")
        return np.stack(planes, axis=-1)

    def windows(self, field: Field) -> Windows:
        """Windows around the nuclei found by segmentation, at most 24, spread over the field in reading order."""
        image = self.image(field)
        centres = nuclei_centres(image[..., CHANNELS.index("DAPI")], margin=SIDE // 2)
        if len(centres) > MAX_WINDOWS:
            centres = [centres[n] for n in np.linspace(0, len(centres) - 1, MAX_WINDOWS).astype(int)]
        half = SIDE // 2
        cut = [image[y - half : y + half, x - half : x + half] for y, x in centres]
        return np.stack(cut) if cut else np.zeros((0, SIDE, SIDE, 3), dtype=np.uint16)

    def content(self, field: Field) -> str:
        """Hash of the pixels of all channels, not of the files: a zip and a folder give the same."""
        return hashlib.sha256(self.image(field).tobytes()).hexdigest()

    def _find(self, folder: str, name: str) -> tuple[Path, str] | None:
        """Where a file is: (path, "") in a folder, (zip, member) in a zip."""
        for root in self.roots:
            path = root / folder / name
            if path.is_file():
                return path, ""
            for archive in self._archives(root, folder):
                if f"{folder}/{name}" in _members(archive):
                    return archive, f"{folder}/{name}"
        return None

    @staticmethod
    def _archives(root: Path, folder: str) -> Iterator[Path]:
        for name in (f"BBBC021_v1_images_{folder}.zip", f"{folder}.zip"):
            if (root / name).is_file():
                yield root / name

    def _bytes(self, folder: str, name: str) -> bytes:
        found = self._find(folder, name)
        if found is None:
            raise DataError(f"{folder}/{name} is missing")
        path, member = found
        if not member:
            return path.read_bytes()
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(member).file_size > MAX_TIFF_BYTES:
                raise DataError(f"{path}: {member} is larger than {MAX_TIFF_BYTES} bytes")
            return archive.read(member)


def _members(archive: Path) -> frozenset[str]:
    try:
        with zipfile.ZipFile(archive) as file:
            return frozenset(file.namelist())
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(f"{archive}: expected a zip of a plate, got: {error}. Fetch it again") from error


def read_tiff(data: bytes, where: str) -> NDArray[np.uint16]:
    """One plane (h, w) uint16 from the bytes of a TIFF. Raises DataError naming the file."""
    require_images()
    from tifffile import TiffFileError, imread

    try:
        plane = np.asarray(imread(io.BytesIO(data)))
    except (TiffFileError, ValueError, OSError) as error:
        raise DataError(f"{where}: expected a TIFF, got: {error}") from error
    if plane.ndim != 2 or plane.dtype != np.uint16:
        raise DataError(f"{where}: expected one plane of uint16, got {plane.dtype} of shape {plane.shape}")
    return plane

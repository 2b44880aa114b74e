"""BBBC021 behind one interface: single-cell windows on disk, original plates (folders or zips), a generated twin.

A source lists fields and gives the windows of each: (n, 68, 68, 3) uint16 around nuclei, channels in the order of
CHANNELS (DAPI, Actin, Tubulin), raw camera counts. Nothing is read before it is asked for; `check` reports every
missing file of a set of fields at once.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from evidence import datasets
from evidence.bbbc021_tables import Field, JoinReport, join_labels, read_rows
from evidence.errors import DataError
from evidence.values import canonical_json

DATASET = "bbbc021"
SIDE = 68
Windows = NDArray[np.uint16]
SourceName = Literal["crops", "plates", "twin"]

CROPS, CROPS_INDEX = "crops_dapi_actin_tubulin.npz", "crops_index.csv"
IMAGE_TABLES = ("BBBC021_v1_image.csv", "BBBC021_v1_image.csv.gz")
LABELS = "BBBC021_v1_moa.csv"
LABEL_COLUMNS = ("compound", "concentration", "moa")
_SITE = re.compile(r"_s(\d+)_")


class Source(Protocol):
    """Where pixels come from."""

    @property
    def name(self) -> SourceName:
        """Which kind of source this is."""
        ...

    @property
    def fields(self) -> tuple[Field, ...]:
        """Every field of the tables, by id."""
        ...

    @property
    def report(self) -> JoinReport:
        """What the join of images and labels did."""
        ...

    def check(self, fields: Sequence[Field]) -> None:
        """Raise one DataError that lists everything these fields lack: table row and path tried."""
        ...

    def windows(self, field: Field) -> Windows:
        """(n, 68, 68, 3) uint16, n >= 0. Raises DataError."""
        ...

    def content(self, field: Field) -> str:
        """Hex sha256 of the field's pixels, as stored."""
        ...


def content_hash(source: Source, fields: Sequence[Field]) -> str:
    """One hash of what a case file rests on: the fields, their treatments and labels, and their pixels."""
    rows = [[f.id, f.treatment.compound, f.treatment.dose, f.treatment.moa, source.content(f)] for f in fields]
    return hashlib.sha256(canonical_json({"source": source.name, "fields": sorted(rows)}).encode()).hexdigest()


def open_source(name: SourceName, data: Path | None) -> Source:
    """Open a source on a path; with None the catalogue is searched (the twin needs nothing)."""
    if name == "twin":
        from evidence.bbbc021_twin import Twin

        return Twin.make()
    folder = data_folder(data)
    if name == "crops":
        return open_crops(str(folder))
    from evidence.bbbc021_plates import Plates

    return Plates.open(folder)


def data_folder(data: Path | None) -> Path:
    """The folder that holds the tables: the path given, its `bbbc021` folder, or what the catalogue finds."""
    folder = datasets.locate(DATASET, data)
    inner = folder / DATASET
    return inner if inner.is_dir() else folder


class Crops(NamedTuple):
    """Single-cell windows with an index table of the same order; `rows` are the window numbers of each field."""

    fields: tuple[Field, ...]
    report: JoinReport
    pixels: Windows
    rows: Mapping[str, tuple[int, ...]]
    name: SourceName = "crops"

    def check(self, fields: Sequence[Field]) -> None:
        """Every field asked for must be in the index."""
        absent = [f.id for f in fields if f.id not in self.rows]
        if absent:
            raise DataError(f"{CROPS_INDEX}: expected windows of every field, missing: {', '.join(absent)}")

    def windows(self, field: Field) -> Windows:
        """The field's windows, in the order of the index."""
        self.check([field])
        return self.pixels[list(self.rows[field.id])]

    def content(self, field: Field) -> str:
        """Hash of the field's windows."""
        return hashlib.sha256(np.ascontiguousarray(self.windows(field)).tobytes()).hexdigest()


@lru_cache(maxsize=2)
def open_crops(folder: str) -> Crops:
    """Read window arrays and their index. Raises DataError if they do not fit each other."""
    index_path, array_path = Path(folder) / CROPS_INDEX, Path(folder) / CROPS
    absent = [str(p) for p in (index_path, array_path) if not p.is_file()]
    if absent:
        raise DataError(f"expected single-cell windows with their index; missing: {', '.join(absent)}")
    index = read_rows(index_path, ("plate", "well", "site", "compound", "concentration", "moa"))
    with np.load(array_path, allow_pickle=False) as file:
        pixels = file["X"]
    if pixels.dtype != np.uint16 or pixels.shape != (len(index), SIDE, SIDE, len(pixels.T)) or pixels.shape[3] != 3:
        raise DataError(
            f"{array_path}: expected uint16 of shape ({len(index)}, {SIDE}, {SIDE}, 3), got {pixels.dtype} of shape "
            f"{pixels.shape}"
        )
    pixels.setflags(write=False)
    labels_path = Path(folder) / LABELS
    labels = read_rows(labels_path, LABEL_COLUMNS) if labels_path.is_file() else index
    joined = join_labels(
        [(r["compound"], r["concentration"]) for r in index],
        [(r["compound"], r["concentration"], r["moa"]) for r in labels],
    )
    fields: dict[str, Field] = {}
    rows: dict[str, list[int]] = defaultdict(list)
    for number, (row, treatment) in enumerate(zip(index, joined.treatments, strict=True)):
        field = Field(row["plate"], row["well"], row["site"], treatment)
        if fields.setdefault(field.id, field) != field:
            raise DataError(f"{index_path}: field {field.id} has two treatments")
        rows[field.id].append(number)
    order = sorted(fields)
    return Crops(tuple(fields[i] for i in order), joined.report, pixels, {i: tuple(rows[i]) for i in order})


def site_of(file_name: str) -> str:
    """The site in a file name (G10_s1_w1...tif -> 1). Raises DataError."""
    found = _SITE.search(file_name)
    if not found:
        raise DataError(f"expected a file name with a site such as G10_s1_w1....tif, got {file_name!r}")
    return found.group(1)

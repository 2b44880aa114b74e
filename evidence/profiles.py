"""CellProfiler well profiles of BBBC021 (Ljosa et al. 2013) as another modality: who is the query's nearest neighbour.

632 wells x 516 features, per-well means, z-scored to the control wells of their plate. A profile holds all sites of a
well. Before the actin image is measured, features that name actin are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evidence.bbbc021 import data_folder
from evidence.bbbc021_tables import CONTROL, Field, read_rows
from evidence.cell_features import Array
from evidence.contracts import Table
from evidence.errors import DataError

FILE = "ljosa_jbiomolscreen_2013_per_well_mean.csv.gz"
PLATE, WELL = "Image_Metadata_Plate", "Image_Metadata_Well"
SHOWN = 10


class Profiles(NamedTuple):
    """Well profiles. z: (n_wells, n_features), relative to plate controls; row: (plate, well) -> row of z."""

    names: tuple[str, ...]
    z: Array
    row: dict[tuple[str, str], int]


@lru_cache(maxsize=2)
def open_profiles(folder: Path, controls: frozenset[tuple[str, str]]) -> Profiles:
    """Read and z-score the profiles; `controls` are the (plate, well) of DMSO. Raises DataError."""
    path = folder / FILE
    if not path.is_file():
        raise DataError(f"{path} is missing: well profiles are an option of the case file; freeze one without them")
    rows = read_rows(path, (PLATE, WELL))
    names = tuple(name for name in rows[0] if name not in (PLATE, WELL))
    try:
        raw = np.array([[float(row[name]) for name in names] for row in rows])
    except ValueError as error:
        raise DataError(f"{path}: a profile holds something that is not a number: {error}") from error
    keys = [(row[PLATE], row[WELL]) for row in rows]
    z = np.full(raw.shape, np.nan)
    for plate in sorted({p for p, _ in keys}):
        inside = [n for n, (p, _) in enumerate(keys) if p == plate]
        base = raw[[n for n in inside if keys[n] in controls]]
        if len(base) > 1:
            spread = base.std(axis=0)
            z[inside] = (raw[inside] - base.mean(axis=0)) / np.where(spread > 1e-6, spread, np.inf)
    return Profiles(names, z, {key: n for n, key in enumerate(keys) if np.isfinite(z[n]).all()})


def columns_without_actin(names: Sequence[str]) -> list[int]:
    """The features of DNA and tubulin alone. Cell outlines were traced on actin: shapes of cells go with it."""
    keep = ("CorrDAPI", "CorrTub", "Nuclei_AreaShape")
    return [n for n, name in enumerate(names) if "Actin" not in name and any(part in name for part in keep)]


def cosine(profiles: Profiles, at: Sequence[int], features: Sequence[int]) -> Array:
    """(n, n) cosine similarity of rows `at`, over some features."""
    part = profiles.z[np.ix_(list(at), list(features))]
    part = part / (np.linalg.norm(part, axis=1, keepdims=True) + 1e-12)
    return np.asarray(part @ part.T)


def neighbour_table(
    query: Field, legal: Sequence[Field], controls: Sequence[Field], data: Path | None, *, actin: bool
) -> Table:
    """The nearest reference wells: class, similarity. No row where the query's well has no profile."""
    wells = frozenset((f.plate, f.well) for f in controls if f.treatment.compound == CONTROL)
    profiles = open_profiles(data_folder(data), wells)
    name = "well profile neighbours" + (", with F-actin" if actin else "")
    references = {(f.plate, f.well): f for f in legal if (f.plate, f.well) in profiles.row}
    rows: list[tuple[str | float | int | None, ...]] = []
    if (query.plate, query.well) in profiles.row and references:
        keys = [(query.plate, query.well), *sorted(references)]
        features = range(len(profiles.names)) if actin else columns_without_actin(profiles.names)
        similar = cosine(profiles, [profiles.row[key] for key in keys], features)[0, 1:]
        nearest = np.argsort(-similar, kind="stable")[:SHOWN]
        rows = [(str(references[keys[at + 1]].treatment.moa), round(float(similar[at]), 4)) for at in nearest]
    return Table(name=name, columns=("class", "similarity"), rows=tuple(rows))

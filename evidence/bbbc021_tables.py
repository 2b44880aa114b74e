"""The tables of BBBC021: images, mechanism labels, how they join, and which references a query may see.

Doses join by their decimal text or within a declared tolerance, never by rank or by the nearest dose. A treatment
without a label stays without one: nothing is inherited from another dose. DMSO is the control, never an answer.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from evidence.errors import DataError

CONTROL = "DMSO"
CHANNELS = ("DAPI", "Actin", "Tubulin")
DOSE_TOLERANCE = 1e-6
"""Two doses are the same where they differ by at most this, relative: float32 text of 0.3 is 0.3, 0.30001 is not."""

Rule = Literal["compound", "compound_plate", "compound_batch"]
RULES: Mapping[str, Rule] = {r: r for r in ("compound", "compound_plate", "compound_batch")}


class Treatment(NamedTuple):
    """A compound at a dose (µM), with its mechanism; None where the tables give none. The control has none either."""

    compound: str
    dose: float
    moa: str | None

    @property
    def control(self) -> bool:
        """Whether this is the solvent control."""
        return self.compound == CONTROL

    @property
    def id(self) -> str:
        """The treatment in words; never shown to a model."""
        return f"{self.compound} {self.dose:g}"


class Field(NamedTuple):
    """One imaged site. `batch` is the week, the part of the plate's name before its first underscore."""

    plate: str
    well: str
    site: str
    treatment: Treatment

    @property
    def id(self) -> str:
        """plate/well/site; never shown to a model."""
        return f"{self.plate}/{self.well}/{self.site}"

    @staticmethod
    def plate_of(field_id: str) -> str:
        """The plate in a field's id."""
        return field_id.split("/")[0]

    @property
    def batch(self) -> str:
        """The experiment (week) that the plate belongs to."""
        return self.plate.split("_")[0]


class JoinReport(NamedTuple):
    """What the join of images and labels did, in rows of the image table."""

    matched: int
    unlabelled: int
    control: int
    unused_labels: tuple[str, ...]

    def words(self) -> str:
        """One line for a person."""
        tail = f"; labels without an image: {', '.join(self.unused_labels)}" if self.unused_labels else ""
        return f"{self.matched} matched, {self.unlabelled} unlabelled, {self.control} control{tail}"


class Joined(NamedTuple):
    """One treatment for every row of the image table, in order, and the report."""

    treatments: tuple[Treatment, ...]
    report: JoinReport


def read_rows(path: Path, needed: Sequence[str]) -> list[dict[str, str]]:
    """Rows of a CSV (plain or .gz) as text. Raises DataError that names every column that is missing."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    reader = csv.DictReader(io.StringIO(raw.decode("utf-8-sig"), newline=""))
    absent = [name for name in needed if name not in (reader.fieldnames or ())]
    if absent:
        raise DataError(f"{path}: expected columns {', '.join(needed)}; missing: {', '.join(absent)}")
    return list(reader)


def dose_of(text: object, where: str = "") -> float:
    """A dose in µM from text or a number (float32 included). Raises DataError for anything that is not a number."""
    try:
        value = float(str(text).strip())
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise DataError(f"{where}: expected a dose (a number of at least 0), got {text!r}")
    return value


def same_dose(one: float, other: float) -> bool:
    """Whether two doses are the same within the declared tolerance."""
    return math.isclose(one, other, rel_tol=DOSE_TOLERANCE, abs_tol=0.0)


def join_labels(images: Iterable[tuple[str, object]], labels: Iterable[tuple[str, object, str]]) -> Joined:
    """Give every (compound, concentration) of the image table its mechanism. Raises DataError for two labels of one.

    images: in the order of the table. labels: (compound, concentration, moa); rows of the control are not labels.
    """
    known: dict[str, list[tuple[float, str]]] = {}
    for compound, dose_text, moa in labels:
        if compound == CONTROL or not moa.strip():
            continue
        dose = dose_of(dose_text, f"label of {compound}")
        if any(same_dose(dose, other) and moa != named for other, named in known.get(compound, [])):
            raise DataError(f"labels: {compound} at {dose:g} has two mechanisms")
        known.setdefault(compound, []).append((dose, moa))
    used: set[tuple[str, float]] = set()
    made: list[Treatment] = []
    for row, (compound, dose_text) in enumerate(images, start=1):
        dose = dose_of(dose_text, f"image table row {row}")
        found = next(((d, moa) for d, moa in known.get(compound, []) if same_dose(dose, d)), None)
        if found:
            used.add((compound, found[0]))
        made.append(Treatment(compound, found[0] if found else dose, found[1] if found else None))
    control, matched = sum(t.control for t in made), sum(t.moa is not None for t in made)
    unused = sorted(f"{c} {d:g}" for c, pairs in known.items() for d, _ in pairs if (c, d) not in used)
    return Joined(tuple(made), JoinReport(matched, len(made) - control - matched, control, tuple(unused)))


def legal(query: Field, reference: Field, rule: Rule) -> bool:
    """Whether a labelled field may be shown, or scored with, for a query: never the same compound.

    "compound_plate" and "compound_batch" also keep out the query's plate or week.
    """
    if reference.treatment.moa is None or reference.treatment.compound == query.treatment.compound:
        return False
    if rule == "compound_plate":
        return reference.plate != query.plate
    return rule != "compound_batch" or reference.batch != query.batch


def legal_references(query: Field, fields: Sequence[Field], rule: Rule) -> tuple[Field, ...]:
    """The fields that may stand as references of a query, in order."""
    return tuple(field for field in fields if legal(query, field, rule))


def evaluable(query: Field, fields: Sequence[Field], rule: Rule) -> bool:
    """Whether the query's own class has a legal reference; where not, the query is left out of the denominator."""
    return any(field.treatment.moa == query.treatment.moa for field in legal_references(query, fields, rule))


def folder_of(path_name: str) -> str:
    r"""The plate's folder from a PathName: the last part, whichever way the slashes lean (Week4\Week4_27481/)."""
    parts = [part for part in path_name.replace("\\", "/").split("/") if part not in ("", ".")]
    if not parts or ".." in parts:
        raise DataError(f"expected a path such as Week4/Week4_27481, got {path_name!r}")
    return parts[-1]

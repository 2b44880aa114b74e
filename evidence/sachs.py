"""Read the cells of Sachs et al. 2005 from any of their three forms, with strict parsing and one canonical hash.

(a) cyto_full_data.csv: 7,466 rows without labels; conditions by the published cell counts. (b) The folder of the
original .xls tables. (c) bnlearn's sachs.interventional.txt: levels 1-3 and the column INT. (a) and (b) give the
same hash.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from evidence import datasets
from evidence.errors import ConfigError, DataError, did_you_mean
from evidence.sachs_conditions import (
    FLUORESCENCE,
    PROTEINS,
    Condition,
    Kind,
    by_target_number,
    condition,
    conditions,
    find_condition,
)
from evidence.sachs_tables import Sheet, parse, read_sheet, read_text_sheet
from evidence.values import canonical_json

CSV_NAME = "cyto_full_data.csv"
LEVELS_NAME = "sachs.interventional.txt"
XLS_FOLDER = "original_xls"
DATASET_NAMES: dict[Kind, str] = {"fluorescence": "sachs2005", "levels": "sachs2005_levels"}

Transform = Literal["none", "log", "arcsinh", "log_plus"]

_TABLE = re.compile(r"(?:(\d+)\.\s*)?(.+?)\.xls", re.IGNORECASE)
_OUTSIDE = "cd3cd28icam2+"
_SHOWN = 8


@dataclass(frozen=True, eq=False)
class SachsCells:
    """Cells as read. Arrays are read-only.

    proteins: the 11 canonical names. values: (n, 11) float64, linear fluorescence (arbitrary units) or levels 1, 2, 3.
    condition: (n,) condition id of each row; rows lie in condition order, and in file order within a condition.
    data_sha256: hash of the content, the same whichever file form it came from. report: which file gave which rows.
    """

    proteins: tuple[str, ...]
    values: NDArray[np.float64]
    condition: NDArray[np.str_]
    kind: Kind
    data_sha256: str
    path: Path
    report: tuple[str, ...] = ()

    def rows(self, condition_id: str) -> NDArray[np.intp]:
        """(n_condition,) row numbers of one condition, ascending."""
        return np.flatnonzero(self.condition == condition_id)


def make_cells(
    values: NDArray[np.float64], condition_ids: Sequence[str], kind: Kind, path: Path, report: Sequence[str] = ()
) -> SachsCells:
    """Cells from an (n, 11) array in canonical column order. Copies, puts rows in condition order, hashes, freezes."""
    if values.shape != (len(condition_ids), len(PROTEINS)):
        raise DataError(f"expected values of shape ({len(condition_ids)}, {len(PROTEINS)}), got {values.shape}")
    order = {c: n for n, c in enumerate(_ids(kind))}
    other = sorted({c for c in condition_ids if condition(c).id not in order})
    if other:
        raise DataError(f"expected conditions of {kind}: {', '.join(order)}; got {', '.join(other)}")
    rank = np.array([order[condition(c).id] for c in condition_ids], dtype=np.int64)
    sort = np.argsort(rank, kind="stable")
    content = np.ascontiguousarray(values[sort], dtype=np.float64)
    labels = np.array(_ids(kind), dtype=np.str_)[rank[sort]]
    content.setflags(write=False)
    labels.setflags(write=False)
    return SachsCells(PROTEINS, content, labels, kind, _content_hash(content, labels, kind), path, tuple(report))


def open_cells(path: Path | None, kind: Kind = "fluorescence") -> SachsCells:
    """Read the cells of a kind from a file or folder; with None the catalogue is searched.

    A folder may hold cyto_full_data.csv, original_xls/ or the .xls tables themselves; for levels, bnlearn's file.
    Raises DataError naming what was expected, what was found, and where.
    """
    found = datasets.locate(DATASET_NAMES[kind], path)
    source = _in_folder(found, kind) if found.is_dir() else found
    if source.is_dir():
        return read_xls_folder(source)
    if source.suffix.casefold() in {".xls", ".xlsx"}:
        raise DataError(f"{source}: expected the folder of the nine tables, got one table; give the folder's path")
    cells = read_text(source)
    if cells.kind != kind:
        raise DataError(f"{source}: expected {kind}, got {cells.kind}; use a case file frozen on {cells.kind}")
    return cells


def read_text(path: Path) -> SachsCells:
    """Read form (a) or (c): comma, semicolon, tab or blank separated, recognised by the column INT.

    A table with a column `condition` may have any number of rows; without it the published 7,466 are expected.
    """
    sheet = read_text_sheet(path)
    extra = {name.casefold(): at for at, name in enumerate(sheet.header) if name.casefold() in {"int", "condition"}}
    values = parse(sheet, ignore=extra.values())
    if "int" in extra:
        _check_levels(sheet, values)
        labels = _labels(sheet, extra["int"], _by_number)
        return make_cells(values, labels, "levels", path, _counts(path.name, labels))
    if "condition" in extra:
        labels = _labels(sheet, extra["condition"], condition)
    else:
        labels = _labels_by_count(path, len(values))
    return make_cells(values, labels, "fluorescence", path, _counts(path.name, labels))


def read_xls_folder(folder: Path) -> SachsCells:
    """Read form (b). Tables are taken in the order of their numbers (1, 2, 10); the report says what became of each.

    Lock files and notes are ignored; known tables outside the nine are left out by name; an unknown or repeated
    table, or a missing one of the nine, is a DataError that carries the whole report.
    """
    chosen, report, problems = _sort_tables(folder)
    blocks: dict[str, NDArray[np.float64]] = {}
    for number, (file, entry) in enumerate(chosen):
        try:
            blocks[entry.id] = parse(read_sheet(file))
        except DataError as error:
            problems.append(str(error))
            continue
        report.insert(
            number, f"{file.name} -> condition {entry.id}, {len(blocks[entry.id])} rows (published {entry.n_cells})"
        )
    taken = {entry.id for _, entry in chosen}
    missing = [f"{n}. {entry.id}" for n, entry in enumerate(FLUORESCENCE, start=1) if entry.id not in taken]
    if missing:
        problems.append(f"missing of the nine: {', '.join(missing)}")
    if problems:
        raise DataError(
            f"{folder}: expected the nine published tables; "
            + "; ".join(problems)
            + "".join(f"\n  {r}" for r in report)
        )
    order = [entry.id for entry in FLUORESCENCE]
    labels = [c for c in order for _ in range(len(blocks[c]))]
    return make_cells(np.concatenate([blocks[c] for c in order]), labels, "fluorescence", folder, report)


def transform(values: NDArray[np.float64], kind: Transform, cofactor: float = 5.0) -> NDArray[np.float64]:
    """Fluorescence on another scale: "none", "log", "arcsinh" = arcsinh(x/cofactor), "log_plus" = log(x+cofactor).

    values: any shape. Never fills, shifts or drops a value: a logarithm of values that are not positive is refused.
    """
    if kind not in ("none", "log", "arcsinh", "log_plus"):
        raise ConfigError(f"no transform named {kind!r}.{did_you_mean(kind, ['none', 'log', 'arcsinh', 'log_plus'])}")
    if not (math.isfinite(cofactor) and cofactor > 0):
        raise ConfigError(f"transform {kind!r}: expected a positive cofactor, got {cofactor}")
    if kind == "none":
        return values.copy()
    if kind == "arcsinh":
        return np.asarray(np.arcsinh(values / cofactor))
    shifted = values + (cofactor if kind == "log_plus" else 0.0)
    bad = sorted({int(at) + 1 for at in np.argwhere(~(shifted > 0))[:, 0]}) if values.ndim else []
    if bad:
        count = int((~(shifted > 0)).sum())
        rows = ", ".join(map(str, bad[:_SHOWN])) + (", ..." if len(bad) > _SHOWN else "")
        raise DataError(
            f"transform {kind!r}: {count} values are not positive (rows {rows}). Choose arcsinh, arcsinh(x/cofactor), "
            f"or log_plus, log(x+c) with a c larger than {-float(values.min()):g}"
        )
    return np.asarray(np.log(shifted))


def _ids(kind: Kind) -> list[str]:
    return [entry.id for entry in conditions(kind)]


def _content_hash(values: NDArray[np.float64], labels: NDArray[np.str_], kind: Kind) -> str:
    runs = [[c, int((labels == c).sum())] for c in _ids(kind)]
    head = canonical_json({"kind": kind, "proteins": list(PROTEINS), "conditions": runs})
    return hashlib.sha256(head.encode() + b"\n" + values.astype("<f8").tobytes()).hexdigest()


def _in_folder(folder: Path, kind: Kind) -> Path:
    inner = folder / datasets.entry(DATASET_NAMES[kind]).folder
    if inner.is_dir():  # the folder of all data sets, as VCLOOP_DATA names it
        folder = inner
    if kind == "levels":
        if (folder / LEVELS_NAME).is_file():
            return folder / LEVELS_NAME
        raise DataError(f"{folder}: expected {LEVELS_NAME} in it, found none")
    if (folder / CSV_NAME).is_file():
        return folder / CSV_NAME
    if (folder / XLS_FOLDER).is_dir():
        return folder / XLS_FOLDER
    if any(_TABLE.fullmatch(file.name) for file in folder.iterdir()):
        return folder
    raise DataError(f"{folder}: expected {CSV_NAME}, a folder {XLS_FOLDER}, or the nine .xls tables in it, found none")


def _sort_tables(folder: Path) -> tuple[list[tuple[Path, Condition]], list[str], list[str]]:
    """The tables of the nine in numeric order, report lines on the other files, and problems."""
    chosen: dict[str, tuple[Path, Condition]] = {}
    report: list[str] = []
    problems: list[str] = []
    for file in sorted(folder.iterdir(), key=_by_leading_number):
        match = _TABLE.fullmatch(file.name)
        stem = match[2].casefold() if match else ""
        if file.name.startswith(("~$", ".")):
            report.append(f"{file.name} -> ignored (lock or hidden file)")
        elif file.suffix.casefold() in {".xlsx", ".csv"}:
            problems.append(f"{file.name}: expected .xls tables, got {file.suffix}")
        elif match is None:
            report.append(f"{file.name} -> ignored (not a table)")
        elif stem.startswith(_OUTSIDE) and _known(stem.removeprefix(_OUTSIDE)):
            report.append(f"{file.name} -> left out (a table of the article, not one of the nine conditions)")
        elif (entry := _known(stem)) is None:
            problems.append(f"{file.name}: unknown table.{did_you_mean(stem, _ids('fluorescence'))}")
        elif entry.id in chosen:
            problems.append(f"{file.name}: condition {entry.id} is also in {chosen[entry.id][0].name}")
        else:
            chosen[entry.id] = (file, entry)
    return list(chosen.values()), report, problems


def _by_leading_number(file: Path) -> tuple[float, str]:
    digits = re.match(r"\d+", file.name)
    return (int(digits[0]) if digits else math.inf, file.name)


def _known(stem: str) -> Condition | None:
    entry = find_condition(stem)
    return entry if entry in FLUORESCENCE else None


def _labels_by_count(path: Path, n_rows: int) -> list[str]:
    published = [entry.n_cells for entry in FLUORESCENCE]
    if n_rows != sum(published):
        raise DataError(
            f"{path}: expected {sum(published)} rows ({' + '.join(map(str, published))}, conditions 1-9 stacked), got "
            f"{n_rows}. Rows without a column `condition` get their condition by these counts"
        )
    return [entry.id for entry in FLUORESCENCE for _ in range(entry.n_cells)]


def _labels(sheet: Sheet, at: int, entry_of: Callable[[str], Condition]) -> list[str]:
    labels = []
    for number, row in enumerate(sheet.rows[1:], start=2):
        try:
            labels.append(entry_of(str(row[at])).id)
        except DataError as error:
            raise DataError(f"{sheet.name}: column {sheet.header[at]}, row {number}: {error}") from error
    return labels


def _by_number(text: str) -> Condition:
    if not text.strip().isdecimal():
        raise DataError(f"expected a whole number, got {text!r}")
    return by_target_number(int(text))


def _check_levels(sheet: Sheet, values: NDArray[np.float64]) -> None:
    bad = np.argwhere(~np.isin(values, (1.0, 2.0, 3.0)))
    if len(bad):
        row, column = bad[0]
        raise DataError(
            f"{sheet.name}: column {PROTEINS[column]}, row {row + 2}: expected a level 1, 2 or 3, "
            f"got {values[row, column]:g}"
        )


def _counts(name: str, labels: Sequence[str]) -> list[str]:
    return [f"{name} -> condition {c}, {labels.count(c)} rows" for c in dict.fromkeys(labels)]

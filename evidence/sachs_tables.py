"""Strict reading of the Sachs tables: text or .xls in, an (n, 11) array out, or an error naming file, column, row."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xlrd
from numpy.typing import NDArray

from evidence.errors import DataError
from evidence.sachs_conditions import PROTEINS, protein

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_PLAIN = {xlrd.XL_CELL_NUMBER, xlrd.XL_CELL_TEXT, xlrd.XL_CELL_EMPTY, xlrd.XL_CELL_BLANK}
_SHOWN = 5


class Sheet(NamedTuple):
    """A table as text and numbers, header first. Rows are counted from 1, the header's row."""

    name: str
    rows: list[list[str | float]]

    @property
    def header(self) -> list[str]:
        """The column names without surrounding blanks."""
        return [str(cell).strip() for cell in self.rows[0]]


def read_sheet(path: Path) -> Sheet:
    """The first sheet of an .xls file. A cell that is neither text nor number becomes text and so is refused."""
    try:
        with xlrd.open_workbook(path, logfile=io.StringIO(), on_demand=True) as book:
            cells = list(book.sheet_by_index(0).get_rows())
    except Exception as error:  # damaged files raise many kinds of exception inside xlrd, struct.error among them
        raise DataError(f"{path}: expected an .xls table, got: {error}. Get the file again") from error
    return _filled(path, [[c.value if c.ctype in _PLAIN else f"{c.value} (no number)" for c in row] for row in cells])


def read_text_sheet(path: Path) -> Sheet:
    """A text table separated by comma, semicolon, tab or blanks: whichever the header has."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: expected a text table (UTF-8), got: {error}") from error
    lines = text.rstrip().splitlines()
    header = lines[0] if lines else ""
    separator = next((mark for mark in "\t;," if mark in header), None)
    split = csv.reader(lines, delimiter=separator) if separator else (line.split() for line in lines)
    return _filled(path, [list(row) for row in split])


def parse(sheet: Sheet, ignore: Collection[int] = ()) -> NDArray[np.float64]:
    """(n, 11) values in canonical column order; `ignore` holds positions of columns that are no values.

    Raises DataError with every unknown, repeated or missing column and the first cells that are not numbers. A decimal
    comma is refused: it is never dropped (26,4 is not 264).
    """
    positions, problems = _columns(sheet, ignore)
    width = len(sheet.rows[0])
    ragged = [n for n, row in enumerate(sheet.rows, start=1) if len(row) != width]
    if ragged:
        problems.append(f"row {ragged[0]}: expected {width} cells, got {len(sheet.rows[ragged[0] - 1])}")
    values = np.empty((len(sheet.rows) - 1, len(PROTEINS)))
    bad: list[str] = []
    for name, at in positions.items():
        for number, row in enumerate(sheet.rows[1:], start=2):
            value = _number(row[at]) if at < len(row) else 0.0
            if value is None:
                bad.append(f"column {sheet.header[at]} is not numeric: {str(row[at]) or 'empty'} (row {number})")
            else:
                values[number - 2, PROTEINS.index(name)] = value
    problems += bad[:_SHOWN] + ([f"and {len(bad) - _SHOWN} more cells"] if len(bad) > _SHOWN else [])
    if problems:
        raise DataError(f"{sheet.name}: " + "; ".join(problems))
    return values


def _filled(path: Path, rows: list[list[str | float]]) -> Sheet:
    if len(rows) < 2:
        raise DataError(f"{path}: expected a header and at least one row of cells, got {len(rows)} rows")
    return Sheet(path.name, rows)


def _columns(sheet: Sheet, ignore: Collection[int]) -> tuple[dict[str, int], list[str]]:
    positions: dict[str, int] = {}
    problems: list[str] = []
    for at, column in enumerate(sheet.header):
        name = None if at in ignore else protein(column)
        if name in positions:
            problems.append(f"column {column!r} repeats {name} (also {sheet.header[positions[name]]!r})")
        elif name is not None:
            positions[name] = at
        elif at not in ignore:
            problems.append(f"column {column!r} is none of the 11 proteins")
    missing = [name for name in PROTEINS if name not in positions]
    if missing:
        problems.append(f"columns missing: {', '.join(missing)}")
    return positions, problems


def _number(cell: str | float) -> float | None:
    if isinstance(cell, str):
        if _NUMBER.fullmatch(cell.strip()) is None:
            return None
        cell = float(cell)
    return float(cell) if math.isfinite(cell) else None

"""Tables of drug pairs: one row for a pair (and a cell line), read as text so that nothing turns into a missing value.

`None` in a drug column is the documented marker of "no drug": the row is about the other drug alone. Every other text
is a name, `NA` and `nan` too; an empty cell is refused with its row number.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evidence.errors import DataError

NO_DRUG = "None"
Pair = tuple[str, str]


class PairRow(NamedTuple):
    """One row of a table: its number in the file (the header is 1), sorted drugs (two, or one alone), line, value."""

    number: int
    drugs: tuple[str, ...]
    line: str
    value: float


class Synergy(NamedTuple):
    """Scores of pairs by cell line: scores (n_pairs, n_lines), NaN where not measured; repeated rows are averaged.

    repeats: pair -> variance of one score between rows of the same pair and line, one for each such line.
    """

    pairs: tuple[Pair, ...]
    lines: tuple[str, ...]
    scores: NDArray[np.float64]
    repeats: Mapping[Pair, tuple[float, ...]]
    report: tuple[str, ...]


def read_pair_rows(path: Path, value: str, line: str | None = None) -> tuple[PairRow, ...]:
    """Read a .csv or .tsv file with columns drug_a, drug_b, `value` and, if named, `line`. Raises DataError."""
    rows = _read(path, ("drug_a", "drug_b", value, *([line] if line else [])))
    found = []
    for number, row in rows:
        names = [row["drug_a"].strip(), row["drug_b"].strip()]
        drugs = tuple(sorted(name for name in names if name != NO_DRUG))
        if "" in drugs or not drugs or len(set(drugs)) < len(drugs):
            raise DataError(f"{path.name}, row {number}: expected two different drugs, or one and None, got {names}")
        found.append(PairRow(number, drugs, row[line].strip() if line else "", _number(path, number, row[value])))
    return tuple(found)


def totals(rows: Iterable[PairRow]) -> dict[str, float]:
    """Sum of the values by drug; a pair's value counts for both its drugs, and no row is left out."""
    found: dict[str, float] = defaultdict(float)
    for row in rows:
        for drug in row.drugs:
            found[drug] += row.value
    return dict(sorted(found.items()))


def read_synergy(path: Path) -> Synergy:
    """Read scores per pair and cell line (columns drug_a, drug_b, cell_line, score). Raises DataError."""
    rows = read_pair_rows(path, "score", "cell_line")
    alone = [row.number for row in rows if len(row.drugs) < 2]
    if alone:
        shown = ", ".join(map(str, alone[:10]))
        raise DataError(f"{path.name}: {len(alone)} rows with one drug have no synergy: rows {shown}")
    repeats: dict[tuple[tuple[str, ...], str], list[float]] = defaultdict(list)
    for row in rows:
        repeats[row.drugs, row.line].append(row.value)
    pairs = tuple(sorted({(drugs[0], drugs[1]) for drugs, _ in repeats}))
    lines = tuple(sorted({line for _, line in repeats}))
    scores = np.full((len(pairs), len(lines)), np.nan)
    at = {pair: n for n, pair in enumerate(pairs)}, {line: n for n, line in enumerate(lines)}
    for ((a, b), line), values in repeats.items():
        scores[at[0][a, b], at[1][line]] = np.mean(values)
    again: dict[Pair, tuple[float, ...]] = {}
    for ((a, b), _), values in sorted(repeats.items()):
        if len(values) > 1:
            again[a, b] = (*again.get((a, b), ()), float(np.var(values, ddof=1)))
    report = [f"{len(rows)} rows, {len(pairs)} pairs, {len(lines)} lines"]
    if again:
        n = sum(map(len, again.values()))
        report.append(f"{n} pairs and lines have several rows; their scores are averaged")
    return Synergy(pairs, lines, scores, again, tuple(report))


def read_curves(path: Path) -> dict[tuple[str, str], tuple[tuple[float, float], ...]]:
    """(drug, line) -> (dose in uM, mean % inhibition) by dose; drug names in capitals. Columns as O'Neil's table."""
    found: dict[tuple[str, str], dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number, row in _read(path, ("Compound", "Channel", "Dose", "Response")):
        key = row["Compound"].strip().upper(), row["Channel"].strip()
        found[key][_number(path, number, row["Dose"])].append(_number(path, number, row["Response"]))
    return {key: tuple((dose, float(np.mean(doses[dose]))) for dose in sorted(doses)) for key, doses in found.items()}


def read_smiles(path: Path) -> dict[str, str]:
    """Drug (in capitals) -> SMILES, from a table of two columns without header."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        return {row[0].strip().upper(): row[1].strip() for row in csv.reader(file) if len(row) == 2}


def _read(path: Path, columns: tuple[str, ...]) -> list[tuple[int, Mapping[str, str]]]:
    if not path.is_file():
        raise DataError(f"no file {path}")
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        absent = [name for name in columns if name not in (reader.fieldnames or ())]
        if absent:
            raise DataError(f"{path.name}: expected the columns {', '.join(columns)}, no {', '.join(absent)}")
        rows: list[tuple[int, Mapping[str, str]]] = list(enumerate(reader, start=2))
    short = [number for number, row in rows if None in row or any(row[name] is None for name in columns)]
    if short or not rows:
        raise DataError(f"{path.name}: " + (f"row {short[0]} has another number of cells" if short else "no rows"))
    return rows


def _number(path: Path, number: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataError(f"{path.name}, row {number}: expected a finite number, got {text!r}")
    return value

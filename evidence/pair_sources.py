"""Where gene-pair data comes from: an .h5ad file of cells, the embedded twin, or a folder of tables of mean changes."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evidence import datasets
from evidence.cells import read_cells
from evidence.conditions import Condition
from evidence.contracts import CaseFile
from evidence.errors import ConfigError, DataError
from evidence.gene_pair_cases import N_PROGRAMS, RULES, GenePairFrozen, make_case_file
from evidence.pair_responses import PairResponses, TableResponses
from evidence.pair_twin import make_twin
from evidence.perturbed import NORMAN_CARD, PerturbedCells
from evidence.programs import Programs, programs_from_changes
from evidence.values import derive_seed, sha256_of

PAIRS_FILE, SINGLES_FILE = "observed_delta_doubles.csv", "single_deltas_recovered.csv"
TABLE_RULES = {
    **RULES,
    "split": "there are no cells: truth is the table's value; a measurement adds noise of the given standard deviation",
    "cases": "pairs with both singles in the tables, drawn with the seed",
    "programs": "varimax of the changes of the single genes over the tables' genes",
    "threshold": "1.96 times the given noise",
}


class Changes(NamedTuple):
    """Mean changes from control. genes: the columns; pairs, singles: id -> (n_genes,)."""

    genes: tuple[str, ...]
    pairs: dict[str, NDArray[np.float64]]
    singles: dict[str, NDArray[np.float64]]

    @property
    def sha256(self) -> str:
        """Hash of names and numbers, whatever the file looked like."""
        plain = {k: {n: v.tolist() for n, v in sorted(t.items())} for k, t in (("p", self.pairs), ("s", self.singles))}
        return sha256_of({"genes": list(self.genes), **plain})


class OpenedPairs(NamedTuple):
    """Responses, the pairs with both singles, and the hash of the data."""

    known: PairResponses
    pairs: tuple[Condition, ...]
    sha256: str


def open_cells(source: Literal["cells", "twin"], data: Path | None) -> PerturbedCells:
    """Cells of Norman 2019 (an explicit .h5ad file or folder, else the catalogue is searched), or the twin."""
    if source == "twin":
        return make_twin().cells
    return read_cells(datasets.locate_file("norman", data), card=NORMAN_CARD)


def open_tables(data: Path | None, frozen: GenePairFrozen, seed: int) -> OpenedPairs:
    """Tables of mean changes, projected onto the frozen programs. Raises DataError for a missing or damaged table."""
    if frozen.noise_sd is None:
        raise ConfigError("case file on tables: frozen.noise_sd is missing; without cells the noise must be given")
    changes = read_changes(data)
    weights = frozen.programs.matrix(changes.genes)
    known = TableResponses(
        {name: x @ weights for name, x in changes.pairs.items()},
        {name: x @ weights for name, x in changes.singles.items()},
        np.full(len(frozen.programs.programs), frozen.noise_sd),
        seed,
    )
    return OpenedPairs(known, _complete(changes), changes.sha256)


def freeze_tables(data: Path | None, *, n_cases: int, seed: int, noise_sd: str | None) -> CaseFile:
    """A case file on tables. Raises ConfigError where no noise is given or too few pairs are complete."""
    noise = _noise(noise_sd)
    changes = read_changes(data)
    complete = _complete(changes)
    if len(complete) < n_cases:
        raise ConfigError(f"asked for {n_cases} pairs with both singles, available {len(complete)}; use n_cases")
    order = np.random.default_rng(derive_seed(seed, "cases")).permutation(len(complete))
    pairs = tuple(sorted(complete[i] for i in order[:n_cases]))
    programs = _programs(changes, seed)
    frozen = GenePairFrozen(
        source="tables",
        card=NORMAN_CARD,
        programs=programs,
        thresholds={p.id: round(1.96 * noise, 4) for p in programs.programs},
        held_out=tuple(c.id for c in complete),
        noise_sd=noise,
        rules=TABLE_RULES,
    )
    title = f"Gene pairs (tables): {n_cases} pairs, mean changes of Norman 2019, noise {noise:g} given"
    return make_case_file(frozen, pairs, {"norman_changes": changes.sha256}, seed, title)


def read_changes(data: Path | None) -> Changes:
    """Both tables of a folder. Raises DataError naming file, row and column of what is not a number."""
    folder = datasets.locate("norman_changes", data)
    genes, pairs = _read_table(folder / PAIRS_FILE)
    other, singles = _read_table(folder / SINGLES_FILE)
    if genes != other:
        raise DataError(f"{folder}: {PAIRS_FILE} and {SINGLES_FILE} have other genes")
    return Changes(genes, {Condition(tuple(k.split("+"))).id: v for k, v in pairs.items()}, singles)


def _read_table(path: Path) -> tuple[tuple[str, ...], dict[str, NDArray[np.float64]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header, *rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, ValueError, csv.Error) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    found: dict[str, NDArray[np.float64]] = {}
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header) or row[0] in found:
            raise DataError(
                f"{path} row {number}: expected {len(header)} cells and a name not used before, got {row[:1]}"
            )
        found[row[0]] = np.array([_number(path, number, g, t) for g, t in zip(header[1:], row[1:], strict=True)])
    return tuple(header[1:]), found


def _number(path: Path, row: int, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataError(f"{path} row {row}, column {column}: expected a number, got {text!r}")
    return value


def _complete(changes: Changes) -> tuple[Condition, ...]:
    pairs = [Condition(tuple(name.split("+"))) for name in changes.pairs]
    return tuple(sorted(c for c in pairs if c.double and all(t in changes.singles for t in c.targets)))


def _programs(changes: Changes, seed: int) -> Programs:
    names = sorted(changes.singles)
    table = np.stack([changes.singles[n] for n in names])
    return programs_from_changes(table, changes.genes, names, n_programs=N_PROGRAMS, seed=seed, sha256=changes.sha256)


def _noise(text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(
            "option noise_sd: tables of means have no cells, so the noise of a measurement must be given as a positive "
            f"number in log1p units (--option noise_sd=0.05), got {text!r}"
        )
    return value

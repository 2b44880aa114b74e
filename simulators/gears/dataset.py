"""A GEARS dataset folder from perturbed cells: only training cells go in, and its name is the hash of what is in it.

    <root>/<key>/description.json                                  what it was made from, and the sha256 of every file
                 cells/perturb_processed.h5ad                      upstream's form, with its ranked genes
                 gene2go_all.pkl, essential_all_data_pert_genes.pkl, go_essential_all/go_essential_all.csv

Held-out conditions are left out before anything is computed. Upstream's own caches (cell graphs, splits, co-expression
tables) are keyed by name and never invalidated: they are not used.
"""

from __future__ import annotations

import csv
import pickle
import shutil
import tempfile
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from evidence.conditions import Condition
from evidence.errors import DataError
from evidence.files import file_sha256
from evidence.perturbed import PerturbedCells
from evidence.values import Value, canonical_json, sha256_of
from simulators.gears import compat
from simulators.gears.go import GoAnnotations

MIN_CELLS = 2
"""Upstream's ranking of genes needs two cells of a condition."""
CELLS_FILE = "cells/perturb_processed.h5ad"
GRAPH_FILE = "go_essential_all/go_essential_all.csv"


class DatasetFacts(Value):
    """What a dataset folder was made from. `left_out` says, by condition id, why cells are not in it."""

    format: Literal[1] = 1
    data_sha256: str
    go_sha256: str
    go_source: str
    cell_line: str
    versions: dict[str, str]
    genes: tuple[str, ...]
    graph_genes: tuple[str, ...]
    conditions: dict[str, int]
    held_out: tuple[str, ...]
    left_out: dict[str, str]

    @property
    def key(self) -> str:
        """Hash of everything that decides the content; neither the hidden cells nor their number is in it."""
        return sha256_of(self)


class _Description(Value):
    facts: DatasetFacts
    files: dict[str, str]


@dataclass(frozen=True)
class GearsDataset:
    """A verified dataset folder."""

    folder: Path
    facts: DatasetFacts

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The perturbations that are trained on, sorted, without the control."""
        return tuple(Condition(tuple(name.split("+"))) for name in sorted(self.facts.conditions) if name != "ctrl")


def prepare(cells: PerturbedCells, *, held_out: Iterable[Condition], go: GoAnnotations, root: Path) -> GearsDataset:
    """The dataset folder for these cells under `root`: found there and verified, or written.

    Held-out conditions are whole combinations, in whichever order they were spelled. Conditions with a gene that has
    no GO annotation, or with fewer than two cells, cannot be trained on: they are in `facts.left_out` by name.
    Raises DataError if nothing is left, or if a file of the folder was changed.
    """
    compat.require()
    facts, training = _plan(cells, frozenset(held_out), go)
    folder = root / facts.key[:16]
    if not folder.is_dir():
        _write(folder, facts, training, go)
    return open_dataset(folder)


def open_dataset(folder: Path) -> GearsDataset:
    """Open a dataset folder. Raises DataError if a file is missing or is not the one that was written."""
    path = folder / "description.json"
    if not path.is_file():
        raise DataError(f"no GEARS dataset in {folder}: no description.json")
    description = _Description.model_validate_json(path.read_text())
    for name, sha in description.files.items():
        file = folder / name
        if not file.is_file() or file_sha256(file) != sha:
            raise DataError(f"{file} is not the file that was written there; delete {folder} and prepare it again")
    return GearsDataset(folder, description.facts)


def _plan(
    cells: PerturbedCells, held_out: Collection[Condition], go: GoAnnotations
) -> tuple[DatasetFacts, PerturbedCells]:
    absent = sorted(c.id for c in held_out if c not in cells.rows)
    if absent:
        raise DataError(f"held-out conditions that the data does not have: {', '.join(absent)}")
    training = cells.without(held_out)
    left_out = _left_out(training, go)
    training = training.without([c for c in training.rows if c.id in left_out])
    if not training.perturbations:
        raise DataError(f"no perturbation is left to train on ({len(held_out)} held out, {len(left_out)} left out)")
    targets = {target for condition in cells.rows for target in condition.targets}
    known = {e.target for e in go.edges} if go.edges else set(training.genes)
    facts = DatasetFacts(
        data_sha256=training.data_sha256,
        go_sha256=go.sha256,
        go_source=go.source,
        cell_line=cells.card.cell_line,
        versions=compat.versions(),
        genes=training.genes,
        graph_genes=tuple(sorted(name for name in known | targets if name in go.gene2go)),
        conditions={c.id: len(rows) for c, rows in training.rows.items()},
        held_out=tuple(sorted(c.id for c in held_out)),
        left_out=left_out,
    )
    return facts, training


def _left_out(training: PerturbedCells, go: GoAnnotations) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for condition, rows in training.rows.items():
        unknown = [target for target in condition.targets if target not in go.gene2go]
        if unknown:
            reasons[condition.id] = f"no GO annotation for {', '.join(unknown)}"
        elif len(rows) < MIN_CELLS:
            reasons[condition.id] = f"{len(rows)} cell; at least {MIN_CELLS} needed"
    if "ctrl" in reasons:
        raise DataError(f"control: {reasons['ctrl']}")
    return reasons


def _write(folder: Path, facts: DatasetFacts, training: PerturbedCells, go: GoAnnotations) -> None:
    """Write beside the folder and rename: a folder that exists is whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
    try:
        (work / "cells").mkdir()
        (work / "go_essential_all").mkdir()
        _write_cells(work / CELLS_FILE, training)
        with (work / "gene2go_all.pkl").open("wb") as file:
            pickle.dump({gene: sorted(go.gene2go[gene]) for gene in facts.graph_genes}, file, protocol=4)
        with (work / "essential_all_data_pert_genes.pkl").open("wb") as file:
            pickle.dump(list(facts.graph_genes), file, protocol=4)
        _write_rows(work / GRAPH_FILE, ("source", "target", "importance"), go.graph(facts.graph_genes))
        files = {str(p.relative_to(work)): file_sha256(p) for p in sorted(work.rglob("*")) if p.is_file()}
        (work / "description.json").write_text(canonical_json(_Description(facts=facts, files=files)))
        try:
            work.replace(folder)
        except OSError:
            if not folder.is_dir():  # another process may have been first
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write_cells(path: Path, training: PerturbedCells) -> None:
    import anndata
    import pandas as pd

    upstream = compat.load()
    line = training.card.cell_line.replace("/", "-").replace("_", "-")
    obs = pd.DataFrame({"condition": [c.gears_label for c in training.conditions], "cell_type": line})
    obs.index = pd.Index([f"cell{n}" for n in range(len(obs))])
    var = pd.DataFrame({"gene_name": list(training.genes)}, index=list(training.genes))
    with compat.quiet(), compat.seeded(0):
        adata = anndata.AnnData(training.X.copy(), obs=obs, var=var)
        adata = upstream.data_utils.get_DE_genes(adata, False)
        adata = upstream.data_utils.get_dropout_non_zero_genes(adata)
        adata.write_h5ad(path)


def _write_rows(path: Path, header: Sequence[str], rows: Collection[Sequence[Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)

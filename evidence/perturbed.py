"""Perturbed cells: expression, gene names and what was done to each cell, under one hash."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evidence.conditions import Condition, normalise_condition
from evidence.errors import DataError, did_you_mean
from evidence.values import Name, Value

Scale = Literal["log1p", "counts"]
MAX_LOG1P = 15.0
"""log1p of a million counts is 13.8: a larger value was never on the log scale."""


class DataCard(Value):
    """Facts about a data set that its files may get wrong. `study` is its value in a file that holds several."""

    name: Name
    cell_line: str = "unknown"
    modality: str = "unknown"
    study: str | None = None


NORMAN_CARD = DataCard(name="norman", cell_line="K562", modality="CRISPRa (over-expression)", study="norman19")
"""Norman et al. 2019, Science 365:786. The `A549` in GEARS' file is a dummy (snap-stanford/GEARS issues 61, 95)."""


@dataclass(frozen=True)
class PerturbedCells:
    """Cells with their perturbation.

    X: (n_cells, n_genes) csr float32, log1p of counts scaled to a common depth. `genes` are unique names, one a column;
    `conditions` and `barcodes` one a row. `data_sha256` covers all four; `report` says what was set aside, by name.
    """

    X: sparse.csr_matrix
    genes: tuple[str, ...]
    conditions: tuple[Condition, ...]
    barcodes: tuple[str, ...]
    card: DataCard
    data_sha256: str
    report: tuple[str, ...] = ()

    @cached_property
    def rows(self) -> dict[Condition, NDArray[np.intp]]:
        """Row numbers of every condition, conditions sorted."""
        found: dict[Condition, list[int]] = {}
        for row, condition in enumerate(self.conditions):
            found.setdefault(condition, []).append(row)
        return {condition: np.array(found[condition], dtype=np.intp) for condition in sorted(found)}

    @property
    def perturbations(self) -> tuple[Condition, ...]:
        """Every condition but the control, sorted."""
        return tuple(condition for condition in self.rows if not condition.control)

    def of(self, condition: Condition) -> sparse.csr_matrix:
        """X of one condition's cells. Raises DataError if there are none."""
        if condition not in self.rows:
            raise DataError(f"no cell of {condition.id!r}.{did_you_mean(condition.id, (c.id for c in self.rows))}")
        return self.X[self.rows[condition]]

    def select(self, keep: Sequence[int] | NDArray[Any]) -> PerturbedCells:
        """Only these rows (numbers or a mask); the hash is of what is left."""
        index = np.arange(len(self.barcodes))[np.asarray(keep)]
        conditions, barcodes = (tuple(values[i] for i in index) for values in (self.conditions, self.barcodes))
        x = self.X[index]
        sha = content_sha256(x, self.genes, conditions, barcodes)
        return replace(self, X=x, conditions=conditions, barcodes=barcodes, data_sha256=sha)

    def without(self, held_out: Iterable[Condition]) -> PerturbedCells:
        """Every cell of the held-out conditions left out."""
        hidden = frozenset(held_out)
        return self.select(np.array([condition not in hidden for condition in self.conditions], dtype=bool))

    def column(self, gene: str) -> int:
        """The gene's column. Raises DataError for a gene that is not measured: no other column stands in for it."""
        if gene not in self._columns:
            raise DataError(f"{gene!r} is not measured in {self.card.name} ({len(self.genes)} genes)")
        return self._columns[gene]

    def measured(self, gene: str) -> bool:
        """Whether the gene has a column. A perturbed gene without one stays usable as a perturbation."""
        return gene in self._columns

    @cached_property
    def _columns(self) -> dict[str, int]:
        return {gene: number for number, gene in enumerate(self.genes)}


def make_cells(
    x: Any, genes: Iterable[str], labels: Iterable[str], *, card: DataCard, barcodes: Iterable[str] | None = None
) -> PerturbedCells:
    """Cells from arrays (generated data): X (n_cells, n_genes) log1p, one label a cell."""
    matrix = checked_matrix(sparse.csr_matrix(x), "log1p")
    conditions, gene_names = tuple(normalise_condition(label) for label in labels), tuple(genes)
    if matrix.shape != (len(conditions), len(gene_names)):
        raise DataError(f"expected X of shape ({len(conditions)}, {len(gene_names)}), got {matrix.shape}")
    names = tuple(barcodes) if barcodes is not None else tuple(f"cell{n:06d}" for n in range(len(conditions)))
    sha = content_sha256(matrix, gene_names, conditions, names)
    return PerturbedCells(matrix, gene_names, conditions, names, card, sha)


def checked_matrix(x: Any, scale: Scale) -> sparse.csr_matrix:
    """X as csr float32. Raises DataError if it is not finite, not non-negative, or not on the declared scale."""
    matrix = sparse.csr_matrix(x, dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    values = matrix.data
    if not np.isfinite(values).all():
        raise DataError(f"X holds {int((~np.isfinite(values)).sum())} values that are NaN or infinite")
    if values.size and values.min() < 0:
        raise DataError(
            f"X is declared {scale} but its minimum is {values.min():g}: neither counts nor log1p of counts"
        )
    whole = bool(values.size) and bool((values == np.round(values)).all())
    if scale == "log1p" and values.size and (values.max() > MAX_LOG1P or whole):
        said = f"its maximum is {values.max():g}" + (" and every value is a whole number" if whole else "")
        raise DataError(f"X is declared log1p but {said}: it looks like counts. If so, say scale='counts' to convert")
    if scale == "counts" and not whole:
        raise DataError("X is declared counts but holds fractions. If it is log1p already, say scale='log1p'")
    return matrix.astype(np.float32)


def content_sha256(
    x: sparse.csr_matrix, genes: Sequence[str], conditions: Sequence[Condition], barcodes: Sequence[str]
) -> str:
    """sha256 of the canonical content: names, conditions, barcodes, and the sorted csr arrays of X."""
    canonical = sparse.csr_matrix(x)
    canonical.sort_indices()
    digest = hashlib.sha256()
    for names in (genes, [condition.id for condition in conditions], barcodes):
        digest.update("\n".join(names).encode() + b"\0")
    for array, kind in ((canonical.indptr, "<i8"), (canonical.indices, "<i8"), (canonical.data, "<f4")):
        digest.update(np.ascontiguousarray(array, dtype=kind).tobytes())
    return digest.hexdigest()

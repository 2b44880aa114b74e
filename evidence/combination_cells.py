"""Cells under combinations of perturbations, from every source that the drug-combination setting reads.

Sources: ComboSciPlex as pertpy has it (`control+control`, `control+A`, `A+B`), as CPA prepared it (ChEMBL ids, doses),
pairs of over-expressed genes in PerturBench's development file, and a generated twin. What the files get wrong comes
from the card; labels, scale and doses are checked here and by evidence.cells.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from evidence.cells import from_anndata, read_h5ad
from evidence.combination_twin import make_twin
from evidence.conditions import CONTROL_LABELS, Condition, normalise_condition
from evidence.datasets import locate
from evidence.doses import check_doses, target_doses
from evidence.errors import DataError
from evidence.perturbed import NORMAN_CARD, DataCard, PerturbedCells, Scale

SourceName = Literal["twin", "combosciplex", "combosciplex_prep", "norman_devel"]
COMBOSCIPLEX_CARD = DataCard(name="combosciplex", cell_line="A549", modality="drugs, alone and in pairs (sci-Plex)")


class Source(NamedTuple):
    """How one source is read. dataset: in the catalogue. file: in its folder. control: the label of untreated cells."""

    dataset: str
    file: str
    column: str
    control: str | None
    dose: str | None
    card: DataCard
    scale: Scale = "log1p"


SOURCES: Mapping[str, Source] = {
    "combosciplex": Source("combosciplex", "combosciplex.h5ad", "condition", "control", None, COMBOSCIPLEX_CARD),
    "combosciplex_prep": Source(
        "combosciplex_prep",
        "combo_sciplex_prep_hvg_filtered.h5ad",
        "condition_ID",
        "CHEMBL504",
        "log_dose",
        COMBOSCIPLEX_CARD,
    ),
    "norman_devel": Source("norman", "devel.h5ad", "condition", None, None, NORMAN_CARD),
}
NAMES: tuple[SourceName, ...] = ("twin", "combosciplex", "combosciplex_prep", "norman_devel")


@dataclass(frozen=True)
class CombinationCells:
    """Cells and, where the source has them, one dose for every target of every cell, in the order of its targets."""

    source: SourceName
    cells: PerturbedCells
    doses: tuple[tuple[float, ...], ...] | None = None
    held_out: tuple[Condition, ...] | None = None

    @property
    def synthetic(self) -> bool:
        """Whether the cells were generated."""
        return self.source == "twin"


def open_combinations(source: SourceName, data: Path | None, split_column: str | None = None) -> CombinationCells:
    """Read a source: a file or folder given as `data`, else the catalogue's places. Raises DataError.

    split_column: an obs column whose "test" or "ood" cells are the held-out combinations.
    """
    if source == "twin":
        if data is not None or split_column is not None:
            raise DataError("the twin is generated: it reads no data and has no split column; name a source")
        return CombinationCells("twin", make_twin())
    spec = SOURCES[source]
    found = locate(spec.dataset, data)
    return from_combinations(read_h5ad(found / spec.file if found.is_dir() else found), source, spec, split_column)


def from_combinations(
    adata: Any, source: SourceName, spec: Source, split_column: str | None = None
) -> CombinationCells:
    """As `open_combinations`, from an AnnData object, which is not changed."""
    if spec.column not in adata.obs:
        raise DataError(f"obs has no column {spec.column!r} with the combination; it has {', '.join(adata.obs)}")
    view = _with_condition(adata, spec.column)
    controls = CONTROL_LABELS if spec.control is None else (spec.control,)
    held_out = None if split_column is None else _held_out(view, split_column, controls)
    cells = from_anndata(view, card=spec.card, scale=spec.scale, control=spec.control)
    if spec.dose is None:
        return CombinationCells(source, cells, held_out=held_out)
    if spec.dose not in adata.obs:
        raise DataError(f"obs has no column {spec.dose!r} with the doses; it has {', '.join(adata.obs)}")
    wanted = _rows_by_barcode(view)
    labels, texts = view.obs["condition"].astype(str), view.obs[spec.dose].astype(str)
    rows = [wanted[barcode] for barcode in cells.barcodes]
    doses = tuple(target_doses(labels.iloc[row], texts.iloc[row], controls) for row in rows)
    check_doses(cells, doses)
    return CombinationCells(source, cells, doses, held_out)


def _held_out(view: Any, column: str, controls: Collection[str]) -> tuple[Condition, ...]:
    if column not in view.obs:
        raise DataError(f"obs has no split column {column!r}; it has {', '.join(view.obs)}")
    labels, split = view.obs["condition"].astype(str), view.obs[column].astype(str)
    return held_out_of_split(labels, split, controls=controls)


def held_out_of_split(
    labels: Iterable[str],
    split: Iterable[str],
    *,
    test: Collection[str] = ("test", "ood"),
    controls: Collection[str] = CONTROL_LABELS,
) -> tuple[Condition, ...]:
    """The combinations that a split column holds out, whole. Raises DataError for one that it tears apart.

    labels, split: one a cell. A combination with cells in a test part and cells elsewhere is in both.
    """
    parts: dict[Condition, set[str]] = {}
    for label, part in zip(labels, split, strict=True):
        parts.setdefault(normalise_condition(label, controls), set()).add(part)
    torn = {c: found for c, found in parts.items() if found & set(test) and found - set(test)}
    if torn:
        said = "; ".join(f"{c.id} is in both {' and '.join(_train_first(found, test))}" for c, found in torn.items())
        raise DataError(f"{said}: a held-out combination is held out with every cell of it")
    return tuple(sorted(condition for condition, found in parts.items() if found <= set(test)))


def _train_first(parts: set[str], test: Collection[str]) -> Sequence[str]:
    return sorted(parts, key=lambda part: (part in test, part))


def _with_condition(adata: Any, column: str) -> Any:
    if column == "condition":
        return adata
    import anndata

    obs = adata.obs.assign(condition=adata.obs[column])
    return anndata.AnnData(adata.X, obs=obs, var=adata.var)


def _rows_by_barcode(adata: Any) -> dict[str, int]:
    names = [str(name) for name in adata.obs_names]
    found = {name: row for row, name in enumerate(names)}
    if len(found) != len(names):
        raise DataError(f"{len(names) - len(found)} cells share a barcode with another: doses cannot be told apart")
    return found

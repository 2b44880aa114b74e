"""Perturbed cells from an AnnData file: labels, genes and scale are checked once, here.

Reads GEARS' form (obs `condition` with `ctrl`, `A+ctrl`, `A+B`; var `gene_name`), PerturBench's form (several studies
in one file, obs `dataset`), and plain labels `A`, `A+B` in any order. What is set aside is named, with counts, in
`PerturbedCells.report`. anndata is imported when a file is read, not before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evidence.conditions import CONTROL, Condition, choose_control, normalise_condition
from evidence.errors import DataError
from evidence.perturbed import NORMAN_CARD, DataCard, PerturbedCells, Scale, checked_matrix, content_sha256

COUNTS_PER_CELL = 1e4
_CONDITION_COLUMNS = ("condition", "perturbation", "perturbation_name")
_GENE_COLUMNS = ("gene_name", "gene_symbol", "gene_symbols", "feature_name", "symbol")
_DEPTH_COLUMNS = ("ncounts", "n_counts", "total_counts", "UMI_count")


def read_cells(
    path: Path,
    *,
    card: DataCard | None = NORMAN_CARD,
    scale: Scale = "log1p",
    control: str | None = None,
    duplicates: Literal["error", "label"] = "error",
) -> PerturbedCells:
    """Read an .h5ad file. Raises DataError where the file is not what was declared.

    scale: what X holds; counts are scaled to 1e4 a cell and log1p is taken, log1p values stay as they are.
    control: the label of unperturbed cells, exactly; None means `ctrl` or `control`.
    duplicates: a symbol with several columns is an error, or each is kept as `SYMBOL (id)`, none as `SYMBOL`.
    """
    if not path.is_file():
        raise DataError(f"no file {path}")
    return from_anndata(_read_h5ad(path), card=card, scale=scale, control=control, duplicates=duplicates)


def from_anndata(
    adata: Any,
    *,
    card: DataCard | None = NORMAN_CARD,
    scale: Scale = "log1p",
    control: str | None = None,
    duplicates: Literal["error", "label"] = "error",
) -> PerturbedCells:
    """As `read_cells`, from an AnnData object, which is not changed."""
    facts = card or DataCard(name="unnamed data")
    report: list[str] = []
    adata = _one_study(adata, facts, report)
    genes = _gene_names(adata, duplicates, report)
    _report_cell_line(adata, card, report)
    keep, conditions = _labels(adata, control, report)
    barcodes = tuple(str(name) for name in adata.obs_names[keep])
    x = checked_matrix(adata.X, scale)[keep]
    full = _non_empty(adata.obs.iloc[keep], x, barcodes, scale, report)
    x = _to_log1p(x[full]) if scale == "counts" else x[full]
    conditions, barcodes = (tuple(values[i] for i in full) for values in (conditions, barcodes))
    if CONTROL not in conditions:
        raise DataError("no control cell is left after empty cells were dropped")
    _report_unmeasured(conditions, genes, report)
    sha = content_sha256(x, genes, conditions, barcodes)
    return PerturbedCells(x, genes, conditions, barcodes, facts, sha, tuple(report))


def _read_h5ad(path: Path) -> Any:
    import warnings

    try:
        import anndata
    except ImportError as error:
        raise DataError('anndata is not installed. Install it with: pip install -e ".[cells]"') from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old files warn about their own format
        return anndata.read_h5ad(path)


def _one_study(adata: Any, card: DataCard, report: list[str]) -> Any:
    if "dataset" not in adata.obs:
        return adata
    counts = Counter(str(value) for value in adata.obs["dataset"])
    if len(counts) == 1 and (card.study is None or card.study in counts):
        return adata
    shown = ", ".join(f"{name} ({n})" for name, n in sorted(counts.items()))
    if card.study is None or card.study not in counts:
        raise DataError(f"the file holds the studies {shown}; the data card of {card.name} names {card.study!r}")
    report.append(f"study {card.study}: {counts[card.study]} of {sum(counts.values())} cells ({shown})")
    return adata[(adata.obs["dataset"].astype(str) == card.study).to_numpy()]


def _gene_names(adata: Any, duplicates: str, report: list[str]) -> tuple[str, ...]:
    column = next((name for name in _GENE_COLUMNS if name in adata.var), None)
    ids = [str(name) for name in adata.var_names]
    symbols = ids if column is None else [str(v).strip() for v in adata.var[column].astype(object).fillna("")]
    names = [symbol or gene_id for symbol, gene_id in zip(symbols, ids, strict=True)]
    twice = [name for name, n in sorted(Counter(names).items()) if n > 1]
    if twice:
        which = "; ".join(f"{s}: {', '.join(i for n, i in zip(names, ids, strict=True) if n == s)}" for s in twice)
        if duplicates == "error":
            raise DataError(
                f"gene symbol with several columns: {which}. duplicates='label' keeps them as 'SYMBOL (id)'"
            )
        names = [f"{name} ({i})" if name in twice else name for name, i in zip(names, ids, strict=True)]
        report.append(f"gene symbols with several columns, kept apart as 'SYMBOL (id)': {which}")
    if len(set(names)) != len(names):
        raise DataError("gene ids are not unique: columns cannot be told apart")
    return tuple(names)


def _report_cell_line(adata: Any, card: DataCard | None, report: list[str]) -> None:
    if card is None:
        report.append("no data card: cell line and modality unknown; the file's columns are not taken for facts")
    elif "cell_type" in adata.obs:
        said = sorted({str(value) for value in adata.obs["cell_type"]})
        if [name.casefold() for name in said] != [card.cell_line.casefold()]:
            report.append(
                f"the file's cell_type says {', '.join(said)}; the data card says {card.cell_line}: card used"
            )


def _labels(adata: Any, control: str | None, report: list[str]) -> tuple[NDArray[np.intp], tuple[Condition, ...]]:
    column = next((name for name in _CONDITION_COLUMNS if name in adata.obs), None)
    if column is None:
        raise DataError(f"obs has none of the columns {', '.join(_CONDITION_COLUMNS)}; it has {', '.join(adata.obs)}")
    labels = [value if isinstance(value, str) else "" for value in adata.obs[column].astype(object)]
    counts = Counter(label.strip() for label in labels)
    controls = choose_control(counts, control)
    read: dict[str, Condition] = {}
    refused: dict[str, str] = {}
    for label in sorted(counts):
        try:
            read[label] = normalise_condition(label, controls)
        except DataError as error:
            refused[label] = str(error).partition(": ")[2]
    for label, reason in refused.items():
        report.append(f"set aside {label!r}: {counts[label]} cells ({reason})")
    keep = np.array([row for row, label in enumerate(labels) if label.strip() in read], dtype=np.intp)
    return keep, tuple(read[labels[row].strip()] for row in keep)


def _non_empty(
    obs: Any, x: sparse.csr_matrix, barcodes: Sequence[str], scale: Scale, report: list[str]
) -> NDArray[np.intp]:
    """Rows with any count. A log1p row of zeros counts where the file's own depth column says that it was sequenced."""
    full = np.asarray(x.sum(axis=1)).ravel() > 0
    depth = next((name for name in _DEPTH_COLUMNS if name in obs), None)
    if scale == "log1p" and depth is not None:
        full = full | (obs[depth].to_numpy(dtype=float) > 0)
    empty = np.flatnonzero(~full)
    if empty.size:
        shown = ", ".join(barcodes[i] for i in empty[:5]) + (" ..." if empty.size > 5 else "")
        report.append(f"dropped {empty.size} empty cells: {shown}")
    return np.flatnonzero(full)


def _to_log1p(x: sparse.csr_matrix) -> sparse.csr_matrix:
    totals = np.asarray(x.sum(axis=1, dtype=np.float64)).ravel()
    scaled = sparse.csr_matrix(sparse.diags(COUNTS_PER_CELL / totals) @ x)
    scaled.data = np.log1p(scaled.data)
    return scaled.astype(np.float32)


def _report_unmeasured(conditions: Iterable[Condition], genes: Iterable[str], report: list[str]) -> None:
    missing = sorted({target for condition in conditions for target in condition.targets} - set(genes))
    if missing:
        shown = ", ".join(missing[:10]) + (" ..." if len(missing) > 10 else "")
        report.append(f"{len(missing)} perturbed genes are not measured (usable as perturbations): {shown}")

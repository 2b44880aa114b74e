"""The rules that freeze a signaling case file: split, levels, readouts, thresholds. Each looks at baseline cells only.

The split comes first, by a seed and the condition's id alone. Everything after it that shapes a case (cut points, the
choice of readouts, thresholds) is computed from the training part of the baseline cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from evidence.cell_split import HALF, Parts, Rows, Share, check_parts, split_rows
from evidence.discrete import HIGH, N_LEVELS
from evidence.sachs import SachsCells
from evidence.sachs_conditions import PROTEINS, Condition, Kind, conditions
from evidence.values import Value, derive_seed

Levels: TypeAlias = NDArray[np.int8]
Shape = Literal["published", "extended"]

RESERVED_CELLS = 96
BASELINE = Share(truth=Fraction(1, 3), least=3)
INTERVENTION = Share(reserved=RESERVED_CELLS, truth=HALF, least=RESERVED_CELLS + 2)
N_READOUTS = 6
Z = 1.96

RULES: Mapping[str, str] = {
    "split": "rows of each condition are permuted with a seed derived from (seed, 'split', condition). Baseline: two "
    "thirds training, one third truth. Intervention: 96 reserved cells; of the rest, one half training (responses for "
    "the adapters of other cases), one half truth",
    "levels": "fluorescence: tertiles of the training baseline cells (values that occur); low <= first cut < "
    "middle <= second cut < high. Discretised files keep their levels 1, 2, 3",
    "interventions": "published: for each measured protein that a reagent acts on directly, the first such condition. "
    "extended: every intervention",
    "readouts": "published: proteins that none of the interventions acts on, in panel order; if more than six, the six "
    "of largest entropy of their levels in training baseline cells. extended: every protein but the target",
    "value": "fraction of cells in the high state, perturbed minus baseline. Truth: truth cells of both. Observation: "
    "96 reserved cells against training baseline. Response: training cells of both. Standard errors are binomial, at "
    "(k + 1) / (n + 2)",
    "threshold": "1.96 sqrt(p0 (1 - p0) (1/96 + 1/n0)) rounded to 4 decimals; p0 the high-state fraction of the n0 "
    "training baseline cells, held within [1/96, 95/96]",
}


class SignalingFrozen(Value):
    """What a signaling case file fixes.

    cuts: protein -> the two cut points in fluorescence units (empty where levels are given). edges: (parent, child).
    baseline_high: protein -> high-state fraction of training baseline cells. thresholds: protein -> class threshold.
    split: condition -> part -> number of cells. rules: how it was all made, in words.
    """

    kind: Kind
    shape: Shape
    graph: str
    edges: tuple[tuple[str, str], ...]
    cuts: dict[str, tuple[float, float]]
    baseline_high: dict[str, float]
    thresholds: dict[str, float]
    reserved_cells: int
    split: dict[str, dict[str, int]]
    rules: dict[str, str]


class Change(NamedTuple):
    """A change of the high-state fraction, its standard error, and the number of perturbed cells behind it."""

    value: float
    se: float
    n_cells: int


def split_cells(cells: SachsCells, seed: int) -> dict[str, Parts]:
    """The disjoint parts of every condition of the file, in canonical order. Looks at no value of any cell.

    Raises DataError if a condition is missing or has too few cells.
    """
    parts = {
        entry.id: split_rows(
            cells.rows(entry.id),
            BASELINE if entry.baseline else INTERVENTION,
            derive_seed(seed, "split", entry.id),
            f"condition {entry.id}",
        )
        for entry in conditions(cells.kind)
    }
    check_parts(parts, len(cells.values))
    return parts


def baseline_rows(parts: Mapping[str, Parts], kind: Kind, part: Literal["training", "truth"]) -> Rows:
    """Rows of one part, pooled over the baseline conditions."""
    return np.concatenate([getattr(parts[entry.id], part) for entry in conditions(kind) if entry.baseline])


def find_cuts(cells: SachsCells, rows: Rows) -> dict[str, tuple[float, float]]:
    """Protein -> tertiles of the given rows, values that occur, in fluorescence units; empty if levels are given."""
    if cells.kind == "levels":
        return {}
    cuts = np.quantile(cells.values[rows], (1 / 3, 2 / 3), axis=0, method="inverted_cdf")
    return {name: (float(cuts[0, at]), float(cuts[1, at])) for at, name in enumerate(cells.proteins)}


def to_levels(cells: SachsCells, cuts: Mapping[str, tuple[float, float]]) -> Levels:
    """(n, 11) int8 levels 0, 1, 2 of all cells."""
    if cells.kind == "levels":
        return (cells.values - 1).astype(np.int8)
    pairs = np.array([cuts[name] for name in cells.proteins])
    return ((cells.values > pairs[:, 0]).astype(np.int8) + (cells.values > pairs[:, 1])).astype(np.int8)


def high_fraction(levels: Levels, rows: Rows, protein: str) -> float:
    """Fraction of the cells in the high state."""
    return float((levels[rows, PROTEINS.index(protein)] == HIGH).mean())


def change(levels: Levels, perturbed: Rows, baseline: Rows, protein: str) -> Change:
    """High-state fraction of the perturbed cells minus that of the baseline cells."""
    after, before = high_fraction(levels, perturbed, protein), high_fraction(levels, baseline, protein)
    se = np.sqrt(_variance(after, len(perturbed)) + _variance(before, len(baseline)))
    return Change(after - before, float(se), len(perturbed))


def threshold(p0: float, n0: int) -> float:
    """Class threshold: a change measured in 96 cells leaves +-threshold in 5 % of repeats if nothing changed."""
    held = min(max(p0, 1 / RESERVED_CELLS), 1 - 1 / RESERVED_CELLS)
    return round(Z * float(np.sqrt(held * (1 - held) * (1 / RESERVED_CELLS + 1 / n0))), 4)


def choose_interventions(kind: Kind, shape: Shape) -> tuple[Condition, ...]:
    """The interventions of a shape, in canonical order. Looks at no cell."""
    every = [entry for entry in conditions(kind) if not entry.baseline]
    if shape == "extended":
        return tuple(every)
    first: dict[str | None, Condition] = {}
    for entry in every:
        if not entry.proxy:
            first.setdefault(entry.target, entry)
    return tuple(first.values())


def choose_readouts(
    entries: Sequence[Condition], shape: Shape, levels: Levels, rows: Rows
) -> dict[str, tuple[str, ...]]:
    """Condition -> its readouts in panel order. levels, rows: training baseline cells."""
    if shape == "extended":
        return {entry.id: tuple(name for name in PROTEINS if name != entry.target) for entry in entries}
    free = [name for name in PROTEINS if name not in {entry.target for entry in entries}]
    ranked = sorted(free, key=lambda name: -_entropy(levels[rows, PROTEINS.index(name)]))[:N_READOUTS]
    return {entry.id: tuple(name for name in free if name in ranked) for entry in entries}


def _variance(p: float, n: int) -> float:
    held = (p * n + 1) / (n + 2)
    return held * (1 - held) / n


def _entropy(column: Levels) -> float:
    p = np.bincount(column, minlength=N_LEVELS) / len(column)
    return float(-(p[p > 0] * np.log(p[p > 0])).sum())

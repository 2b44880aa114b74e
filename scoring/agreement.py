"""Agreement between raters: quadratic-weighted kappa, Fleiss' kappa, Krippendorff's alpha.

Where every rating is the same, chance agreement is 1 and the coefficient is 0/0: it is None with a reason, not 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evidence.errors import ContractError
from scoring.metrics import Array

GRADES = (1, 2, 3, 4, 5)
Level = Literal["nominal", "ordinal", "interval"]
_NO_VARIATION = "all ratings are the same: agreement beyond chance is not defined"


class Agreement(NamedTuple):
    """A coefficient over n rated units; None with a reason where it is not defined."""

    value: float | None
    n: int
    reason: str = ""


def quadratic_kappa(first: Sequence[int], second: Sequence[int], labels: Sequence[int] = GRADES) -> Agreement:
    """Quadratic-weighted Cohen's kappa (Cohen 1968) of two raters' grades, all `labels` taken as possible.

    Raises ContractError where a grade is no label or the lengths differ.
    """
    if len(first) != len(second):
        raise ContractError(f"expected grades of the same units, got {len(first)} and {len(second)}")
    other = sorted({*first, *second} - set(labels))
    if other:
        raise ContractError(f"grade {other[0]!r} is none of {list(labels)}")
    if not len(first):
        return Agreement(None, 0, "no unit was rated by both")
    if len({*first, *second}) == 1:
        return Agreement(None, len(first), _NO_VARIATION)
    from sklearn.metrics import cohen_kappa_score

    value = float(cohen_kappa_score(first, second, labels=list(labels), weights="quadratic"))
    return Agreement(value, len(first))


def fleiss(counts: ArrayLike) -> Agreement:
    """Fleiss' kappa (Fleiss 1971). counts (units, categories): how many raters chose each category, rows alike in sum.

    Raises ContractError where rows have different numbers of raters, or fewer than two.
    """
    table = np.asarray(counts)
    if table.ndim != 2 or (table < 0).any():
        raise ContractError(f"expected counts of shape (units, categories), got {table.shape}")
    raters = table.sum(axis=1)
    if len(table) and (raters.min() != raters.max() or raters.min() < 2):
        raise ContractError(
            f"expected the same number of raters, at least 2, for every unit; got {sorted(set(raters.tolist()))}"
        )
    if not len(table):
        return Agreement(None, 0, "no unit was rated")
    if (table.sum(axis=0) > 0).sum() == 1:
        return Agreement(None, len(table), _NO_VARIATION)
    from statsmodels.stats.inter_rater import fleiss_kappa

    return Agreement(float(fleiss_kappa(table, method="fleiss")), len(table))


def krippendorff(ratings: Sequence[Sequence[float | None]], level: Level) -> Agreement:
    """Krippendorff's alpha (Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability").

    ratings (raters, units): numbers, None where a rater did not rate. Units with fewer than two ratings have no pair
    and are left out; `n` counts the others. `level` is the distance: nominal, ordinal (ranks) or interval (squared).
    """
    table = np.array([[math.nan if v is None else float(v) for v in row] for row in ratings], dtype=float)
    if table.ndim != 2:
        raise ContractError("expected one row of ratings a rater, all of the same length")
    units = [column[~np.isnan(column)] for column in table.T]
    paired = [unit for unit in units if len(unit) >= 2]
    if not paired:
        return Agreement(None, 0, "no unit was rated twice")
    values = np.unique(np.concatenate(paired))
    if len(values) == 1:
        return Agreement(None, len(paired), _NO_VARIATION)
    coincidences = np.zeros((len(values), len(values)))
    for unit in paired:
        counts = np.bincount(np.searchsorted(values, unit), minlength=len(values)).astype(float)
        coincidences += (np.outer(counts, counts) - np.diag(counts)) / (len(unit) - 1)
    totals = coincidences.sum(axis=1)
    distance = _distance(values, totals, level)
    observed = float((coincidences * distance).sum())
    expected = float((np.outer(totals, totals) * distance).sum()) / (float(totals.sum()) - 1)
    return Agreement(1.0 - observed / expected, len(paired))


def _distance(values: Array, totals: Array, level: Level) -> Array:
    """Squared distances between the values, (v, v)."""
    if level == "nominal":
        unlike: NDArray[np.bool_] = values[:, None] != values[None, :]
        return unlike.astype(float)
    # ordinal: the ratings between two values, with half of those at either end
    position = values if level == "interval" else np.cumsum(totals) - totals / 2
    apart: Array = (position[:, None] - position[None, :]) ** 2
    return apart

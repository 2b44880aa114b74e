"""Metrics of answered readouts. A missing answer is counted, never replaced; an aggregate of nothing is None."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
DIGITS = 6
"""Scores are rounded to this many decimals when they are written."""


@overload
def rounded(value: float) -> float: ...
@overload
def rounded(value: float | None) -> float | None: ...


def rounded(value: float | None) -> float | None:
    """A float fit for a score file: rounded, and never NaN or infinite (ValueError)."""
    if value is None:
        return None
    if not math.isfinite(value):
        raise ValueError(f"expected a finite score, got {value}")
    return round(value, DIGITS) + 0.0


def rounded_all(values: Array) -> Array:
    """`rounded` of many numbers, (n,); NaN, in memory only, stays.

    Where k = values * 10**DIGITS, rounded, is certain in spite of the rounding of this product, k / 10**DIGITS is the
    float nearest to the rounded decimal, which is what `round` gives.
    """
    scaled = np.clip(values, -1e8, 1e8) * 10.0**DIGITS
    k = np.rint(scaled)
    certain = (np.abs(scaled - k) < 0.499) & (np.abs(k) < 2.0**43)
    found = np.asarray(k / 10.0**DIGITS + 0.0)
    for n in np.flatnonzero(~(certain | np.isnan(values))).tolist():
        found[n] = rounded(float(values[n]))
    return found


def wilson(successes: int, n: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a proportion (Wilson 1927)."""
    z2 = 1.959963984540054**2
    centre = (successes + z2 / 2) / (n + z2)
    half = math.sqrt(z2) / (n + z2) * math.sqrt(successes * (n - successes) / n + z2 / 4)
    return max(0.0, centre - half), min(1.0, centre + half)


class Marks(NamedTuple):
    """One row of a table: answers to n readouts against their truth.

    cluster (n,): index of the case; truth, label (n,): index of the class, -1 for a missing label; error (n,): absolute
    error of the value, NaN (in memory only) for a missing one.
    """

    cluster: NDArray[np.intp]
    truth: NDArray[np.intp]
    label: NDArray[np.intp]
    error: Array

    def where(self, mask: NDArray[np.bool_]) -> Marks:
        """The readouts chosen by a mask (n,)."""
        return Marks(self.cluster[mask], self.truth[mask], self.label[mask], self.error[mask])


def confusion(marks: Marks, clusters: int, classes: int) -> NDArray[np.int64]:
    """Counts (clusters, classes, classes + 1) of true class by answered class; the last column is "missing"."""
    answered = np.where(marks.label < 0, classes, marks.label)
    place = (marks.cluster * classes + marks.truth) * (classes + 1) + answered
    size = clusters * classes * (classes + 1)
    return np.bincount(place, minlength=size).reshape(clusters, classes, classes + 1)


def macro_f1(counts: NDArray[Any]) -> Array:
    """Mean F1 over the classes in truth or answers, (..., classes, classes + 1) -> (...)."""
    square = counts[..., :, :-1]
    return mean_f1(np.diagonal(square, axis1=-2, axis2=-1), counts.sum(axis=-1) + square.sum(axis=-2))


def mean_f1(right: NDArray[Any], shown: NDArray[Any]) -> Array:
    """Mean F1 from right answers and from how often a class is in truth and in answers, (..., classes) -> (...)."""
    return _ratio(np.nansum(_ratio(2 * right, shown), axis=-1), (shown > 0).sum(axis=-1))


def mean_error(sums: NDArray[Any], counts: NDArray[Any]) -> Array:
    """Mean absolute error from sums of errors and their counts."""
    return _ratio(sums, counts)


def _ratio(part: NDArray[Any], whole: NDArray[Any]) -> Array:
    """part / whole, NaN where there is nothing to divide by."""
    part, whole = np.asarray(part, dtype=float), np.asarray(whole, dtype=float)
    result: Array = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
    return result

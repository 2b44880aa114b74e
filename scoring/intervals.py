"""Scores with case-bootstrap intervals: cases are drawn with replacement, all readouts of a case together."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scoring.metrics import Array, Marks, confusion, macro_f1, mean_error, mean_f1, rounded, wilson

DRAWS = 2000


BLOCK = 50
"""Draws made at a time: small enough to stay in the processor's cache, whatever the number of cases."""


def draw_cases(n_cases: int, seed: int, draws: int = DRAWS) -> NDArray[np.int64]:
    """How often each case is in each draw: (draws, n_cases). One matrix serves every row, so that rows are paired."""
    weights = np.empty((draws, n_cases), dtype=np.int64)
    for start, counts in _counts(n_cases, seed, draws):
        weights[start : start + len(counts)] = counts
    return weights


class Draws:
    """Sums of columns over every draw of the cases. One set of draws serves all columns, so that rows are paired.

    Columns are added first; the first sum that is asked for draws them all in one pass, without the matrix of
    `draw_cases`, whose draws these are.
    """

    def __init__(self, n_cases: int, seed: int, draws: int = DRAWS):
        self.n_cases, self.seed, self.draws = n_cases, seed, draws
        self._columns: list[Array] = []
        self._known: dict[bytes, int] = {}
        self._sums: Array | None = None

    def add(self, column: ArrayLike) -> int:
        """Add one number a case, (n_cases,). Its place, the same for the same numbers. Raises RuntimeError if drawn."""
        if self._sums is not None:
            raise RuntimeError("expected all columns before the first sum is asked for")
        values = np.ascontiguousarray(column, dtype=float)
        place = self._known.setdefault(hashlib.sha256(values.tobytes()).digest(), len(self._columns))
        if place == len(self._columns):
            self._columns.append(values)
        return place

    def sums(self, *places: int) -> Array:
        """The sums of columns in every draw, (draws, columns)."""
        if self._sums is None:
            from threadpoolctl import threadpool_limits

            table = np.stack(self._columns, axis=1)
            self._columns = []
            drawn = _counts(self.n_cases, self.seed, self.draws)
            with threadpool_limits(1, "blas"):  # on blocks this small, threads wait longer than they work
                self._sums = np.concatenate([counts.astype(float) @ table for _, counts in drawn])
        return self._sums[:, list(places)]


def drawn_ratios(sums: Array, counts: Array, seed: int, draws: int = DRAWS) -> Array:
    """Sum over count in every draw of the clusters, (k,), (k,) -> (draws,); NaN where a draw counts nothing.

    The draws are those of `draw_cases`, without their matrix: one gather of both columns, held as one complex number.
    """
    both, ratios = sums + 1j * counts, np.empty(draws)
    gathered = np.empty((min(BLOCK, draws), len(sums)), dtype=complex)
    for start, picks in _picks(len(sums), seed, draws):
        block = gathered[: len(picks)]
        np.take(both, picks, out=block, mode="clip")  # "raise" would buffer the output
        total = block.sum(axis=1)
        ratios[start : start + len(picks)] = mean_error(total.real, total.imag)
    return ratios


def _picks(n: int, seed: int, draws: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """The clusters of each draw, (block, n), and the number of the block's first draw."""
    rng = np.random.default_rng(seed)
    for start in range(0, draws, BLOCK):
        yield start, rng.integers(0, n, size=(min(BLOCK, draws - start), n))


def _counts(n: int, seed: int, draws: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """How often each cluster is in each draw, (block, n), and the number of the block's first draw."""
    for start, picks in _picks(n, seed, draws):
        flat = picks + np.arange(0, picks.size, n)[:, None]
        yield start, np.bincount(flat.ravel(), minlength=picks.size).reshape(picks.shape)


Later = Callable[[], dict[str, Any]]
"""Gives its result when the columns of all others were added to the draws, too."""


def score(marks: Marks, classes: int, draws: Draws) -> Later:
    """Accuracy, macro-F1 and mean absolute error with 95 % percentile intervals, and every count behind them.

    Where all draws agree the bootstrap has seen no variation and says nothing of the uncertainty: an accuracy of 0 or 1
    then gets the Wilson interval for the number of cases, anything else has no interval.
    """
    counts = confusion(marks, draws.n_cases, classes)
    valued = np.isfinite(marks.error)
    mae = mean_of_cases(marks.error[valued], marks.cluster[valued], draws)
    square = counts[..., :, :-1]
    right = np.diagonal(square, axis1=-2, axis2=-1)
    shown = counts.sum(axis=-1) + square.sum(axis=-2)
    rights, showns = ([draws.add(columns[:, c]) for c in range(classes)] for columns in (right, shown))
    n_right, n, n_values, total = int(right.sum()), len(marks.truth), int(valued.sum()), counts.sum(axis=0)
    n_cases = int(np.count_nonzero(counts.any(axis=(1, 2))))
    of_all = _proportion(n_right, rights, counts.sum(axis=(1, 2)), draws)
    of_answered = _proportion(n_right, rights, square.sum(axis=(1, 2)), draws)
    n_answered = int(total[:, :-1].sum())
    return lambda: {
        "n": n,
        "n_cases": n_cases,
        "n_answered": n_answered,
        "n_missing": n - n_answered,
        "n_right": n_right,
        "accuracy": of_all(),
        "accuracy_of_answered": of_answered(),
        "macro_f1": _estimate(macro_f1(total), mean_f1(draws.sums(*rights), draws.sums(*showns))),
        "mae": mae(),
        "n_values": n_values,
    }


def mean_of_cases(values: Array, cluster: NDArray[np.intp], draws: Draws) -> Later:
    """The mean of values (n,) that belong to cases (n,), with its interval."""
    sums = np.bincount(cluster, weights=values, minlength=draws.n_cases).astype(float)
    counts = np.bincount(cluster, minlength=draws.n_cases).astype(float)
    places, point = (draws.add(sums), draws.add(counts)), mean_error(sums.sum(), counts.sum())

    def result() -> dict[str, float | None]:
        drawn = draws.sums(*places)
        return _estimate(point, mean_error(drawn[:, 0], drawn[:, 1]))

    return result


def _proportion(n_right: int, rights: Sequence[int], whole: NDArray[np.int64], draws: Draws) -> Later:
    """The share of right answers; whole (n_cases,) counts what it is a share of."""
    place, n_cases, point = draws.add(whole), int((whole > 0).sum()), mean_error(np.array(n_right), whole.sum())

    def result() -> dict[str, float | None]:
        if n_cases and point in (0.0, 1.0):
            low, high = wilson(n_cases if point else 0, n_cases)
            return {"value": rounded(float(point)), "low": rounded(low), "high": rounded(high)}
        return _estimate(point, mean_error(draws.sums(*rights).sum(axis=1), draws.sums(place)[:, 0]))

    return result


def _estimate(point: Array, draws: Array) -> dict[str, float | None]:
    usable = draws[np.isfinite(draws)]
    if not np.isfinite(point):
        return {"value": None, "low": None, "high": None}
    if not len(usable) or float(np.ptp(usable)) < 1e-12:
        return {"value": rounded(float(point)), "low": None, "high": None}
    low, high = percentiles(usable, (0.025, 0.975))
    return {"value": rounded(float(point)), "low": rounded(float(low)), "high": rounded(float(high))}


def percentiles(values: Array, shares: Sequence[float]) -> list[float]:
    """np.percentile of finite values (n,), with linear interpolation, at a tenth of its time.

    A share falls between two of the sorted values; the steps from these to the result are numpy's, to the last digit.
    """
    places = [(len(values) - 1) * share for share in shares]
    below = [min(math.floor(place), max(len(values) - 2, 0)) for place in places]
    around = [(n, min(n + 1, len(values) - 1)) for n in below]
    ordered = np.partition(values, sorted({n for pair in around for n in pair}))
    found = []
    for place, (n, after) in zip(places, around, strict=True):
        low, high, part = float(ordered[n]), float(ordered[after]), place - n
        found.append(low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part))
    return found

"""Scores with case-bootstrap intervals: cases are drawn with replacement, all readouts of a case together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scoring.metrics import Array, Marks, accuracy, confusion, macro_f1, mean_error, rounded, wilson

DRAWS = 2000


BLOCK = 50
"""Draws made at a time: small enough to stay in the processor's cache, whatever the number of cases."""


def draw_cases(n_cases: int, seed: int, draws: int = DRAWS) -> NDArray[np.int64]:
    """How often each case is in each draw: (draws, n_cases). One matrix serves every row, so that rows are paired."""
    weights = np.empty((draws, n_cases), dtype=np.int64)
    for start, picks in _picks(n_cases, seed, draws):
        flat = picks + np.arange(0, picks.size, n_cases)[:, None]
        counts = np.bincount(flat.ravel(), minlength=picks.size)
        weights[start : start + len(picks)] = counts.reshape(picks.shape)
    return weights


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


def score(marks: Marks, classes: int, weights: NDArray[np.int64]) -> dict[str, Any]:
    """Accuracy, macro-F1 and mean absolute error with 95 % percentile intervals, and every count behind them.

    Where all draws agree the bootstrap has seen no variation and says nothing of the uncertainty: an accuracy of 0 or 1
    then gets the Wilson interval for the number of cases, anything else has no interval.
    """
    n_cases = weights.shape[1]
    counts = confusion(marks, n_cases, classes)
    answered = _without_missing(counts)
    valued = np.isfinite(marks.error)
    sums = np.bincount(marks.cluster[valued], weights=marks.error[valued], minlength=n_cases).astype(float)
    values = np.bincount(marks.cluster[valued], minlength=n_cases).astype(float)
    n_answered = int((marks.label >= 0).sum())
    return {
        "n": len(marks.truth),
        "n_cases": len(np.unique(marks.cluster)),
        "n_answered": n_answered,
        "n_missing": len(marks.truth) - n_answered,
        "n_right": int(np.trace(counts.sum(axis=0)[:, :-1])),
        "accuracy": _proportion(counts, weights),
        "accuracy_of_answered": _proportion(answered, weights),
        "macro_f1": _estimate(macro_f1(counts.sum(axis=0)), macro_f1(_drawn(counts, weights))),
        "mae": ratio(sums, values, weights),
        "n_values": int(values.sum()),
    }


def ratio(sums: Array, counts: Array, weights: NDArray[np.int64]) -> dict[str, float | None]:
    """A mean from its per-case sums and counts, (n_cases,) each, with the interval of the draws in `weights`."""
    return _estimate(mean_error(sums.sum(), counts.sum()), mean_error(weights @ sums, weights @ counts))


def _drawn(counts: NDArray[Any], weights: NDArray[np.int64]) -> Array:
    """Counts of every draw, (k, ...) -> (draws, ...). Whole numbers are exact in floats, whose products are quicker."""
    flat = counts.reshape(len(counts), -1).astype(float)
    blocks = [weights[start : start + BLOCK].astype(float) @ flat for start in range(0, len(weights), BLOCK)]
    return np.concatenate(blocks).reshape(len(weights), *counts.shape[1:])


def _without_missing(counts: NDArray[Any]) -> NDArray[Any]:
    answered = counts.copy()
    answered[..., -1] = 0
    return answered


def _proportion(counts: NDArray[Any], weights: NDArray[np.int64]) -> dict[str, float | None]:
    point = accuracy(counts.sum(axis=0))
    n_cases = int((counts.sum(axis=(1, 2)) > 0).sum())
    if n_cases and point in (0.0, 1.0):
        low, high = wilson(n_cases if point else 0, n_cases)
        return {"value": rounded(float(point)), "low": rounded(low), "high": rounded(high)}
    return _estimate(point, accuracy(_drawn(counts, weights)))


def _estimate(point: Array, draws: Array) -> dict[str, float | None]:
    usable = draws[np.isfinite(draws)]
    if not np.isfinite(point):
        return {"value": None, "low": None, "high": None}
    if not len(usable) or float(np.ptp(usable)) < 1e-12:
        return {"value": rounded(float(point)), "low": None, "high": None}
    low, high = np.percentile(usable, [2.5, 97.5])
    return {"value": rounded(float(point)), "low": rounded(float(low)), "high": rounded(float(high))}

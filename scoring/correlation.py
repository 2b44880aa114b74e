"""Correlation over models: few points, so permutation, bootstrap over models and leave-one-family-out stand beside."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evidence.errors import ContractError
from scoring.metrics import Array

DRAWS = 20_000
EXACT_MODELS = 8
"""Up to so many models, all orders are counted for the permutation p value."""


class Coefficient(NamedTuple):
    """One coefficient with its 95 % model-bootstrap interval and two-sided permutation p value.

    `n_undefined` bootstrap draws had fewer than two distinct points and no correlation: they are left out.
    """

    value: float | None
    low: float | None
    high: float | None
    p: float | None
    n: int
    n_undefined: int = 0
    reason: str = ""


class Correlation(NamedTuple):
    """Pearson's r and Spearman's rho of the same points."""

    pearson: Coefficient
    spearman: Coefficient


class LeftOut(NamedTuple):
    """The two coefficients without one family of models."""

    family: str
    n: int
    pearson: float | None
    spearman: float | None


def correlate(x: ArrayLike, y: ArrayLike, *, seed: int, draws: int = DRAWS) -> Correlation:
    """Pearson's and Spearman's correlation of two scores over n models, x and y (n,).

    Fewer than three models, or a score that is the same for all, has no correlation. Raises ContractError for unlike
    lengths or numbers that are not finite.
    """
    a, b = _points(x, y)
    return Correlation(_coefficient(a, b, seed, draws), _coefficient(_ranks(a), _ranks(b), seed, draws, ranked=True))


def leave_one_family_out(x: ArrayLike, y: ArrayLike, families: Sequence[str]) -> tuple[LeftOut, ...]:
    """Both coefficients with each family of models left out in turn, families in the order first seen."""
    a, b = _points(x, y)
    if len(families) != len(a):
        raise ContractError(f"expected one family a model, got {len(families)} for {len(a)}")
    result = []
    for family in dict.fromkeys(families):
        kept = np.array([f != family for f in families])
        left, right = a[kept], b[kept]
        result.append(LeftOut(family, int(kept.sum()), _defined(left, right), _defined(_ranks(left), _ranks(right))))
    return tuple(result)


def _points(x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    a, b = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if a.shape != b.shape or a.ndim != 1:
        raise ContractError(f"expected two scores a model, got {a.shape} and {b.shape}")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ContractError("a score is missing or not finite; correlate the models that have both")
    return a, b


def _ranks(x: Array) -> Array:
    """Ranks along the last axis, ties at their mean."""
    from scipy.stats import rankdata

    ranks: Array = np.asarray(rankdata(x, axis=-1), dtype=float)
    return ranks


def _defined(a: Array, b: Array) -> float | None:
    found = float(_pearson(a, b)) if len(a) >= 3 else math.nan
    return None if math.isnan(found) else found


def _pearson(a: Array, b: Array) -> Array:
    """Pearson's r along the last axis, NaN without variance. Spearman's rho is that of the ranks."""
    u, v = a - a.mean(axis=-1, keepdims=True), b - b.mean(axis=-1, keepdims=True)
    scale = np.sqrt((u**2).sum(axis=-1) * (v**2).sum(axis=-1))
    level = 1e-12 * np.sqrt((a**2).sum(axis=-1) * (b**2).sum(axis=-1))
    defined = scale > level
    r: Array = np.divide((u * v).sum(axis=-1), scale, out=np.full(np.shape(scale), np.nan), where=defined)
    return np.clip(r, -1.0, 1.0)


def _coefficient(a: Array, b: Array, seed: int, draws: int, *, ranked: bool = False) -> Coefficient:
    n, value = len(a), _defined(a, b)
    if value is None:
        reason = "fewer than three models" if n < 3 else "one of the scores is the same for every model"
        return Coefficient(None, None, None, None, n, 0, reason)
    rng = np.random.default_rng(seed)
    picks = rng.integers(0, n, size=(draws, n))
    # a draw repeats models, so its ranks are its own
    drawn = (_ranks(a[picks]), _ranks(b[picks])) if ranked else (a[picks], b[picks])
    found = _pearson(*drawn)
    usable = found[np.isfinite(found)]
    low, high = np.percentile(usable, [2.5, 97.5]) if len(usable) else (None, None)
    return Coefficient(
        value,
        None if low is None else float(low),
        None if high is None else float(high),
        _permutation_p(a, b, abs(value), rng, draws),
        n,
        draws - len(usable),
    )


def _permutation_p(a: Array, b: Array, observed: float, rng: np.random.Generator, draws: int) -> float:
    """Two-sided: all orders of up to EXACT_MODELS models, else seeded ones and the observed one with them."""
    n, limit = len(a), observed - 1e-9
    if n <= EXACT_MODELS:
        orders: NDArray[np.intp] = np.array(list(itertools.permutations(range(n))), dtype=np.intp)
        return float((np.abs(_pearson(a, b[orders])) >= limit).mean())
    shuffled = rng.permuted(np.broadcast_to(b, (draws, n)), axis=1)
    return (int((np.abs(_pearson(a, shuffled)) >= limit).sum()) + 1) / (draws + 1)

"""Two answerers on the same items: exact McNemar, cluster sign-flip permutation, paired difference, Holm.

`first` and `second` are right (True) or wrong (False) item by item; a difference is always second - first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evidence.errors import ContractError
from scoring.clusters import ClusterMean, Clusters, cluster_mean, cluster_sums, right_or_wrong
from scoring.intervals import BLOCK, DRAWS
from scoring.metrics import Array

PERMUTATIONS = 20_000
EXACT_CLUSTERS = 16
"""Up to so many clusters that differ, all 2^k sign patterns are counted."""


class McNemar(NamedTuple):
    """The paired two-by-two table and the exact two-sided p value. `p` is None where there was no pair."""

    n: int
    both: int
    only_first: int
    only_second: int
    neither: int
    p: float | None


class SignFlip(NamedTuple):
    """A sign-flip permutation test: the p value, how many clusters differ, and whether all patterns were counted."""

    p: float | None
    n_clusters: int
    n_differing: int
    exact: bool


def mcnemar_exact(first: ArrayLike, second: ArrayLike) -> McNemar:
    """Exact McNemar test (McNemar 1947; binomial on the discordant pairs). Without discordant pairs p is 1.

    It takes items as independent: with clusters, read it beside `sign_flip`. Raises ContractError for unlike lengths.
    """
    from statsmodels.stats.contingency_tables import mcnemar

    a, b = _paired(first, second)
    table = [[int((a & b).sum()), int((a & ~b).sum())], [int((~a & b).sum()), int((~a & ~b).sum())]]
    p = float(mcnemar(table, exact=True).pvalue) if len(a) else None
    return McNemar(len(a), table[0][0], table[0][1], table[1][0], table[1][1], p)


def sign_flip(
    first: ArrayLike,
    second: ArrayLike,
    clusters: Clusters,
    *,
    seed: int,
    draws: int = PERMUTATIONS,
) -> SignFlip:
    """Two-sided test that swaps the two answerers in whole clusters (papers, cases).

    first, second: numbers an item, (n,). The statistic is the absolute sum of differences. With at most
    EXACT_CLUSTERS clusters that differ, every sign pattern is counted; else `draws` seeded ones are, and the observed
    pattern with them (Phipson and Smyth 2010), so that p is never 0.
    """
    difference = np.asarray(second, dtype=float) - np.asarray(first, dtype=float)
    by = cluster_sums(difference, clusters)
    if by.n_missing:
        raise ContractError(f"{by.n_missing} differences are missing; compare the items that both answered")
    differing = by.sums[np.abs(by.sums) > 1e-12]
    k = len(differing)
    if not len(by.names):
        return SignFlip(None, 0, 0, True)
    observed = abs(float(differing.sum())) - 1e-9 * float(np.abs(differing).sum())
    if k <= EXACT_CLUSTERS:
        sums: Array = np.zeros(1)
        for d in differing:
            sums = np.concatenate([sums + d, sums - d])
        return SignFlip(float((np.abs(sums) >= observed).mean()), len(by.names), k, True)
    rng, block = np.random.default_rng(seed), 1000
    hits = 0
    for start in range(0, draws, block):
        bits = rng.integers(0, 2, size=(min(block, draws - start), k), dtype=np.int8)
        for few in np.split(bits, range(BLOCK, len(bits), BLOCK)):  # a byte a sign; as floats they would take eight
            hits += int((np.abs((2.0 * few - 1.0) @ differing) >= observed).sum())
    return SignFlip((hits + 1) / (draws + 1), len(by.names), k, False)


def paired_difference(
    first: ArrayLike,
    second: ArrayLike,
    clusters: Clusters,
    *,
    seed: int,
    draws: int = DRAWS,
) -> ClusterMean:
    """The mean of second - first, with the interval of drawing whole clusters with both their answers."""
    difference = np.asarray(second, dtype=float) - np.asarray(first, dtype=float)
    return cluster_mean(difference, clusters, seed=seed, draws=draws)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down adjustment (Holm 1979) of all p values that are there; a missing one stays None."""
    present = [p for p in p_values if p is not None]
    if len(present) < 2:
        return list(p_values)
    from statsmodels.stats.multitest import multipletests

    adjusted = iter(multipletests(present, method="holm")[1])
    return [None if p is None else float(next(adjusted)) for p in p_values]


def _paired(first: ArrayLike, second: ArrayLike) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    a, b = right_or_wrong(first, "first"), right_or_wrong(second, "second")
    if a.shape != b.shape or a.ndim != 1:
        raise ContractError(f"expected the same items twice, got {a.shape} and {b.shape}")
    return a, b

"""Means over items that come in clusters: questions of one paper, readouts of one case.

Items of a cluster are alike, so intervals come from drawing whole clusters. Everything here takes one number an item
(right or wrong, a grade, a difference) and the cluster it belongs to, and knows nothing else of the items.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evidence.errors import ContractError
from scoring.intervals import DRAWS, drawn_ratios
from scoring.metrics import Array, wilson

Clusters = Sequence[Hashable] | NDArray[np.generic]
"""The cluster of each item: a paper, an image, a case."""


class ClusterMean(NamedTuple):
    """A mean with its 95 % cluster-bootstrap interval. What cannot be had is None, and `reason` says why."""

    value: float | None
    low: float | None
    high: float | None
    n: int
    n_missing: int
    n_clusters: int
    reason: str = ""


class ClusterSums(NamedTuple):
    """Per cluster, in the order of `names`: the sum of its values (k,) and how many there are (k,)."""

    names: tuple[Hashable, ...]
    sums: Array
    counts: Array
    n_missing: int


def cluster_sums(values: ArrayLike, clusters: Clusters) -> ClusterSums:
    """Sum values (n,) by cluster (n,), clusters in the order first seen. None and NaN are missing: counted, left out.

    A cluster without any value is left out, too. Raises ContractError where the lengths differ or a value is infinite.
    """
    numbers = np.asarray(values, dtype=float)
    if numbers.ndim != 1 or len(numbers) != len(clusters):
        raise ContractError(f"expected one cluster a value, got values {numbers.shape} and {len(clusters)} clusters")
    if np.isinf(numbers).any():
        raise ContractError(f"value {int(np.argmax(np.isinf(numbers)))} is infinite and has no mean")
    present = ~np.isnan(numbers)
    place: dict[Hashable, int] = {}
    listed = clusters.tolist() if isinstance(clusters, np.ndarray) else clusters
    index = np.array([place.setdefault(c, len(place)) for c, here in zip(listed, present, strict=True) if here], int)
    kept = numbers[present]
    return ClusterSums(
        names=tuple(place),
        sums=np.bincount(index, weights=kept, minlength=len(place)).astype(float),
        counts=np.bincount(index, minlength=len(place)).astype(float),
        n_missing=len(numbers) - len(kept),
    )


def cluster_mean(values: ArrayLike, clusters: Clusters, *, seed: int, draws: int = DRAWS) -> ClusterMean:
    """The mean of all items, with the percentile interval of drawing whole clusters.

    values (n,): any finite numbers; None or NaN is missing, left out and counted. Where all clusters have the same mean
    the bootstrap sees no variation, and there is no interval.
    """
    return _estimate(cluster_sums(values, clusters), seed, draws)


def cluster_accuracy(right: ArrayLike, clusters: Clusters, *, seed: int, draws: int = DRAWS) -> ClusterMean:
    """The share of right answers. right (n,): True or False; an answer that is missing is not right: give False.

    All right or all wrong gets the Wilson interval for the number of clusters. Raises ContractError for other values.
    """
    by = cluster_sums(right_or_wrong(right, "right"), clusters)
    found = _estimate(by, seed, draws)
    if found.value not in (0.0, 1.0):
        return found
    low, high = wilson(found.n_clusters if found.value else 0, found.n_clusters)
    return found._replace(low=low, high=high, reason="all clusters agree: Wilson interval for their number")


def cluster_weighted_mean(values: ArrayLike, clusters: Clusters, *, seed: int, draws: int = DRAWS) -> ClusterMean:
    """The mean of the clusters' own means: every paper counts alike, however many items it has."""
    by = cluster_sums(values, clusters)
    means = by._replace(sums=by.sums / by.counts, counts=np.ones(len(by.names)))
    return _estimate(means, seed, draws)._replace(n=int(by.counts.sum()))


def grouped(
    values: ArrayLike,
    groups: Sequence[str],
    clusters: Sequence[Hashable],
    *,
    micro: Mapping[str, Sequence[str]],
    seed: int,
    draws: int = DRAWS,
    of: Callable[..., ClusterMean] = cluster_accuracy,
) -> dict[str, ClusterMean]:
    """Every group's accuracy (or `of`, such as cluster_mean), then the micro averages, then "overall".

    micro: name of an average -> the groups whose items it pools, such as {"perception": ("NP", "MP", "IL")}. Raises
    ContractError where an average has the name of a group, or lengths differ.
    """
    numbers = np.asarray(values)
    if not len(numbers) == len(groups) == len(clusters):
        raise ContractError(
            f"expected a group and a cluster a value, got {len(numbers)} values, {len(groups)} groups, "
            f"{len(clusters)} clusters"
        )
    names = sorted(set(groups))
    taken = sorted(set(names) & {*micro, "overall"})
    if taken:
        raise ContractError(f"{taken[0]!r} is the name of a group and of an average")
    pools: dict[str, Sequence[str]] = {**{name: (name,) for name in names}, **micro, "overall": names}
    result = {}
    for name, members in pools.items():
        where = [i for i, group in enumerate(groups) if group in members]
        result[name] = of(numbers[where], [clusters[i] for i in where], seed=seed, draws=draws)
    return result


def right_or_wrong(given: ArrayLike, name: str) -> NDArray[np.bool_]:
    """Marks (n,) as booleans. Raises ContractError for anything but True, False, 1 and 0."""
    marks = np.asarray(given)
    if marks.size and (marks.dtype == object or not np.isin(marks, (0, 1)).all()):
        raise ContractError(f"{name}: expected True or False for every item; a missing answer is False")
    return marks.astype(bool)


def _estimate(by: ClusterSums, seed: int, draws: int) -> ClusterMean:
    n, k = int(by.counts.sum()), len(by.names)
    if not n:
        return ClusterMean(None, None, None, 0, by.n_missing, 0, "nothing to average")
    value = float(by.sums.sum() / by.counts.sum())
    if float(np.ptp(by.sums / by.counts)) < 1e-12:
        return ClusterMean(value, None, None, n, by.n_missing, k, "all clusters agree: the bootstrap sees no variation")
    low, high = np.percentile(drawn_ratios(by.sums, by.counts, seed, draws), [2.5, 97.5])
    return ClusterMean(value, float(low), float(high), n, by.n_missing, k)

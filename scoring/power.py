"""How many cases a stated gain in paired accuracy needs, when readouts come in cases.

Pairs: n = (z[1 - alpha/2] sqrt(psi) + z[power] sqrt(psi - delta^2))^2 / delta^2, with the gain delta = p01 - p10 and
the discordance psi = p01 + p10 (Miettinen 1968; Connor 1987; two-sided McNemar). Readouts of a case are alike, so n
grows by Kish's design effect 1 + (m - 1) ICC for m readouts a case, ICC being that of the paired difference.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evidence.errors import ConfigError
from scoring.clusters import Clusters, cluster_sums

MOST = 1e12
"""No experiment has more readouts a case, or cases; such numbers are mistakes, and floats run out of range beyond."""


class SampleSize(NamedTuple):
    """The number of cases, and what it follows from: independent pairs and the design effect.

    `fewest` is the number of cases below which no sign-flip test can reach alpha, whatever the gain.
    """

    cases: int
    readouts: int
    pairs: int
    design_effect: float
    fewest: int


def cases_needed(
    *, gain: float, discordance: float, readouts_per_case: float, icc: float, alpha: float = 0.05, power: float = 0.8
) -> SampleSize:
    """Cases for a gain in paired accuracy. Raises ConfigError for numbers that no experiment can have.

    discordance: the share of readouts on which the two differ, from gain (no regressions) to 1; icc: how much the
    differences of one case are alike, 0 (independent) to 1 (a case is one fact).
    """
    for name, value in (("gain", gain), ("alpha", alpha), ("power", power)):
        if not 0 < value < 1:
            raise ConfigError(f"{name}: expected a number between 0 and 1, got {value:g}")
    if power <= alpha:
        raise ConfigError(f"power: expected more than alpha ({alpha:g}), the chance without any gain, got {power:g}")
    if not gain <= discordance <= 1:
        raise ConfigError(
            f"discordance: expected a share from the gain ({gain:g}) to 1, got {discordance:g}; readouts that get "
            "better are discordant"
        )
    if not 0 <= icc <= 1:
        raise ConfigError(f"icc: expected a number from 0 to 1, got {icc:g}")
    if not 1 <= readouts_per_case <= MOST:
        raise ConfigError(f"readouts per case: expected at least 1 and at most {MOST:g}, got {readouts_per_case:g}")
    z = NormalDist().inv_cdf
    spread = -z(alpha / 2) * math.sqrt(discordance) + z(power) * math.sqrt(discordance - gain**2)
    if spread / gain > math.sqrt(MOST):
        raise ConfigError(f"gain: {gain:g} needs more than {MOST:g} independent pairs; expected a larger one")
    pairs = (spread / gain) ** 2
    effect = 1 + (readouts_per_case - 1) * icc
    fewest = math.ceil(1 - math.log2(alpha))
    cases = max(math.ceil(pairs * effect / readouts_per_case - 1e-9), fewest)
    return SampleSize(cases, math.ceil(cases * readouts_per_case), math.ceil(pairs), effect, fewest)


def independent_discordance(baseline: float, gain: float) -> float:
    """The discordance of two answerers whose mistakes are independent: more than most pairs have, so on the safe side.

    baseline: the accuracy of the first; the second has baseline + gain. Raises ConfigError where that is no accuracy.
    """
    better = baseline + gain
    if not (0 <= baseline <= 1 and 0 <= better <= 1):
        raise ConfigError(f"baseline: expected accuracies from 0 to 1, got {baseline:g} and {better:g} with the gain")
    return baseline * (1 - better) + better * (1 - baseline)


def intraclass_correlation(values: ArrayLike, clusters: Clusters) -> float | None:
    """The intraclass correlation of values (n,) in clusters (n,), by one-way analysis of variance, 0 if negative.

    Unequal clusters: Donner 1986, with their adjusted mean size. None where there is nothing to tell it from: fewer
    than two clusters, one value a cluster, or no variation.
    """
    numbers = np.asarray(values, dtype=float)
    by, squares = cluster_sums(numbers, clusters), cluster_sums(numbers**2, clusters)
    k, n = len(by.names), float(by.counts.sum())
    if k < 2 or n <= k:
        return None
    grand = by.sums.sum() / n
    means = by.sums / by.counts
    between = float((by.counts * (means - grand) ** 2).sum()) / (k - 1)
    within = float((squares.sums - by.sums**2 / by.counts).sum()) / (n - k)
    size = (n - float((by.counts**2).sum()) / n) / (k - 1)
    total = between + (size - 1) * within
    return max(0.0, (between - within) / total) if total > 1e-12 else None

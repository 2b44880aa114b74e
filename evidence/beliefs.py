"""Class probabilities of a believed change: how likely it is down, near zero or up."""

from __future__ import annotations

import math


def class_probabilities(
    mean: float, sd: float, threshold: float, dof: float | None = None
) -> tuple[float, float, float]:
    """P(down), P(near zero), P(up) of a change with this mean and standard deviation.

    Normal, or with `dof` > 2 a Student t scaled to the same standard deviation: its centre is narrower and its tails
    are heavier. With sd 0 the class of the mean has probability 1.
    """
    below, not_above = _cdf(-threshold, mean, sd, dof), _cdf(threshold, mean, sd, dof)
    return below, not_above - below, 1 - not_above


def _cdf(x: float, mean: float, sd: float, dof: float | None) -> float:
    """P(change <= x); with sd 0 a mean exactly at -threshold or threshold counts as near zero, as in classify."""
    if sd == 0:
        return float(x > mean if x < 0 else x >= mean)
    z = (x - mean) / sd
    if dof is None:
        return 0.5 * (1 + math.erf(z / math.sqrt(2)))
    from scipy.special import stdtr  # only adapters with a Student t pay for the import

    return float(stdtr(dof, z * math.sqrt(dof / (dof - 2))))

"""What a measurement is expected to be worth under a joint normal of the readouts, in closed form.

One noisy measurement y of readout j: the posterior covariance does not depend on what y turns out to be, and the
posterior mean of readout r moves by c[r, j] / sqrt(c[j, j] + noise^2) standard normals.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evidence.contracts import Adapter, AdapterInputs, Joint, Observation, Readout

Array = NDArray[np.float64]
NODES = 64
"""Gauss-Hermite nodes of the one integral."""
NOISE_FLOOR = 1e-3
"""Smallest noise of a measurement, relative to the readout's own deviation: where none is known, information stays
finite."""


class Worth(NamedTuple):
    """Expected worth of measuring one readout: information in nats, accuracy as a number of readouts."""

    information: float
    accuracy: float


def joint_posterior(adapter: Adapter, inputs: AdapterInputs | None, seen: Sequence[Observation]) -> Joint | None:
    """The adapter's joint posterior given what was seen; None where it has none."""
    joint = getattr(adapter, "joint", None)
    if joint is None or inputs is None:
        return None
    made: Joint = joint(inputs, seen)
    return made


def expected_noise(inputs: AdapterInputs) -> dict[str, float]:
    """Readout -> median standard error of its training responses: what is known before anything is measured."""
    known: dict[str, list[float]] = defaultdict(list)
    for row in inputs.training:
        known[row.readout].append(row.se)
    return {r: float(np.median(known[r])) for r in inputs.readouts if known[r]}


def worth(joint: Joint, readouts: Sequence[Readout], measured: str | None, noise: Mapping[str, float]) -> Worth:
    """What measuring `measured` is expected to be worth; nothing where it is none of the joint's readouts."""
    if measured not in joint.readouts:
        return Worth(0.0, 0.0)
    return Worth(
        expected_information_gain(joint, measured, noise), expected_accuracy_gain(joint, readouts, measured, noise)
    )


def expected_information_gain(joint: Joint, measured: str, noise: Mapping[str, float]) -> float:
    """Expected information about the values of all readouts together, in nats (Lindley 1956).

    Half the log of the ratio of the determinants of their covariance before and after, which for one measurement is
    0.5 log(1 + c[j, j] / noise^2).
    """
    at = joint.readouts.index(measured)
    variance = joint.cov[at][at]
    return 0.5 * math.log1p(variance / _noise2(variance, noise.get(measured, 0.0))) if variance > 0 else 0.0


def expected_accuracy_gain(
    joint: Joint, readouts: Sequence[Readout], measured: str, noise: Mapping[str, float]
) -> float:
    """How many more readouts are expected to be right after the measurement, each decided by its most probable class.

    The sum over readouts of E[max_c P(c | y)] - max_c P(c): never negative. One Gauss-Hermite sum, no sampling.
    """
    at = joint.readouts.index(measured)
    mean, cov = np.array(joint.mean), np.array(joint.cov)
    limits = {r.id: r.threshold for r in readouts}
    limit = np.array([limits.get(r) or np.nan for r in joint.readouts])
    total = cov[at, at] + _noise2(cov[at, at], noise.get(measured, 0.0))
    if not total > 0:
        return 0.0
    move = cov[:, at] / math.sqrt(total)
    before, after = np.diag(cov), np.maximum(np.diag(cov) - move**2, 0.0)
    points, weights = _nodes()
    shifted = mean + points[:, None] * move
    expected = weights @ best_chance(shifted, np.sqrt(after), limit)
    gain = float(np.nansum(expected - best_chance(mean, np.sqrt(before), limit)))
    return max(0.0, gain)


@functools.cache
def _nodes() -> tuple[Array, Array]:
    """Points and weights of a mean over a standard normal."""
    points, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return np.asarray(points), np.asarray(weights) / math.sqrt(2 * math.pi)


def best_chance(mean: Array, sd: Array, limit: Array) -> Array:
    """Probability of the most probable of the three classes; NaN where there is no limit. Shapes broadcast."""
    from scipy.special import ndtr

    safe = np.maximum(sd, 1e-12)
    below, above = ndtr((-limit - mean) / safe), ndtr((mean - limit) / safe)
    return np.asarray(np.maximum(np.maximum(below, above), 1 - below - above))


def _noise2(variance: float, noise: float) -> float:
    return max(noise**2, variance * NOISE_FLOOR**2)

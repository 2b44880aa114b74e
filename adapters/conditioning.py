"""Gaussian conditioning: what a noisy measurement of some readouts says about all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evidence.contracts import AdapterInputs, Observation, Prediction

Array = NDArray[np.float64]
NO_NOISE = 1e-200
"""Variances below this one have no usable inverse: such a measurement counts as exact."""


class Gaussian(NamedTuple):
    """A joint normal over n readouts: mean (n,), covariance (n, n)."""

    mean: Array
    cov: Array


class Measured(NamedTuple):
    """Which readouts were measured: where (k,) into the readouts, value (k,), variance of the noise (k,)."""

    where: NDArray[np.intp]
    value: Array
    noise: Array


def measured(inputs: AdapterInputs, observations: Sequence[Observation]) -> Measured:
    """The usable numbers among the observations, one for each measured readout, in the order of the readouts.

    Several of one readout are pooled by inverse variance; where some have no noise, the others add nothing.
    """
    place = {readout: i for i, readout in enumerate(inputs.readouts)}
    found: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for o in observations:
        if o.readout is not None and o.value is not None and o.informs(place):
            noise = (o.se or 0.0) ** 2
            found[place[o.readout]].append((o.value, noise if noise > NO_NOISE else 0.0))
    pooled = [(at, *_pooled(sorted(found[at]))) for at in sorted(found)]
    columns = np.array(pooled, dtype=float).reshape(len(pooled), 3)
    return Measured(columns[:, 0].astype(np.intp), columns[:, 1], columns[:, 2])


def _pooled(seen: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Value and noise variance of one readout from (value, noise variance) pairs."""
    exact = [value for value, noise in seen if noise == 0]
    if exact:
        return float(np.mean(exact)), 0.0
    least = min(noise for _, noise in seen)
    weights = np.array([least / noise for _, noise in seen])
    return float(np.array([value for value, _ in seen]) @ weights / weights.sum()), float(least / weights.sum())


def condition(prior: Gaussian, seen: Measured) -> Gaussian:
    """The posterior of all readouts given noisy measurements of some.

    Source of the formula: the conditional of a joint normal, e.g. Bishop 2006, eqs. 2.81-2.82, with the noise added
    to the covariance of the measured part.
    """
    if not len(seen.where):
        return prior
    cross = prior.cov[:, seen.where]
    among = prior.cov[np.ix_(seen.where, seen.where)] + np.diag(seen.noise)
    gain = cross @ np.linalg.pinv(among, hermitian=True)  # a prior without variance has no inverse
    mean = prior.mean + gain @ (seen.value - prior.mean[seen.where])
    cov = prior.cov - gain @ cross.T
    return Gaussian(mean, (cov + cov.T) / 2)


def predictions(inputs: AdapterInputs, joint: Gaussian) -> tuple[Prediction, ...]:
    """The joint normal as one prediction per readout."""
    sd = np.sqrt(np.clip(np.diag(joint.cov), 0.0, None))
    return tuple(
        Prediction(readout=readout, mean=float(m), sd=float(s))
        for readout, m, s in zip(inputs.readouts, joint.mean, sd, strict=True)
    )

"""Gaussian conditioning: what a noisy measurement of some readouts says about all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evidence.contracts import AdapterInputs, Observation, Prediction

Array = NDArray[np.float64]


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
    """The usable numbers among the observations, in the order they were made."""
    place = {readout: i for i, readout in enumerate(inputs.readouts)}
    usable = [
        (place[o.readout], o.value, (o.se or 0.0) ** 2)
        for o in observations
        if o.readout is not None and o.value is not None and o.informs(place)
    ]
    columns = np.array(usable, dtype=float).reshape(len(usable), 3)
    return Measured(columns[:, 0].astype(np.intp), columns[:, 1], columns[:, 2])


def condition(prior: Gaussian, seen: Measured) -> Gaussian:
    """The posterior of all readouts given noisy measurements of some.

    Source of the formula: the conditional of a joint normal, e.g. Bishop 2006, eqs. 2.81-2.82, with the noise added
    to the covariance of the measured part.
    """
    if not len(seen.where):
        return prior
    cross = prior.cov[:, seen.where]
    among = prior.cov[np.ix_(seen.where, seen.where)] + np.diag(seen.noise)
    gain = cross @ np.linalg.pinv(among, hermitian=True)  # two exact measurements of one readout have no inverse
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

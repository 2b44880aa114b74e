"""The gaussian adapter: a joint model of the simulator's residuals, conditioned on what was measured.

Model of the change y of readout r under perturbation i, from the simulator's prediction x:

    y[i, r] = b[r] x[i, r] + h(x[i, r]) e[i, r],    e[i] ~ N(0, C),    h(x)^2 = (1 + x^2 / m) / 2

m is the mean squared training prediction: residuals grow with the size of the prediction. The slopes b are pulled to
their common slope, and that to 1, as far as leaving out one perturbation moves them. C is the covariance over training
perturbations, noise of their measurement taken out, shrunk towards independent readouts. A measurement moves every
readout that varies with it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from adapters.conditioning import Array, Gaussian, condition, measured, predictions
from evidence.contracts import AdapterInputs, Joint, Observation, Prediction, TrainingResidual
from evidence.errors import ConfigError
from evidence.values import Number, Same, Value

DOF = 4.0
"""Shape of the predictive distribution: residuals have heavier tails than a normal (docs/adapters.md)."""
NOISE_KEPT = 0.05
"""The variance left to a readout when its measurement noise explains all of its residuals, as a share of it."""
SLOPES = (0.0, 2.0)
"""A simulator is at worst ignored and at most doubled."""
CONDITION = 1e-3
"""Smallest eigenvalue of the covariance, relative to the largest."""


class GaussianOptions(Value):
    """Options of the residual model.

    shrinkage: how many perturbations the prior counts for: independent readouts of equal variance and one slope for
    all, against the covariance and the slopes of the training perturbations. decision: a readout's class is that of
    its posterior mean, or the most probable one under the posterior (a Student t with DOF degrees of freedom).
    """

    shrinkage: Annotated[Number, Field(ge=0, le=1e6)] = 10.0
    decision: Literal["mean", "posterior"] = "mean"


class Training(NamedTuple):
    """Training responses as (n_perturbations, n_readouts) arrays, NaN where one is not known."""

    predicted: Array
    value: Array
    se: Array


class Residuals(NamedTuple):
    """The fitted model. slope: b, (n_readouts,). scale2: m. cov: C, (n_readouts, n_readouts)."""

    slope: Array
    scale2: float
    cov: Array

    def prior(self, x: Array) -> Gaussian:
        """The joint normal of the changes of a perturbation with predictions x (n_readouts,)."""
        spread = _spread(x, self.scale2)
        return Gaussian(self.slope * x, self.cov * np.outer(spread, spread))


class GaussianResiduals:
    """Calibrate with the joint model of residuals."""

    Options: ClassVar[type[Value]] = GaussianOptions

    def __init__(self, options: GaussianOptions):
        self.options = options

    def calibrate(self, inputs: AdapterInputs, observations: Sequence[Observation]) -> tuple[Prediction, ...]:
        """Calibrated predictions. Raises ConfigError with fewer than two training perturbations."""
        made = predictions(inputs, self._posterior(inputs, observations))
        return made if self.options.decision == "mean" else tuple(p.model_copy(update={"dof": DOF}) for p in made)

    def joint(self, inputs: AdapterInputs, observations: Sequence[Observation]) -> Joint:
        """The joint posterior behind `calibrate`."""
        posterior = self._posterior(inputs, observations)
        return Joint(
            readouts=inputs.readouts,
            mean=tuple(posterior.mean.tolist()),
            cov=tuple(tuple(row) for row in posterior.cov.tolist()),
        )

    def _posterior(self, inputs: AdapterInputs, observations: Sequence[Observation]) -> Gaussian:
        return condition(_prior(Same(inputs), self.options.shrinkage), measured(inputs, observations))


@functools.lru_cache(maxsize=16)
def _prior(inputs: Same[AdapterInputs], shrinkage: float) -> Gaussian:
    """The joint normal of a case before anything is measured; every entry of its menu is tried on it."""
    given = inputs.value
    fitted = fit_residuals(arrays(given.training, given.readouts), shrinkage)
    return fitted.prior(np.array([p.mean for p in given.predictions]))


def arrays(training: Sequence[TrainingResidual], readouts: Sequence[str]) -> Training:
    """Training rows by perturbation (sorted by name) and readout. Raises ConfigError with fewer than two."""
    places = {p: i for i, p in enumerate(sorted({row.perturbation for row in training}))}
    if len(places) < 2:
        raise ConfigError(
            "adapter 'gaussian' learns from training perturbations that share no target with the case: expected at "
            f"least 2, got {len(places)}; use 'local' or 'none'"
        )
    column = {readout: n for n, readout in enumerate(readouts)}
    found = np.full((3, len(places), len(readouts)), np.nan)
    for row in training:
        if row.readout in column:
            found[:, places[row.perturbation], column[row.readout]] = row.predicted, row.value, row.se
    return Training(*found)


def fit_residuals(training: Training, shrinkage: float) -> Residuals:
    """Slopes, then the covariance of what is left, in units of the spread that grows with the prediction."""
    known = np.isfinite(training.value)
    x = np.where(known, training.predicted, 0.0)
    y = np.where(known, training.value, 0.0)
    slope = learned_slopes(x * x, x * y, shrinkage)
    scale2 = float(np.sum(x * x) / known.sum()) if known.any() else 0.0
    spread = _spread(x, scale2)
    residual = np.where(known, (y - slope * x) / spread, 0.0)
    noise = np.where(known, training.se / spread, 0.0)
    unit = _units(training.se)
    cov = shrunk_covariance(residual / unit, noise / unit, known.astype(float), shrinkage)
    return Residuals(slope, scale2, cov * np.outer(unit, unit))


def learned_slopes(xx: Array, xy: Array, shrinkage: float) -> Array:
    """(n_readouts,) slopes of y on x through the origin. xx, xy: (n_perturbations, n_readouts) x^2 and x y.

    One slope for all, then what each readout adds to it: that weighs n / (n + shrinkage), n the effective number of
    perturbations behind it (Kish 1965), since a few large predictions decide a slope.
    """
    common = learned_slope(xx.sum(axis=1), xy.sum(axis=1))
    effective = xx.sum(axis=0) ** 2 / np.maximum(np.sum(xx**2, axis=0), np.finfo(float).tiny)
    weight = effective / np.maximum(effective + shrinkage, 1e-12)
    own = [learned_slope(a, b - (common - 1) * a) - 1 for a, b in zip(xx.T, xy.T, strict=True)]
    return np.asarray(np.clip(common + weight * np.array(own), *SLOPES))


def learned_slope(xx: Array, xy: Array) -> float:
    """The slope of y on x through the origin, pulled towards 1. xx, xy: (n_perturbations,) sums of x^2 and of x y.

    b = 1 + s (b' - 1) with s = max(0, 1 - v / (b' - 1)^2): positive-part James-Stein (Efron & Morris 1973), v the
    jackknife variance of the least-squares slope b' over perturbations. 1 where a single perturbation decides it.
    """
    total, others = float(xx.sum()), xx.sum() - xx
    if total == 0 or others.min() <= 1e-9 * total:
        return 1.0
    found = float(xy.sum() / total)
    left_out = (xy.sum() - xy) / others
    variance = (len(xx) - 1) * float(np.var(left_out))
    moved = found - 1.0
    return 1.0 + moved * max(0.0, 1.0 - variance / moved**2) if moved else 1.0


def shrunk_covariance(residual: Array, noise: Array, known: Array, shrinkage: float) -> Array:
    """(n_readouts, n_readouts) covariance of residuals about zero, pairwise over what is known; positive definite.

    residual, noise: 0 where known (0 or 1) is 0; all (n_perturbations, n_readouts). Variances are pulled to their mean
    and covariances to 0 with the weight of `shrinkage` perturbations: the posterior mean under an inverse-Wishart
    prior, up to its degrees of freedom.
    """
    pairs = known.T @ known
    raw = residual.T @ residual / np.maximum(pairs, 1.0)
    count = np.diag(pairs)
    seen = np.diag(raw)
    own = np.maximum(seen - np.sum(noise**2, axis=0) / np.maximum(count, 1.0), NOISE_KEPT * seen)
    pooled = float(own @ count / max(count.sum(), 1.0))
    variance = np.maximum((own * count + pooled * shrinkage) / np.maximum(count + shrinkage, 1e-12), 1e-12)
    cov = raw * pairs / np.maximum(pairs + shrinkage, 1e-12)
    np.fill_diagonal(cov, variance)
    values, vectors = np.linalg.eigh(cov)
    return np.asarray((vectors * np.maximum(values, CONDITION * values.max())) @ vectors.T)


def _spread(x: Array, scale2: float) -> Array:
    return np.sqrt((1 + x**2 / scale2) / 2) if scale2 else np.ones_like(x)


def _units(se: Array) -> Array:
    """(n_readouts,) median standard error of each readout's responses: the unit in which readouts are alike.

    All 1 where a readout has none, or 0.
    """
    known = [column[np.isfinite(column)] for column in se.T]
    if any(len(column) == 0 or np.median(column) == 0 for column in known):
        return np.ones(se.shape[1])
    return np.array([float(np.median(column)) for column in known])

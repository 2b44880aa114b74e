"""The affine adapter: one slope for the simulator, one shift for the case.

Model of the change y of readout r under perturbation i, from the simulator's prediction x:

    y[i, r] = a + b x[i, r] + u[i] + e[i, r],    u ~ N(0, tau^2),  e ~ N(0, sigma^2)

a, b, tau^2 and sigma^2 come from training perturbations that share no target with the case. A measurement of one
readout moves the shift u of the case, and so every other readout, by tau^2 / (tau^2 + sigma^2 + se^2) of its surprise.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from adapters.conditioning import Array, Gaussian, condition, measured, predictions
from evidence.contracts import AdapterInputs, NoOptions, Observation, Prediction, TrainingResidual
from evidence.errors import ConfigError
from evidence.values import Same, Value


class AffineFit(NamedTuple):
    """The fitted model: intercept a, slope b, variance between perturbations tau2, variance within sigma2."""

    a: float
    b: float
    tau2: float
    sigma2: float


class Affine:
    """Calibrate with one slope and one intercept, and carry a measured surprise over as a common shift."""

    Options: ClassVar[type[Value]] = NoOptions

    def __init__(self, options: NoOptions):
        self.options = options

    def calibrate(self, inputs: AdapterInputs, observations: Sequence[Observation]) -> tuple[Prediction, ...]:
        """Calibrated predictions. Raises ConfigError with fewer than two usable training perturbations."""
        return predictions(inputs, condition(_prior(Same(inputs)), measured(inputs, observations)))


@functools.lru_cache(maxsize=16)
def _prior(inputs: Same[AdapterInputs]) -> Gaussian:
    """The joint normal of a case before anything is measured; every entry of its menu is tried on it."""
    given = inputs.value
    fitted, n = fit_affine(given.training), len(given.readouts)
    x = np.array([p.mean for p in given.predictions])
    return Gaussian(fitted.a + fitted.b * x, np.full((n, n), fitted.tau2) + np.diag(np.full(n, fitted.sigma2)))


def fit_affine(training: Sequence[TrainingResidual]) -> AffineFit:
    """Fit by pooled least squares and the method of moments for the two variances.

    The slope is pulled towards 1 by a unit-information prior (one observation's worth), so that a simulator whose
    predictions hardly vary keeps its scale. Variances: one-way analysis of variance of the residuals by perturbation.
    """
    groups: dict[str, list[TrainingResidual]] = defaultdict(list)
    for row in training:
        groups[row.perturbation].append(row)
    if len(groups) < 2 or len(training) <= len(groups):
        raise ConfigError(
            "adapter 'affine' learns from training perturbations that share no target with the case: expected at "
            f"least 2 with two readouts each, got {len(groups)} with {len(training)} readouts in all; "
            "use 'local' or 'none'"
        )
    x = np.array([row.predicted for row in training])
    y = np.array([row.value for row in training])
    centred = x - x.mean()
    spread = float(centred @ centred)
    b = 1.0 + float(centred @ (y - x)) / (spread * (1 + 1 / len(x))) if spread else 1.0
    a = float(y.mean() - b * x.mean())
    residuals = [np.array([row.value - a - b * row.predicted for row in rows]) for rows in groups.values()]
    return AffineFit(a, b, *_variances(residuals))


def _variances(residuals: Sequence[Array]) -> tuple[float, float]:
    sizes = np.array([len(r) for r in residuals], dtype=float)
    means = np.array([r.mean() for r in residuals])
    total, k = sizes.sum(), len(residuals)
    grand = float(sizes @ means / total)
    within = float(sum(np.sum((r - m) ** 2) for r, m in zip(residuals, means, strict=True)) / (total - k))
    between = float(sizes @ (means - grand) ** 2 / (k - 1))
    typical = (total - float(sizes @ sizes) / total) / (k - 1)
    return max(0.0, (between - within) / typical), within

"""A linear discriminant with a shrunk covariance, equal class priors and a calibrated temperature. numpy only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
SHRINKAGE = 0.3
TEMPERATURES = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 11.0, 16.0)
LIMIT = 5.0


class Discriminant(NamedTuple):
    """scores = z @ weight + bias, z = clipped (x - centre) / scale; weight (n_features, n_classes)."""

    classes: tuple[str, ...]
    centre: Array
    scale: Array
    weight: Array
    bias: Array
    temperature: float = 1.0

    def scores(self, x: Array) -> Array:
        """(n, n_features) -> (n, n_classes) log-likelihoods up to a constant, before the temperature."""
        z = np.clip((x - self.centre) / self.scale, -LIMIT, LIMIT)
        return np.asarray(z @ self.weight + self.bias)

    def probabilities(self, x: Array) -> Array:
        """(n, n_features) -> (n, n_classes), rows sum to 1."""
        return softmax(self.scores(x) / self.temperature)


def fit(x: Array, labels: Sequence[str], shrinkage: float = SHRINKAGE) -> Discriminant:
    """Learn from rows (n, n_features) and their labels. Raises ValueError with fewer than two classes."""
    classes = tuple(sorted(set(labels)))
    if len(classes) < 2 or len(x) != len(labels):
        raise ValueError(f"expected rows of at least two classes, got {len(x)} rows of {len(classes)}")
    centre, spread = x.mean(axis=0), x.std(axis=0)
    scale = np.where(spread > 1e-9, spread, 1.0)
    z = np.clip((x - centre) / scale, -LIMIT, LIMIT)
    code = np.array([classes.index(label) for label in labels])
    means = np.stack([z[code == k].mean(axis=0) for k in range(len(classes))])
    within = z - means[code]
    covariance = within.T @ within / len(z)
    level = max(float(np.trace(covariance)) / len(covariance), 1e-6)
    covariance = (1 - shrinkage) * covariance + shrinkage * level * np.eye(len(covariance))
    weight = np.linalg.solve(covariance, means.T)
    bias = -0.5 * np.einsum("kf,fk->k", means, weight)
    return Discriminant(classes, centre, scale, weight, bias)


def fit_calibrated(x: Array, labels: Sequence[str], groups: Sequence[str]) -> Discriminant:
    """`fit`, with the temperature that gives held-out groups (compounds) the least log loss.

    A group whose class has no other group cannot be held out; with none that can, the temperature stays 4.
    """
    model = fit(x, labels)
    held = _held_out(x, labels, groups)
    if not held:
        return model._replace(temperature=4.0)
    losses = [
        float(np.mean([-np.log(softmax(s / t)[np.arange(len(k)), k] + 1e-12).mean() for s, k in held]))
        for t in TEMPERATURES
    ]
    return model._replace(temperature=TEMPERATURES[int(np.argmin(losses))])


def _held_out(x: Array, labels: Sequence[str], groups: Sequence[str]) -> list[tuple[Array, NDArray[np.intp]]]:
    """Scores and class numbers of each group by a model that has not seen it."""
    label, group = np.array(labels), np.array(groups)
    held = []
    for name in sorted(set(groups)):
        out = group == name
        if set(label[out]) <= set(label[~out]):
            model = fit(x[~out], list(label[~out]))
            held.append((model.scores(x[out]), np.array([model.classes.index(c) for c in label[out]])))
    return held


def softmax(scores: Array) -> Array:
    """(n, k) -> (n, k), rows sum to 1."""
    shifted = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))

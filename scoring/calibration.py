"""Do stated probabilities and standard deviations mean what they say: reliability, Brier score, ECE, coverage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evidence.errors import ContractError
from scoring.metrics import Array

BINS = 10
LEVELS = (0.5, 0.8, 0.95)


class Bin(NamedTuple):
    """One bin of a reliability curve: answers with a confidence in (low, high], its mean, and the share that is right.

    `confidence` and `accuracy` are None in an empty bin.
    """

    low: float
    high: float
    n: int
    confidence: float | None
    accuracy: float | None


class Calibration(NamedTuple):
    """Calibration of n answers with class probabilities. `brier` and `ece` are None where there is none."""

    n: int
    brier: float | None
    ece: float | None
    bins: tuple[Bin, ...]


class Coverage(NamedTuple):
    """How many of n true values lie in the central interval that should hold a share `level` of them."""

    level: float
    n: int
    covered: int


def calibration(probabilities: ArrayLike, truth: ArrayLike, bins: int = BINS) -> Calibration:
    """Calibration of class probabilities (n, classes), rows summing to 1, for the true classes (n,).

    Brier score: mean over answers of the squared distance to the true class's unit vector, 0 to 2 (Brier 1950). The
    curve takes the largest probability as confidence, in bins of equal width; the expected calibration error is the
    mean of |accuracy - confidence| weighted by the bins (Naeini 2015, Guo 2017). Of equal largest probabilities the
    first counts. Raises ContractError where the shapes differ or a row is no distribution.
    """
    p, true = np.asarray(probabilities, dtype=float), np.asarray(truth, dtype=np.intp)
    if not p.size:
        return Calibration(0, None, None, _bins(np.zeros(0), np.zeros(0, dtype=bool), bins))
    _check(p, true)
    n, by_class = len(p), np.ascontiguousarray(p.T)
    confidence, answer = by_class[0].copy(), np.zeros(n, dtype=np.intp)
    for number, chance in enumerate(by_class[1:], start=1):
        larger = chance > confidence
        confidence[larger], answer[larger] = chance[larger], number
    curve = _bins(confidence, answer == true, bins)
    by_class[true, np.arange(n)] -= 1.0  # now how far each is off
    return Calibration(n, float(np.square(by_class).sum(axis=0).mean()), _ece(curve), curve)


def confidence_calibration(confidence: ArrayLike, right: ArrayLike, bins: int = BINS) -> Calibration:
    """Calibration of the stated probability that the answer given is right, both (n,).

    The Brier score is that of the event "right": mean of (confidence - right)^2, 0 to 1; half of what `calibration`
    gives for two classes. Raises ContractError for a confidence outside 0 to 1.
    """
    c, hit = np.asarray(confidence, dtype=float), np.asarray(right).astype(bool)
    if c.shape != hit.shape or c.ndim != 1:
        raise ContractError(f"expected one confidence an answer, got {c.shape} and {hit.shape}")
    if not (np.isfinite(c) & (c >= 0) & (c <= 1)).all():
        raise ContractError("expected confidences from 0 to 1")
    curve = _bins(c, hit, bins)
    if not len(c):
        return Calibration(0, None, None, curve)
    return Calibration(len(c), float(((c - hit) ** 2).mean()), _ece(curve), curve)


def _check(p: Array, true: NDArray[np.intp]) -> None:
    if p.ndim != 2 or true.shape != (len(p),):
        raise ContractError(f"expected probabilities (n, classes) and n classes, got {p.shape} and {true.shape}")
    if not (np.isfinite(p).all() and (p >= -1e-9).all() and (np.abs(p.sum(axis=1) - 1.0) < 1e-6).all()):
        raise ContractError("expected probabilities from 0 to 1 that sum to 1 in every row")
    if (true < 0).any() or (true >= p.shape[1]).any():
        raise ContractError(f"expected true classes from 0 to {p.shape[1] - 1}")


def _ece(curve: Sequence[Bin]) -> float:
    gaps = [b.n * abs(b.accuracy - b.confidence) for b in curve if b.accuracy is not None and b.confidence is not None]
    return sum(gaps) / sum(b.n for b in curve)


def _bins(confidence: Array, right: NDArray[np.bool_], bins: int) -> tuple[Bin, ...]:
    place = np.clip(np.ceil(confidence * bins - 1e-9).astype(np.intp) - 1, 0, bins - 1)
    counts = np.bincount(place, minlength=bins)
    sums = np.bincount(place, weights=confidence, minlength=bins)
    hits = np.bincount(place, weights=right.astype(float), minlength=bins)
    return tuple(
        Bin(i / bins, (i + 1) / bins, int(n), float(sums[i] / n) if n else None, float(hits[i] / n) if n else None)
        for i, n in enumerate(counts)
    )


def normal_class_probabilities(mean: ArrayLike, sd: ArrayLike, threshold: ArrayLike) -> Array:
    """P(down), P(near zero), P(up) of normal changes, (n,) each -> (n, 3); a threshold belongs to near zero.

    A standard deviation of 0 puts all probability on the class of the mean.
    """
    from scipy.special import ndtr

    m, s, t = np.broadcast_arrays(*(np.asarray(x, dtype=float) for x in (mean, sd, threshold)))
    sure, scale = s <= 0, np.where(s > 0, s, 1.0)
    with np.errstate(over="ignore"):  # a huge threshold is as good as infinite
        down = np.where(sure, m < -t, ndtr((-t - m) / scale))
        up = np.where(sure, m > t, ndtr((m - t) / scale))
    columns: Array = np.stack([down, np.clip(1.0 - down - up, 0.0, 1.0), up], axis=-1)
    return columns


def interval_coverage(
    mean: ArrayLike, sd: ArrayLike, value: ArrayLike, levels: Sequence[float] = LEVELS
) -> tuple[Coverage, ...]:
    """How often the central normal intervals mean ± z sd hold the true value, (n,) each."""
    from scipy.special import ndtri

    m, s, v = (np.asarray(x, dtype=float) for x in (mean, sd, value))
    if not m.shape == s.shape == v.shape:
        raise ContractError(f"expected means, sds and values of one shape, got {m.shape}, {s.shape}, {v.shape}")
    off = np.abs(v - m)
    return tuple(Coverage(level, len(m), int((off <= float(ndtri(0.5 + level / 2)) * s).sum())) for level in levels)

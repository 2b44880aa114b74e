"""Features of single-cell windows, from pixels: the nucleus by segmentation, then intensity, texture and shape.

A window is (68, 68, 3) uint16 around one nucleus, channels DAPI, Actin, Tubulin, raw counts. Intensities enter as
log(counts + 50), so that differences are ratios. Features of one channel never use another, apart from the nucleus
mask (DAPI) and the correlations named after both channels.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage as ndi

from evidence.errors import ConfigError

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
LETTERS = "DAT"
PAIRS = ("DA", "DT", "AT")
SCALES = (0.7, 1.0, 1.5, 2.2, 3.3, 5.0, 7.5)
"""Widths (pixels) of the Gaussians whose differences measure texture; the first difference is left out as noise."""
RINGS = ((8, 14), (14, 20), (20, 28))
OFFSET = 50.0
VERSION = 1

SHAPE = ("area", "eccentricity", "solidity", "major", "minor", "roundness", "extent", "objects", "cover")
_PARTS = tuple(f"{part}_{stat}" for part in ("nucleus", "around") for stat in ("mean", "sd", "low", "high"))
_OWN = (
    *("median", "p90", "p99", "mean", "sd", "skew", "kurtosis"),
    *_PARTS,
    *("nucleus_minus_around", "inner_minus_outer"),
    *(f"texture{s:g}" for s in SCALES[1:]),
    *(f"around_texture{s:g}" for s in SCALES),
    *(f"ring{low}" for low, _ in RINGS),
    *("coherence", "weighted_coherence"),
)
_TOGETHER = ("corr", "fine_corr", "around_corr")
NAMES: tuple[str, ...] = (
    *(f"N_{name}" for name in SHAPE),
    *(f"{letter}_{name}" for letter in LETTERS for name in _OWN),
    *(f"{pair}_{name}" for pair in PAIRS for name in _TOGETHER),
)
"""One name a feature: N nucleus shape, D DAPI, A actin, T tubulin, then pairs of channels."""


def require_images() -> None:
    """Raise ConfigError with the command that installs what pixels need, where it is not installed."""
    if importlib.util.find_spec("skimage") is None:
        raise ConfigError("scikit-image is not installed. Install it with: pip install -e '.[images]'")


def feature_names(channels: str) -> tuple[str, ...]:
    """The features that need no channel beyond those given by letter ("DT", "DAT"); N goes with D."""
    have = set(channels) | ({"N"} if "D" in channels else set())
    return tuple(name for name in NAMES if set(name.split("_")[0]) <= have)


def columns(names: Sequence[str]) -> list[int]:
    """The column of each feature in `features`."""
    at = {name: n for n, name in enumerate(NAMES)}
    return [at[name] for name in names]


def features(windows: NDArray[np.uint16]) -> Array:
    """(n, 68, 68, 3) uint16 -> (n, len(NAMES)) float64, finite. Each distinct window is computed once a process."""
    if windows.ndim != 4 or windows.shape[3] != 3 or windows.dtype != np.uint16:
        raise ValueError(f"expected windows of shape (n, h, w, 3) uint16, got {windows.dtype} {windows.shape}")
    require_images()
    rows = [_cached(hashlib.sha256(w.tobytes()).digest(), w.shape, w.tobytes()) for w in np.ascontiguousarray(windows)]
    return np.stack(rows) if rows else np.zeros((0, len(NAMES)))


class _Known:
    """Feature rows by the hash of their window."""

    rows: dict[bytes, Array] = {}


def _cached(key: bytes, shape: tuple[int, ...], data: bytes) -> Array:
    if key not in _Known.rows:
        window = np.frombuffer(data, dtype=np.uint16).reshape(shape)
        _Known.rows[key] = _features(window)
    row: Array = _Known.rows[key]
    return row


def nucleus(dna: NDArray[np.uint16]) -> tuple[Mask, NDArray[np.intp]]:
    """The nucleus nearest to the centre of a window, and all nuclei as labels 1..n.

    Otsu's threshold on a smoothed image; where nothing is found, a disc of radius 10 stands for the nucleus.
    """
    from skimage import filters, measure

    smooth = ndi.gaussian_filter(dna.astype(float), 1.5)
    lit = ndi.binary_fill_holes(smooth > filters.threshold_otsu(smooth)) if np.ptp(smooth) > 0 else smooth < 0
    labels = measure.label(lit)
    sizes = np.bincount(labels.ravel())
    small = sizes < 30
    labels = measure.label(np.where(small[labels], 0, labels) > 0)
    centre = _from_centre(*dna.shape)
    if labels.max() == 0:
        return centre < 10, labels
    nearest = labels.flat[np.argmin(np.where(labels > 0, centre, np.inf))]
    return labels == nearest, labels


def nuclei_centres(dna: NDArray[np.uint16], *, margin: int) -> list[tuple[int, int]]:
    """Centres (row, column) of the nuclei of a whole field, in reading order, at least `margin` from every edge."""
    from skimage import filters, measure

    smooth = ndi.gaussian_filter(dna.astype(float), 2.0)
    if np.ptp(smooth) == 0:
        return []
    labels = measure.label(ndi.binary_fill_holes(smooth > filters.threshold_otsu(smooth)))
    found = [(round(p.centroid[0]), round(p.centroid[1])) for p in measure.regionprops(labels) if p.area >= 150]
    height, width = dna.shape
    inside = [(y, x) for y, x in found if margin <= y <= height - margin and margin <= x <= width - margin]
    return sorted(inside)


def _features(window: NDArray[np.uint16]) -> Array:
    mask, labels = nucleus(window[..., 0])
    near = ndi.binary_dilation(mask, iterations=8) & ~ndi.binary_dilation(mask, iterations=1)
    near = near if near.sum() > 5 else np.ones_like(mask)
    depth = ndi.distance_transform_edt(mask)
    inner = depth > np.median(depth[mask])
    logs = [np.log(window[..., c] + OFFSET) for c in range(3)]
    values = _shape(mask, labels)
    for image in logs:
        values += _own(image, mask, near, inner)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        values += _together(logs[one], logs[other], near)
    row: Array = np.nan_to_num(np.array(values, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    row.setflags(write=False)
    return row


def _shape(mask: Mask, labels: NDArray[np.intp]) -> list[float]:
    from skimage import measure

    p = measure.regionprops(mask.astype(np.uint8))[0]
    round_ = 4 * np.pi * p.area / (p.perimeter**2 + 1)
    axes = (np.log(p.axis_major_length + 1), np.log(p.axis_minor_length + 1))
    objects = (float(labels.max()), float((labels > 0).mean()))
    return [np.log(p.area), p.eccentricity, p.solidity, *axes, round_, p.extent, *objects]


def _own(image: Array, mask: Mask, near: Mask, inner: Mask) -> list[float]:
    """The features of one channel; image: log counts."""
    mean, sd = float(image.mean()), float(image.std())
    z = (image - mean) / (sd + 1e-6)
    values = [*np.percentile(image, (50, 90, 99)), mean, sd, (z**3).mean(), np.log((z**4).mean() + 1e-9)]
    for part in (mask, near):
        v = image[part]
        low, middle, high = np.percentile(v, (10, 50, 90))
        values += [v.mean(), v.std(), low - middle, high - middle]
    outer = mask & ~inner
    spread = image[inner].mean() - image[outer].mean() if inner.any() and outer.any() else 0.0
    values += [image[mask].mean() - image[near].mean(), spread]
    bands, before = [], image
    for scale in SCALES:
        after = ndi.gaussian_filter(image, scale)
        bands.append(before - after)
        before = after
    values += [np.log(band.std() + 1e-4) for band in bands[1:]]
    values += [np.log(band[near].std() + 1e-4) for band in bands]
    centre = _from_centre(*image.shape)
    values += [image[(centre >= low) & (centre < high)].mean() - mean for low, high in RINGS]
    return values + _coherence(z)


def _coherence(z: Array) -> list[float]:
    """How far structure has one direction, plain and weighted by gradient: from the structure tensor at 3 pixels."""
    from skimage import feature

    tensor = feature.structure_tensor(z, sigma=3, order="rc")
    large, small = feature.structure_tensor_eigenvalues(tensor)
    coherence = (large - small) / (large + small + 1e-6)
    weight = large + small
    return [float(coherence.mean()), float((coherence * weight).sum() / (weight.sum() + 1e-9))]


def _together(one: Array, other: Array, near: Mask) -> list[float]:
    fine = [image - ndi.gaussian_filter(image, 3) for image in (one, other)]
    return [_corr(one, other), _corr(*fine), _corr(one[near], other[near])]


def _corr(one: Array, other: Array) -> float:
    a, b = one - one.mean(), other - other.mean()
    scale = np.sqrt((a**2).sum() * (b**2).sum())
    return float((a * b).sum() / scale) if scale > 0 else 0.0


@lru_cache(maxsize=8)
def _from_centre(height: int, width: int) -> Array:
    y, x = np.mgrid[:height, :width]
    return np.asarray(np.hypot(y - (height - 1) / 2, x - (width - 1) / 2))

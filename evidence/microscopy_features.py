"""Feature tables of the microscopy setting: windows to rows, relative to the control wells of the same plate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from evidence.bbbc021_tables import Field
from evidence.cell_features import NAMES, Array, columns, feature_names
from evidence.contracts import Table

PLATE_WEIGHT, BATCH_WEIGHT = 30.0, 3.0
"""Control cells that count as much as the prior: a plate is shrunk towards its week, a week towards all controls."""
LIMIT = 5.0

INITIAL = feature_names("DT")
ADDED = tuple(name for name in feature_names("DAT") if name not in INITIAL)
"""What the actin channel adds: its own features and its correlations with the other two."""


class Rows(NamedTuple):
    """Windows of several fields. values: (n, n_features) raw features; fields: the field of each row."""

    values: Array
    fields: tuple[Field, ...]


class Normaliser(NamedTuple):
    """Makes features comparable between plates. centre, scale, and each shift of a plate or week: (n_features,)."""

    centre: Array
    scale: Array
    shifts: Mapping[str, Array]

    def __call__(self, rows: Rows) -> Array:
        """(n, n_features) raw -> relative to controls, in spreads of the references, within ±5."""
        if not rows.fields:
            return np.zeros((0, len(self.centre)))
        zero = np.zeros(len(self.centre))
        shift = np.stack([self.shifts.get(f.plate, self.shifts.get(f.batch, zero)) for f in rows.fields])
        return np.asarray(np.clip((rows.values - self.centre) / self.scale - shift, -LIMIT, LIMIT))


def fit_normaliser(controls: Rows, references: Rows) -> Normaliser:
    """Learn from control and reference windows; no label is used. Plates without controls take their week's shift."""
    known = np.concatenate([references.values, controls.values])
    centre, scale = known.mean(axis=0), known.std(axis=0)
    scale = np.where(scale > 1e-9, scale, 1.0)
    if not controls.fields:
        return Normaliser(centre, scale, {})
    z = (controls.values - centre) / scale
    grand = z.mean(axis=0)
    shifts: dict[str, Array] = {}
    for batch, at in _groups(f.batch for f in controls.fields).items():
        week = (z[at].sum(axis=0) + BATCH_WEIGHT * grand) / (len(at) + BATCH_WEIGHT)
        shifts[batch] = week - grand
        for plate, inside in _groups(controls.fields[n].plate for n in at).items():
            own = [at[n] for n in inside]
            shifts[plate] = (z[own].sum(axis=0) + PLATE_WEIGHT * week) / (len(own) + PLATE_WEIGHT) - grand
    return Normaliser(centre, scale, shifts)


def field_means(values: Array, fields: Sequence[Field], order: Sequence[Field]) -> tuple[Array, list[int]]:
    """Mean over the windows of each field of `order`, and how many windows it has; rows of none are 0."""
    groups = _groups(f.id for f in fields)
    counts = [len(groups.get(f.id, ())) for f in order]
    means = [values[groups[f.id]].mean(axis=0) if f.id in groups else np.zeros(len(NAMES)) for f in order]
    return (np.stack(means) if means else np.zeros((0, len(NAMES)))), counts


def reference_table(
    name: str, order: Sequence[Field], means: Array, counts: Sequence[int], features: Sequence[str]
) -> Table:
    """One row a reference field: a number, its class, a code for its compound (not its name), cells, features.

    Fields without a cell are left out. Codes are given in the order of the rows.
    """
    codes: dict[str, str] = {}
    at = columns(features)
    rows: list[tuple[str | float | int | None, ...]] = []
    for number, (field, mean, count) in enumerate(zip(order, means, counts, strict=True), start=1):
        code = codes.setdefault(field.treatment.compound, f"compound {len(codes) + 1}")
        if count:
            rows.append((f"R{number:03d}", str(field.treatment.moa), code, count, *_rounded(mean[at])))
    return Table(name=name, columns=("reference", "class", "compound", "cells", *features), rows=tuple(rows))


def query_table(name: str, mean: Array, count: int, features: Sequence[str]) -> Table:
    """The query's row; no row where the field has no cell."""
    row: tuple[str | float | int | None, ...] = ("query", count, *_rounded(mean[columns(features)]))
    return Table(name=name, columns=("field", "cells", *features), rows=(row,) if count else ())


def _rounded(values: Array) -> tuple[float, ...]:
    return tuple(round(float(v), 2) + 0.0 for v in values)


def _groups(keys: Iterable[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for at, key in enumerate(keys):
        found[key].append(at)
    return found

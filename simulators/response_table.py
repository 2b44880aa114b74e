"""Response tables: predictions stored once, so that loops and tests never train by accident.

One table holds the predicted change of many perturbations, over genes or over readouts, with every ensemble member.
It is one .npz file without pickles; its content hash is inside and is checked when it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, ValidationError

from evidence.errors import DataError, did_you_mean
from evidence.values import Name, Value, canonical_json

Array = NDArray[np.float64]


class Provenance(Value):
    """Where the predictions come from. `data_sha256` is of the training data; `synthetic` marks a generated twin."""

    simulator: Name
    data_sha256: str
    held_out: tuple[str, ...] = ()
    versions: dict[str, str] = Field(default_factory=dict)
    config: dict[str, Any] = Field(default_factory=dict)
    members: tuple[str, ...] = ()
    synthetic: bool = False
    note: str = ""


class _Header(Value):
    format: Literal[1] = 1
    perturbations: tuple[str, ...]
    columns: tuple[str, ...]
    unit: str
    provenance: Provenance
    sha256: str = ""


class Estimate(NamedTuple):
    """Means over members and their standard deviation; sd is None where one member, or none, is stored."""

    mean: Array
    sd: Array | None


@dataclass(frozen=True)
class ResponseTable:
    """Predicted changes. mean: (n_perturbations, n_columns); sd the same shape, or None where it is not known;
    members: (n_members, n_perturbations, n_columns), with no member where only means were published.
    """

    perturbations: tuple[str, ...]
    columns: tuple[str, ...]
    members: Array
    mean: Array
    sd: Array | None
    unit: str
    provenance: Provenance

    @cached_property
    def sha256(self) -> str:
        """Hash of the content: names, unit, provenance and numbers (as float64)."""
        return _content_sha256(self, _header(self))

    def row(self, perturbation: str) -> int:
        """Row number of a perturbation. Raises DataError with near names."""
        if perturbation not in self._rows:
            raise DataError(f"no prediction for {perturbation!r}.{did_you_mean(perturbation, self._rows)}")
        return self._rows[perturbation]

    def estimate(self, perturbation: str) -> Estimate:
        """The predicted change of one perturbation: (n_columns,) mean and sd."""
        row = self.row(perturbation)
        return Estimate(self.mean[row], None if self.sd is None else self.sd[row])

    def project(self, weights: Mapping[str, Mapping[str, float]]) -> ResponseTable:
        """The same predictions over readouts: each a weighted sum of columns (program -> gene -> weight).

        The sd of a readout is taken over members; it is None where no two members are stored, because the columns'
        own sds say nothing of how they vary together. Raises DataError for a gene without a column.
        """
        number = {name: n for n, name in enumerate(self.columns)}
        matrix = np.zeros((len(self.columns), len(weights)))
        for column, (readout, genes) in enumerate(weights.items()):
            absent = [gene for gene in genes if gene not in number]
            if absent:
                raise DataError(f"readout {readout!r}: the table has no column for {', '.join(absent)}")
            for gene, weight in genes.items():
                matrix[number[gene], column] = weight
        members = self.members @ matrix
        return ResponseTable(
            self.perturbations, tuple(weights), members, self.mean @ matrix, _sd(members), self.unit, self.provenance
        )

    def interaction(self, double: str, singles: tuple[str, str]) -> Estimate:
        """AB - A - B of every column, taken inside each member: the sd is that of the difference, not a sum of sds."""
        rows = [self.row(name) for name in (double, *singles)]
        mean = self.mean[rows[0]] - self.mean[rows[1]] - self.mean[rows[2]]
        each = self.members[:, rows[0]] - self.members[:, rows[1]] - self.members[:, rows[2]]
        return Estimate(mean, _sd(each))

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: n for n, name in enumerate(self.perturbations)}


def make_table(
    perturbations: Sequence[str],
    columns: Sequence[str],
    members: ArrayLike,
    *,
    unit: str,
    provenance: Provenance,
    mean: ArrayLike | None = None,
    sd: ArrayLike | None = None,
) -> ResponseTable:
    """A checked table. Mean and sd come from the members; where there are none, `mean` is given, and `sd` if known."""
    each = np.asarray(members, dtype=np.float64)
    shape = (len(perturbations), len(columns))
    if each.ndim != 3 or each.shape[1:] != shape:
        raise DataError(f"expected members of shape (n, {shape[0]}, {shape[1]}), got {each.shape}")
    if (mean is None) == (len(each) == 0) or (sd is not None and len(each)):
        raise DataError("expected members, or a mean where there are no members")
    center = each.mean(axis=0) if mean is None else np.asarray(mean, dtype=np.float64)
    spread = _sd(each) if len(each) else (None if sd is None else np.asarray(sd, dtype=np.float64))
    table = ResponseTable(tuple(perturbations), tuple(columns), each, center, spread, unit, provenance)
    _check(table)
    return table


def save_table(table: ResponseTable, path: Path) -> None:
    """Write one .npz file; it appears whole or not at all."""
    _check(table)
    header = _header(table).model_copy(update={"sha256": table.sha256})
    arrays = {"header": np.frombuffer(canonical_json(header).encode(), dtype=np.uint8)} | _arrays(table)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def load_table(path: Path) -> ResponseTable:
    """Read a table. Raises DataError if it is no table or its content is not what was written."""
    try:
        with path.open("rb") as file:
            stored = np.load(file, allow_pickle=False)
            arrays = {name: stored[name] for name in stored.files}
        header = _Header.model_validate_json(arrays.pop("header").tobytes())
        members, mean = arrays["members"], arrays["mean"]
    except FileNotFoundError as error:
        raise DataError(f"no response table {path}; make it with: vcloop simulate") from error
    except (OSError, AttributeError, KeyError, ValueError, EOFError, zipfile.BadZipFile, ValidationError) as error:
        raise DataError(f"{path} is not a response table: {error}") from error
    table = ResponseTable(
        header.perturbations, header.columns, members, mean, arrays.get("sd"), header.unit, header.provenance
    )
    _check(table)
    if table.sha256 != header.sha256:
        raise DataError(f"{path} was changed: its content has sha256 {table.sha256}, its header says {header.sha256}")
    return table


def _check(table: ResponseTable) -> None:
    shape = (len(table.perturbations), len(table.columns))
    for name, names in (("perturbation", table.perturbations), ("column", table.columns)):
        if len(set(names)) != len(names):
            raise DataError(f"response table: {name} named twice")
    for name, array, wanted in (
        ("mean", table.mean, shape),
        ("members", table.members, (len(table.members), *shape)),
        ("sd", table.sd, shape),
    ):
        if array is not None and (array.shape != wanted or not np.isfinite(array).all()):
            raise DataError(f"response table: expected finite {name} of shape {wanted}, got shape {array.shape}")
    if table.sd is not None and (table.sd < 0).any():
        raise DataError("response table: negative sd")


def _sd(members: Array) -> Array | None:
    return np.asarray(members.std(axis=0, ddof=1)) if len(members) > 1 else None


def _header(table: ResponseTable) -> _Header:
    return _Header(
        perturbations=table.perturbations, columns=table.columns, unit=table.unit, provenance=table.provenance
    )


def _arrays(table: ResponseTable) -> dict[str, Array]:
    arrays = {"members": table.members, "mean": table.mean}
    return arrays if table.sd is None else arrays | {"sd": table.sd}


def _content_sha256(table: ResponseTable, header: _Header) -> str:
    digest = hashlib.sha256(json.dumps(canonical_json(header)).encode())
    for name, array in sorted(_arrays(table).items()):
        digest.update(name.encode() + np.ascontiguousarray(array, dtype="<f8").tobytes())
    return digest.hexdigest()

"""The offline interpreter of images: a discriminant on the features of the reference cells that a request shows.

It reads nothing but the request: the table of reference features with their classes and the query's row, then, where
they were measured, the query's F-actin or its second field. It answers in the form asked of models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from evidence.contracts import NoOptions, Reply, Request, Table
from evidence.values import Value
from interpreters.discriminant import Array, Discriminant, fit_calibrated

FEW_CELLS = 2
PROFILE_WEIGHT = 6.0
"""How much one unit of cosine similarity of the nearest well profile of a class moves its log-probability."""
REFERENCES, QUERY = "reference features", "query features"


class _Known(NamedTuple):
    """Reference rows: classes, compound codes and features; ids in the order of the rows."""

    ids: tuple[str, ...]
    classes: tuple[str, ...]
    compounds: tuple[str, ...]
    x: tuple[tuple[float, ...], ...]


class _Seen(NamedTuple):
    """What a request shows of a query: the references, its features (1, n), its cells, and its neighbours by class."""

    known: _Known
    query: Array
    cells: int
    neighbours: Mapping[str, float]


class PixelsInterpreter:
    """Class probabilities from the features shown; updates on what is measured."""

    Options: ClassVar[type[Value]] = NoOptions
    modalities: ClassVar[frozenset[str]] = frozenset({"table"})
    metered: ClassVar[bool] = False

    def __init__(self, options: NoOptions):
        self.options = options

    def identity(self) -> dict[str, Any]:
        """The name and the version of the method."""
        return {"name": "pixels", "version": 1}

    async def ask(self, request: Request, blobs: Mapping[str, bytes], *, repeat: int) -> Reply:
        """Reply at once; refuses where the request has no feature tables to read."""
        tables = {p.name: p for message in request.messages for p in message.parts if isinstance(p, Table)}
        seen = _read(tables)
        if seen is None:
            return Reply(status="refused", error="pixels: the request has no reference features and query to read")
        model = _model(seen.known)
        chance = _chances(model, seen)
        body: dict[str, Any] = {}
        if request.readouts:
            body["answers"] = {r.id: _answer(r.labels, chance) for r in request.readouts}
        ranked = sorted(chance, key=lambda c: (-chance[c], c))
        body["explanation"] = (
            f"By {seen.query.shape[1]} features of {seen.cells} cells against {len(seen.known.ids)} reference fields, "
            f"{ranked[0]} is nearest ({chance[ranked[0]]:.2f}), then {ranked[1]} ({chance[ranked[1]]:.2f})."
        )
        if request.menu:
            body["measurement"] = _choose([m.id for m in request.menu], seen.cells)
        return Reply(text=json.dumps(body), finish_reason="stop")


def _read(tables: Mapping[str, Table]) -> _Seen | None:
    if REFERENCES not in tables or QUERY not in tables or not tables[QUERY].rows:
        return None
    known = _known(tables[REFERENCES], 4)
    query, cells = _features(tables[QUERY], 2), _cells(tables[QUERY])
    second = tables.get(f"{QUERY}, second field")
    if second is not None and second.rows:
        more = _cells(second)
        query = (cells * query + more * _features(second, 2)) / (cells + more)
        cells += more
    added, own = tables.get(f"{REFERENCES}, F-actin"), tables.get(f"{QUERY}, F-actin")
    if added is not None and own is not None and own.rows:
        more_rows = _known(added, 4)
        extra = dict(zip(more_rows.ids, more_rows.x, strict=True))
        keep = [n for n, name in enumerate(known.ids) if name in extra]
        ids, classes, compounds = (tuple(part[n] for n in keep) for part in known[:3])
        known = _Known(ids, classes, compounds, tuple(known.x[n] + extra[known.ids[n]] for n in keep))
        query = np.concatenate([query, _features(own, 2)])
    if len(set(known.classes)) < 2:
        return None
    return _Seen(known, query[None, :], cells, _neighbours(tables))


def _known(table: Table, first: int) -> _Known:
    ids, classes, compounds = (tuple(str(row[n]) for row in table.rows) for n in range(3))
    return _Known(ids, classes, compounds, tuple(tuple(map(_number, row[first:])) for row in table.rows))


def _features(table: Table, first: int) -> Array:
    return np.array([_number(cell) for cell in table.rows[0][first:]])


def _cells(table: Table) -> int:
    return int(_number(table.rows[0][1]))


def _number(cell: object) -> float:
    """A missing cell is 0, the level of untreated cells."""
    return float(cell) if isinstance(cell, int | float) else 0.0


def _neighbours(tables: Mapping[str, Table]) -> dict[str, float]:
    """The best similarity of each class among the nearest well profiles; with F-actin where that was measured."""
    name = "well profile neighbours"
    table = tables.get(f"{name}, with F-actin") or tables.get(name)
    best: dict[str, float] = {}
    for label, similarity in table.rows if table else ():
        best[str(label)] = max(best.get(str(label), -1.0), _number(similarity))
    return best


@lru_cache(maxsize=64)
def _model(known: _Known) -> Discriminant:
    return fit_calibrated(np.array(known.x), known.classes, known.compounds)


def _chances(model: Discriminant, seen: _Seen) -> dict[str, float]:
    logs = np.log(model.probabilities(seen.query)[0] + 1e-9)
    if seen.neighbours:
        floor = min(seen.neighbours.values())
        logs = logs + PROFILE_WEIGHT * np.array([seen.neighbours.get(c, floor) for c in model.classes])
    chance = np.exp(logs - logs.max())
    return dict(zip(model.classes, (float(p) for p in chance / chance.sum()), strict=True))


def _answer(labels: Sequence[str], chance: Mapping[str, float]) -> dict[str, Any]:
    """The best label, its probability, and the probabilities of all; a label without a reference gets 0."""
    given = {label: round(chance.get(label, 0.0), 4) for label in labels}
    best = max(labels, key=lambda label: given[label])
    return {"label": best, "confidence": given[best], "probabilities": given}


def _choose(menu: Sequence[str], cells: int) -> str:
    """A second field where there are few cells to go by, else the third stain; else the first entry."""
    wanted = "second_field" if cells <= FEW_CELLS else "actin"
    return wanted if wanted in menu else menu[0]

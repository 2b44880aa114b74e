"""The offline interpreter: fixed rules that read the tables a model would read and reply in the same form.

It is the floor every model is compared with. It reads nothing but the request. What it answers to the static
benchmarks' items is in interpreters.static_rules.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, TypeGuard

from evidence.beliefs import class_probabilities
from evidence.contracts import NUMERIC_LABELS, Measurement, NoOptions, Readout, Reply, Request, Table
from evidence.values import Value
from interpreters.static_rules import STEPS, static_reply

TABLES = ("calibrated", "predictions")
"""The tables it reads, best first; the newest of the first kind present counts."""


class Belief(NamedTuple):
    """A change of one readout: mean, standard deviation, and the most probable class where the table names one."""

    mean: float
    sd: float
    label: str | None = None


class RulesInterpreter:
    """Answer each readout with the class of its predicted change; measure where that class is least certain."""

    Options: ClassVar[type[Value]] = NoOptions
    modalities: ClassVar[frozenset[str]] = frozenset({"table"})
    metered: ClassVar[bool] = False

    def __init__(self, options: NoOptions):
        self.options = options

    def identity(self) -> dict[str, Any]:
        """The name and the version of the rules."""
        return {"name": "rules", "version": 1}

    async def ask(self, request: Request, blobs: Mapping[str, bytes], *, repeat: int) -> Reply:
        """Reply at once; refuses, like a model would, where the request has no table it can read."""
        if request.step in STEPS:
            return static_reply(request)
        beliefs = _beliefs(request)
        if not beliefs:
            return Reply(status="refused", error="rules: the request has no table of predictions to read")
        cautious = request.step == "review"
        answers = {r.id: _answer(r, beliefs[r.id], cautious) for r in request.readouts if r.id in beliefs}
        body: dict[str, Any] = {"answers": answers} if answers else {}
        body["explanation"] = (
            "A change whose one-sigma interval crosses the threshold counts as near zero."
            if cautious
            else "Each class follows from the predicted change and its threshold."
        )
        if request.menu:
            body["measurement"] = _least_certain(request, beliefs)
        return Reply(text=json.dumps(body), finish_reason="stop")


def _beliefs(request: Request) -> dict[str, Belief]:
    tables = [p for message in request.messages for p in message.parts if isinstance(p, Table)]
    for name in TABLES:
        newest = next((t for t in reversed(tables) if t.name == name), None)
        if newest is not None:
            return {
                str(row[0]): Belief(row[1], row[2], str(row[3]) if newest.columns[3:] == ("class",) else None)
                for row in newest.rows
                if _is_number(row[1]) and _is_number(row[2])
            }
    return {}


def _is_number(cell: object) -> TypeGuard[float]:
    return isinstance(cell, float)


def _answer(readout: Readout, belief: Belief, cautious: bool) -> dict[str, Any]:
    towards_zero = math.copysign(max(0.0, abs(belief.mean) - belief.sd), belief.mean) if cautious else belief.mean
    label = belief.label if belief.label in readout.labels else readout.classify(towards_zero)
    confidence = _class_probabilities(readout, belief)[NUMERIC_LABELS.index(label)]
    return {"label": label, "value": round(belief.mean, 4) + 0.0, "confidence": round(confidence, 4)}


def _class_probabilities(readout: Readout, belief: Belief) -> tuple[float, float, float]:
    """P(down), P(near zero), P(up) of a normal belief."""
    return class_probabilities(belief.mean, belief.sd, readout.threshold or 0.0)


def _least_certain(request: Request, beliefs: Mapping[str, Belief]) -> str:
    """The menu entry whose readout has the least probable best class; entries that measure none come last."""
    readouts = {r.id: r for r in request.readouts}

    def certainty(entry: Measurement) -> float:
        readout = entry.readout
        if readout is None or readout not in readouts or readout not in beliefs:
            return 2.0
        return max(_class_probabilities(readouts[readout], beliefs[readout]))

    return min(request.menu, key=lambda entry: (certainty(entry), entry.id)).id

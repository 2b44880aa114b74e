"""A case as it was opened, as scoring reads it: what cases of a run have in common is read and checked once.

A line that the structs take is one that loops.archive.Opened takes, with the same fields (tests/loops/test_opened.py);
any other line is read by that.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from pydantic import TypeAdapter, ValidationError

from evidence import contracts
from evidence.contracts import Measurement, Observation, Readout, Stated, classes
from loops.archive import Opened, event_of
from loops.lean import Lean, Name, NonNegative, Prediction


class Truth(Lean, frozen=True):
    """evidence.contracts.Truth."""

    readout: Name
    label: Name
    value: float | None = None
    se: NonNegative | None = None


class Perturbation(Lean, frozen=True):
    """evidence.contracts.Perturbation."""

    id: Name
    name: Name
    targets: tuple[Name, ...]
    action: str = ""
    note: str = ""


class Asked:
    """The readouts and the menu of a case, and what follows from them. Cases that ask the same mostly share one.

    `names` are the ids of the readouts, `entries` the menu by id; `numeric`: all readouts are.
    """

    def __init__(self, readouts: tuple[Readout, ...], menu: tuple[Measurement, ...]):
        self.readouts = readouts
        self.menu = menu
        self.names = tuple([r.id for r in readouts])
        self.entries = {m.id: m for m in menu}
        self.numeric = all(r.numeric for r in readouts)
        self._limits = [r.threshold for r in readouts if r.threshold is not None]

    def decide(self, predictions: Sequence[Stated]) -> tuple[list[str], list[float]]:
        """Classes and means of predictions: one a readout, in their order, or several times as many."""
        times, means = len(predictions) // len(self.readouts), [p.mean for p in predictions]
        if self.numeric and not [p for p in predictions if p.dof is not None]:
            return classes(means, self._limits * times), means
        return [r.decide(p) for r, p in zip(self.readouts * times, predictions, strict=True)], means


class Case(msgspec.Struct, frozen=True, gc=False):
    """The id of a case and what it asks."""

    id: str
    asked: Asked


class OpenedCase(NamedTuple):
    """loops.archive.Opened, of its case what scoring needs."""

    case: Case
    truth: tuple[Truth, ...]
    sealed: tuple[Observation, ...]
    baselines: Mapping[str, tuple[Prediction, ...]]
    adapter_inputs: str


class LineCase(Lean, frozen=True):
    """evidence.contracts.Case."""

    id: Name
    title: Name
    perturbation: Perturbation
    readouts: msgspec.Raw
    menu: msgspec.Raw


class Line(Lean, frozen=True):
    """loops.archive.Opened. `sealed`, as `readouts` and `menu` of the case, is read by values of evidence.contracts."""

    case: LineCase
    truth: tuple[Truth, ...]
    sealed: msgspec.Raw
    baselines: dict[str, tuple[Prediction, ...]]
    adapter_inputs: str
    event: Literal["opened"]


_DECODE = msgspec.json.Decoder(Line).decode
_SEALED = TypeAdapter(tuple[Observation, ...]).validator.validate_json
_CASE = b'{"id":"-","title":"-","perturbation":{"id":"-","name":"-","targets":[]},"readouts":%b,"menu":%b}'


def read_opened(line: bytes, path: Path, number: int, damaged: list[int]) -> OpenedCase | None:
    """The case that a line opens; None, and its number to `damaged`, where it is no JSON. Raises ArchiveError."""
    try:
        found = _DECODE(line)
        case = Case(found.case.id, _asked(bytes(found.case.readouts), bytes(found.case.menu)))
        return OpenedCase(case, found.truth, _SEALED(bytes(found.sealed)), found.baselines, found.adapter_inputs)
    except (msgspec.MsgspecError, ValidationError, RecursionError):
        pass
    event = event_of(line, path, number, damaged)
    return opened_case(event) if isinstance(event, Opened) else None


def opened_case(opened: Opened) -> OpenedCase:
    """What scoring needs of a case as it was opened."""
    return OpenedCase(
        case=Case(opened.case.id, Asked(opened.case.readouts, opened.case.menu)),
        truth=msgspec.convert(opened.truth, tuple[Truth, ...], from_attributes=True),
        sealed=opened.sealed,
        baselines=msgspec.convert(opened.baselines, dict[str, tuple[Prediction, ...]], from_attributes=True),
        adapter_inputs=opened.adapter_inputs,
    )


@functools.lru_cache(maxsize=32)
def _asked(readouts: bytes, menu: bytes) -> Asked:
    """What the JSON of readouts and a menu asks. Raises ValidationError where no case can have both."""
    case = contracts.Case.model_validate_json(_CASE % (readouts, menu))
    return Asked(case.readouts, case.menu)

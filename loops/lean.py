"""The events of a cell as scoring reads them: the fields of loops.archive's values, decoded and checked in one pass.

A line that these structs take is one that loops.archive's values take, with the same fields (tests/loops/test_lean.py);
any other line is read by those. Reading it takes a fifth of their time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from evidence import contracts
from evidence.contracts import Step
from loops import archive
from loops.archive import CaseOutcome, event_of

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
NonNegative = Annotated[float, msgspec.Meta(ge=0)]
Tokens = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]


class Lean(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A closed, frozen value. None of them is part of a cycle. Fields in the order of canonical lines decode faster.

    Events that are decoded as what a line's first key says have a field `event`, so that a line without it is none;
    those that are told apart by it have it as their tag.
    """


class Answer(Lean, frozen=True, kw_only=True):
    """evidence.contracts.Answer."""

    confidence: float | None = None
    label: str | None = None
    probabilities: tuple[float, ...] | None = None
    readout: Name
    reason: str = ""
    status: Literal["answered", "missing", "invalid"]
    value: float | None = None


class Usage(Lean, frozen=True, kw_only=True):
    """evidence.contracts.Usage."""

    completion_tokens: Tokens | None = None
    prompt_tokens: Tokens | None = None


class Observation(Lean, frozen=True, kw_only=True):
    """evidence.contracts.Observation. `parts` are values of evidence.contracts, which check them."""

    measurement: Name
    n_cells: int | None = None
    parts: tuple[Any, ...] = ()
    readout: str | None = None
    reason: str = ""
    se: NonNegative | None = None
    status: Literal["measured", "missing"] = "measured"
    value: float | None = None


class Prediction(Lean, frozen=True, kw_only=True):
    """evidence.contracts.Prediction."""

    dof: Annotated[float, msgspec.Meta(gt=2)] | None = None
    mean: float
    readout: Name
    sd: NonNegative


class Stepped(Lean, frozen=True, kw_only=True):
    """loops.archive.Stepped."""

    answers: tuple[Answer, ...] = ()
    attempts: tuple[str, ...]
    case: str
    event: Literal["stepped"]
    proposal: str | None = None
    repeat: int
    status: str
    step: Step
    turn: int
    unmetered: int = 0
    usage: Usage


class Selected(Lean, frozen=True, kw_only=True, tag_field="event", tag="selected"):
    """loops.archive.Selected."""

    case: str
    measurement: str | None
    reason: str = ""
    refused: tuple[str, ...] = ()
    repeat: int
    turn: int


class Observed(Lean, frozen=True, kw_only=True):
    """loops.archive.Observed."""

    calibrated: tuple[Prediction, ...]
    case: str
    event: Literal["observed"]
    observation: Observation
    repeat: int
    turn: int


class Closed(Lean, frozen=True, kw_only=True, tag_field="event", tag="closed"):
    """loops.archive.Closed."""

    case: str
    measured: tuple[str, ...] = ()
    outcome: CaseOutcome
    repeat: int


Event = Stepped | Selected | Observed | Closed
_KINDS: Mapping[str, type[Event]] = {"stepped": Stepped, "selected": Selected, "observed": Observed, "closed": Closed}
DECODERS = {name: msgspec.json.Decoder(kind).decode for name, kind in _KINDS.items()}


class _Kind(msgspec.Struct, gc=False):
    event: str


_KIND = msgspec.json.Decoder(_Kind).decode


def decode(line: bytes) -> Event:
    """The event of any line of a cell. Raises msgspec's errors where it is none."""
    kind = _KIND(line).event
    if kind not in DECODERS:
        raise msgspec.ValidationError(f"{kind!r} is no event of a cell")
    return DECODERS[kind](line)


BY_START: Mapping[bytes, Callable[[bytes], Event]] = {
    b"ans": DECODERS["stepped"],
    b"cal": DECODERS["observed"],
    b"cas": msgspec.json.Decoder(Selected | Closed).decode,
}
"""Decoders by how the first key of a canonical line begins: one that knows the type need not look for it first."""


def read_events(lines: bytes) -> list[Event] | None:
    """The events of some lines of cells; None where a line has to be read alone."""
    try:
        events = [BY_START.get(line[2:5], decode)(line) for line in lines.removesuffix(b"\n").split(b"\n")]
    except (msgspec.MsgspecError, RecursionError):
        return None
    return events if all(map(_sound, events)) else None


def read_event(line: bytes, path: Path, number: int, damaged: list[int]) -> Event | None:
    """The event of a line of a cell; None, and its number to `damaged`, where it is no JSON. Raises ArchiveError."""
    at_once = read_events(line)
    if at_once:
        return at_once[0]
    found = event_of(line, path, number, damaged)
    return None if found is None else event(found)


def _sound(event: Event) -> bool:
    """Whether an event keeps what its types do not say; parts of an observation are left to their own checks."""
    if isinstance(event, Stepped):
        return not [a for a in event.answers if (a.status == "answered") is (a.label is None)]
    return not isinstance(event, Observed) or not event.observation.parts


def event(given: archive.Event) -> Event:
    """An event as the archive's own values have it."""
    return msgspec.convert(given, _KINDS[given.event], from_attributes=True)


def answer(given: contracts.Answer) -> Answer:
    """An answer that was read from a reply."""
    return msgspec.convert(given, Answer, from_attributes=True)


def observation(given: contracts.Observation) -> Observation:
    """An observation that was sealed when the case was opened."""
    return msgspec.convert(given, Observation, from_attributes=True)

"""The one parser of replies: from the raw text to answers and a proposal. Pure, total and deterministic.

The form asked of models, and the only one read:

    {"answers": {"<readout id>": {"label": "...", "value": number or null, "confidence": 0 to 1}},
     "explanation": "...", "measurement": "<menu id>" or null}

"answers" is asked where the request has readouts, "measurement" where it has a menu. Answers to categorical readouts
may have "probabilities": {label: p} and have no value. The rules are written out in docs/replies.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from evidence.contracts import Answer, Readout, Reply, ReplyStatus, Request
from evidence.values import Value
from interpreters.extract import clean, extract_object, shown
from interpreters.numbers import read_number
from interpreters.reply_schema import reply_schema

__all__ = ["Parsed", "ParsedStatus", "ProposalStatus", "parse_reply", "reply_schema", "same_label"]

ParsedStatus = Literal["invalid"] | ReplyStatus
ProposalStatus = Literal["given", "declined", "missing", "not_on_menu"]

MAX_VALUE = 1e6
"""No readout changes by more: a larger value is a slip, and would swallow every mean."""

SUM_TOLERANCE = 0.03
"""How far probabilities may sum from 1: room for rounding to two decimals."""

_SEPARATORS = str.maketrans("_-", "  ")


class Parsed(Value):
    """A reply, read.

    `status` is "ok", "invalid" (the form is wrong; `problems` says how, in words for the model), or the reply's own
    status where that is not ok. `answers` has one entry for every requested readout, in order; well-formed ones are
    kept even where others are not. `proposal` is the menu id chosen, `proposal_text` what the model wrote; a proposal
    that is wrong or missing does not make the reply invalid.
    """

    status: ParsedStatus
    answers: tuple[Answer, ...] = ()
    proposal: str | None = None
    proposal_text: str | None = None
    proposal_status: ProposalStatus = "missing"
    explanation: str = ""
    problems: tuple[str, ...] = ()


class _Proposal(NamedTuple):
    status: ProposalStatus
    choice: str | None = None
    text: str | None = None
    problem: str = ""


def parse_reply(request: Request, reply: Reply) -> Parsed:
    """Read a reply to a request. Never raises, whatever the text."""
    if reply.status != "ok":
        return _unread(request, reply.status, f"the reply has no answer to read: {reply.status}")
    found = extract_object(reply.text)
    if found.value is None:
        return _unread(request, "invalid", found.problem)
    answers = _answers(request.readouts, found.value.get("answers"))
    problems = [f"answer to {shown(a.readout)}: {a.reason}" for a in answers if a.status != "answered"]
    proposal = _proposal(request.menu_ids, found.value)
    explanation = found.value.get("explanation")
    return Parsed(
        status="invalid" if problems else "ok",
        answers=answers,
        proposal=proposal.choice,
        proposal_text=proposal.text,
        proposal_status=proposal.status,
        explanation=clean(explanation).strip() if isinstance(explanation, str) else "",
        problems=tuple(problems + ([proposal.problem] if proposal.problem else [])),
    )


def same_label(text: str) -> str:
    """What two labels have in common if they are the same: trimmed, any case, "_" and "-" read as a blank."""
    return text.strip().casefold().translate(_SEPARATORS)


def _unread(request: Request, status: ParsedStatus, problem: str) -> Parsed:
    answers = tuple(Answer(readout=r.id, status="missing", reason=problem) for r in request.readouts)
    return Parsed(status=status, answers=answers, problems=(problem,))


# --- answers -----------------------------------------------------------------------------------------------------


def _answers(readouts: Sequence[Readout], given: object) -> tuple[Answer, ...]:
    if not isinstance(given, dict):
        reason = 'expected "answers" to be an object with one entry for every readout'
        return tuple(Answer(readout=r.id, status="missing", reason=reason) for r in readouts)
    asked = {r.id for r in readouts}
    spare = sorted(key for key in given if key not in asked)
    return tuple(_answer(r, given[r.id]) if r.id in given else _absent(r, spare) for r in readouts)


def _absent(readout: Readout, spare: Sequence[str]) -> Answer:
    reason = "no entry with this id"
    if spare:
        reason += f"; got {', '.join(shown(key, 40) for key in spare[:3])}"
    return Answer(readout=readout.id, status="missing", reason=reason)


def _answer(readout: Readout, given: object) -> Answer:
    if given is None:
        return Answer(readout=readout.id, status="missing", reason="null in place of an answer")
    if not isinstance(given, dict):
        return Answer(readout=readout.id, status="invalid", reason='expected an object with a "label"')
    label = given.get("label")
    if label is None or (isinstance(label, str) and not label.strip()):
        return Answer(readout=readout.id, status="missing", reason="no label")
    try:
        return Answer(
            readout=readout.id,
            status="answered",
            label=_label(readout.labels, label),
            value=_value(given) if readout.numeric else None,
            confidence=_confidence(given),
            probabilities=None if readout.numeric else _probabilities(readout.labels, given.get("probabilities")),
        )
    except _Invalid as problem:
        return Answer(readout=readout.id, status="invalid", reason=str(problem))


class _Invalid(Exception):
    """Why one answer cannot be used; never leaves this module."""


def _label(labels: Sequence[str], given: object) -> str:
    if isinstance(given, str):
        match = _match(labels, given, same_label)
        if match is not None:
            return match
    options = ", ".join(shown(label) for label in labels)
    got = shown(given) if isinstance(given, str) else _plain(given)
    raise _Invalid(f"expected one of the labels {options}, got {got}")


def _value(given: Mapping[str, Any]) -> float | None:
    """A value may be null or left out: the label stands, and there is no continuous error to score."""
    return None if given.get("value") is None else _number("value", given["value"], -MAX_VALUE, MAX_VALUE)


def _confidence(given: Mapping[str, Any]) -> float | None:
    """A confidence may be left out; null is not a number from 0 to 1."""
    return _number("confidence", given["confidence"], 0, 1) if "confidence" in given else None


def _probabilities(labels: Sequence[str], given: object) -> tuple[float, ...] | None:
    if given is None:
        return None
    if not isinstance(given, dict):
        raise _Invalid('expected "probabilities" to be an object with one number for every label')
    by_label: dict[str, float] = {}
    for key, value in given.items():
        label = _match(labels, key, same_label)
        if label is None or label in by_label:
            raise _Invalid(f"probabilities: {shown(key)} is not a label of this readout, or is named twice")
        by_label[label] = _number(f"probability of {shown(label)}", value, 0, 1)
    if len(by_label) != len(labels) or abs(sum(by_label.values()) - 1) > SUM_TOLERANCE:
        raise _Invalid("expected probabilities for every label that sum to 1")
    return tuple(by_label[label] for label in labels)


def _number(name: str, value: object, low: float | None = None, high: float | None = None) -> float:
    reading = read_number(value, low, high)
    if reading.value is None:
        raise _Invalid(f"{name}: {reading.problem}")
    return reading.value


def _match(names: Sequence[str], text: str, key: Callable[[str], str]) -> str | None:
    """The name meant: an exact match, else the only one that is equal under `key`."""
    if text in names:
        return text
    equal = [name for name in names if key(name) == key(text)]
    return equal[0] if len(equal) == 1 else None


def _plain(value: object) -> str:
    """A short JSON view of anything JSON can hold."""
    return shown(value) if isinstance(value, str) else clean(json.dumps(value))[:80]


# --- proposal ----------------------------------------------------------------------------------------------------


def _proposal(menu: Sequence[str], found: Mapping[str, Any]) -> _Proposal:
    if not menu:
        return _Proposal("missing")
    given = found.get("measurement")
    text = clean(given).strip() if isinstance(given, str) else _plain(given)
    choice = _match(menu, text, lambda name: name.strip().casefold())
    if choice is not None and isinstance(given, str):
        return _Proposal("given", choice, text)
    legal = ", ".join(shown(entry) for entry in menu)
    if "measurement" not in found or text == "":
        return _Proposal("missing", problem=f'no "measurement"; expected one of {legal}, or null for none')
    if given is None or text.casefold() == "none":
        return _Proposal("declined", text=None if given is None else text)
    return _Proposal(
        "not_on_menu", text=text, problem=f"measurement {shown(text)} is not on the menu; expected one of {legal}"
    )

"""The traces of a run, case by case from the archive's files, so that memory does not grow with the run.

One pass notes where each cell's lines are; a case is then read by itself. Everything in a trace is plain data under
fixed keys: what a model or a data file says is only ever a value.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from evidence.contracts import Case, Figure, Message, Part
from evidence.errors import ArchiveError
from evidence.journal import CallRecord, call_of
from evidence.values import Value, canonical_json
from loops import lean
from loops.archive import Opened, RunRecord
from loops.config import RunConfig
from loops.index import LineIndex, LineReader, Place
from loops.run_events import STAGES, Parts, RunEvents

OPEN = "not finished"
STEP_ORDER = ("predict", "review", "select", "observe", "calibrate", "revise")


class Trace(NamedTuple):
    """One case of a run. `outcomes` says per repeat how it ended; `data` is what the page shows."""

    case: str
    title: str
    outcomes: tuple[str, ...]
    data: dict[str, Any]


class Messages:
    """Messages by number: a conversation that grows, or a system message of a thousand calls, is kept once.

    `figures` are the figures among their parts and among those of observations, by sha256.
    """

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.figures: dict[str, Figure] = {}
        self.size = 0
        self._numbers: dict[str, int] = {}

    def add(self, plain: Mapping[str, Any]) -> int:
        """The number of an archived message, new or known. Raises ArchiveError where it cannot be read."""
        text = canonical_json(plain)
        if text not in self._numbers:
            try:
                message = Message.model_validate_json(text)
            except ValidationError as error:
                raise ArchiveError(f"a message cannot be read: {error}") from error
            self._numbers[text] = len(self.items)
            self.items.append(message.model_dump(mode="json"))
            self.size += len(text)
            self.note(message.parts)
        return self._numbers[text]

    def note(self, parts: Iterable[Part]) -> None:
        """Take up the figures among parts."""
        self.figures |= {part.sha256: part for part in parts if isinstance(part, Figure)}


class TraceReader:
    """The traces of one run. Raises ArchiveError for a line that is no event or call, or of a case the run lacks."""

    def __init__(self, folder: Path, run: RunRecord, config: RunConfig):
        self.config = config
        self._events = RunEvents(folder, run)
        self._calls = LineIndex(folder / "calls.jsonl", run.cases)

    def read(self, case: str, messages: Messages) -> Trace:
        """The trace of one case; its messages go to `messages`."""
        with self._events.index.open() as reader, self._calls.open() as calls:
            return self._read(case, reader, calls, messages)

    def _read(self, case: str, reader: LineReader, call_reader: LineReader, messages: Messages) -> Trace:
        opened = self._events.opened(reader, case)
        outcomes, shown = [], []
        for repeat in range(self.config.repeats):
            place = Place(case, repeat)
            own, mine = self._events.parts(reader, place), _calls(call_reader, place)
            whole = own.closed is not None and own.whole(self.config.review)
            outcomes.append(own.closed.outcome if own.closed is not None and whole else OPEN)
            shown.append({"outcome": outcomes[-1], "steps": list(_steps(own, mine, messages))})
        title = case if opened is None else opened.case.title
        about = None if opened is None else _about(opened)
        return Trace(case, title, tuple(outcomes), {"about": about, "repeats": shown})


def _calls(reader: LineReader, place: Place) -> dict[tuple[str, int], list[CallRecord]]:
    """The calls of a cell by step and turn."""
    found: dict[tuple[str, int], list[CallRecord]] = defaultdict(list)
    for number, line in reader.lines(place):
        call = call_of(line, reader.index.path, number, [])
        if call is not None:
            found[call.step, call.turn].append(call)
    return found


def _about(opened: Opened) -> dict[str, Any]:
    case: Case = opened.case
    truth = {t.readout: t for t in opened.truth}
    return {
        "perturbation": case.perturbation.model_dump(mode="json", include={"name", "action", "note"}),
        "readouts": [
            {
                **r.model_dump(mode="json", include={"id", "name", "description", "threshold", "unit"}),
                "truth": None if r.id not in truth else _picked(truth[r.id], "label", "value", "se"),
            }
            for r in case.readouts
        ],
        "menu": [m.model_dump(mode="json", include={"id", "name", "cost"}) for m in case.menu],
        "sealed": [_picked(o, "measurement", "status", "value", "se", "n_cells", "reason") for o in opened.sealed],
        "baselines": [
            [name, [_picked(p, "readout", "mean", "sd") for p in predictions]]
            for name, predictions in sorted(opened.baselines.items())
        ],
    }


def _steps(
    parts: Parts, calls: Mapping[tuple[str, int], list[CallRecord]], messages: Messages
) -> Iterator[dict[str, Any]]:
    places = {(turn, step) for step, turn in (*parts.steps, *calls)}
    places |= {(turn, "select") for turn in parts.selected}
    places |= {(turn, step) for turn in parts.observed for step in ("observe", "calibrate")}
    for turn, step in sorted(places, key=lambda place: (place[0], STEP_ORDER.index(place[1]))):
        yield {"turn": turn, "step": step, **_step(parts, calls.get((step, turn), []), step, turn, messages)}


def _step(parts: Parts, calls: list[CallRecord], step: str, turn: int, messages: Messages) -> dict[str, Any]:
    match step:
        case "observe":
            observation = parts.observed[turn].observation
            messages.note(observation.parts)
            return {"observation": _observation(observation)}
        case "calibrate":
            return {"calibrated": [_read(p, "readout", "mean", "sd") for p in parts.observed[turn].calibrated]}
    data: dict[str, Any] = {"calls": [_call(call, messages) for call in calls]}
    stepped = parts.steps.get((step, turn))
    if stepped is not None:
        data |= {"status": stepped.status, "proposal": stepped.proposal, "attempts": list(stepped.attempts)}
        data["answers"] = [_answer(a) for a in stepped.answers] if step in STAGES.values() else None
    if step == "select" and turn in parts.selected:
        data["selected"] = _read(parts.selected[turn], "measurement", "refused", "reason")
    return data


def _call(call: CallRecord, messages: Messages) -> dict[str, Any]:
    reply = call.reply
    return {
        **_picked(reply, "status", "text", "reasoning", "finish_reason", "error"),
        "sent": json.dumps(reply.sent, sort_keys=True) if reply.sent else "",
        "tokens": [reply.usage.prompt_tokens, reply.usage.completion_tokens],
        "attempt": call.attempt,
        "repair": call.repair,
        "seconds": call.seconds,
        "messages": [messages.add(m) for m in _messages(call)],
    }


def _messages(call: CallRecord) -> list[Mapping[str, Any]]:
    found = call.request.get("messages")
    if not isinstance(found, list) or not all(isinstance(message, dict) for message in found):
        raise ArchiveError(f"the request of case {call.case!r}, step {call.step}, has no messages that can be read")
    return found


def _observation(observation: lean.Observation) -> dict[str, Any]:
    parts = [part.model_dump(mode="json") for part in observation.parts]
    return {
        **_read(observation, "measurement", "readout", "status", "value", "se", "n_cells", "reason"),
        "parts": parts,
    }


def _answer(answer: lean.Answer) -> dict[str, Any]:
    return _read(answer, "readout", "status", "label", "value", "confidence", "reason")


def _read(event: lean.Lean, *names: str) -> dict[str, Any]:
    return {name: getattr(event, name) for name in names}


def _picked(value: Value, *names: str) -> dict[str, Any]:
    picked: dict[str, Any] = value.model_dump(mode="json", include=set(names))
    return picked

"""The archive read back: one cell for every finished case and repeat."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from evidence.checks import check_truth
from evidence.contracts import Adapter, AdapterInputs, Answer, Case, Observation, Prediction, Request, Truth
from evidence.errors import ArchiveError, ContractError
from evidence.journal import CallRecord
from evidence.registry import ADAPTERS
from interpreters.reply import parse_reply
from loops.archive import (
    Closed,
    Observed,
    Opened,
    RunRecord,
    Selected,
    Stepped,
    read_blob,
    read_calls,
    scan_events,
)
from loops.config import RunConfig, build

STAGES = {"initial": "predict", "reviewed": "review", "revised": "revise"}
"""The scored stages and the step that gives each."""


class Cell(NamedTuple):
    """One case in one repeat, as archived: what was answered at each stage, what was measured, how it ended."""

    case: Case
    repeat: int
    truth: tuple[Truth, ...]
    answers: Mapping[str, tuple[Answer, ...]]
    measured: tuple[str, ...]
    outcome: str
    sealed: tuple[Observation, ...]
    inputs: AdapterInputs | None
    adapted: tuple[Prediction, ...]
    simulated: tuple[Prediction, ...]
    baselines: Mapping[str, tuple[Prediction, ...]]
    steps: tuple[Stepped, ...]
    refused: int


def archived_config(run: RunRecord, folder: Path) -> RunConfig:
    """The resolved config of a run. Raises ArchiveError where this version cannot read it."""
    try:
        return RunConfig.model_validate_json(json.dumps(run.config))
    except ValueError as error:
        raise ArchiveError(f"{folder / 'run.json'}: the archived config cannot be read: {error}") from error


@dataclass
class Parts:
    """The events of one case in one repeat; where a resumed run wrote a step again, the last one counts."""

    steps: dict[tuple[str, int], Stepped] = field(default_factory=dict)
    selected: dict[int, Selected] = field(default_factory=dict)
    observed: dict[int, Observed] = field(default_factory=dict)
    closed: Closed | None = None

    def add(self, event: Stepped | Selected | Observed | Closed) -> None:
        """Take up one event."""
        match event:
            case Stepped():
                self.steps[event.step, event.turn] = event
            case Selected():
                self.selected[event.turn] = event
            case Observed():
                self.observed[event.turn] = event
            case Closed():
                self.closed = event

    def whole(self, review: bool) -> bool:
        """Whether the case is closed and no line of it was lost: a closed case that is not whole is run again."""
        if self.closed is None or ("predict", 0) not in self.steps:
            return False
        if self.closed.outcome == "predict failed":
            return True
        turns = range(len(self.closed.measured))
        made = tuple(self.observed[t].observation.measurement for t in turns if t in self.observed)
        chosen = tuple(self.selected[t].measurement for t in turns if t in self.selected)
        revised = all(("revise", t) in self.steps for t in turns)
        ended = self.closed.outcome in ("complete", "revise failed") or len(turns) in self.selected
        reviewed = not review or ("review", 0) in self.steps
        return revised and ended and reviewed and made == chosen == self.closed.measured


class Events(NamedTuple):
    """The events of a run by case, and the numbers of damaged lines."""

    opened: dict[str, Opened]
    parts: dict[tuple[str, int], Parts]
    damaged: list[int]


def group_events(folder: Path, run: RunRecord) -> Events:
    """Read events.jsonl by case and repeat. Raises ArchiveError for events of a case the run does not have."""
    damaged: list[int] = []
    opened: dict[str, Opened] = {}
    found: dict[tuple[str, int], Parts] = {}
    for event in scan_events(folder, damaged):
        if isinstance(event, Opened):
            opened[event.case.id] = event
            continue
        found.setdefault((event.case, event.repeat), Parts()).add(event)
    unknown = sorted({case for case, _ in found} - set(run.cases)) + sorted(set(opened) - set(run.cases))
    if unknown:
        raise ArchiveError(f"{folder / 'events.jsonl'}: events of case {unknown[0]!r}, which run.json does not have")
    return Events(opened, found, damaged)


class Read(NamedTuple):
    """The finished cells of a run in no order, the adapter, the cases as opened, and the numbers of damaged lines."""

    cells: list[Cell]
    adapter: Adapter
    opened: Mapping[str, Opened]
    damaged: list[int]
    damaged_calls: list[int]


def read_cells(folder: Path, run: RunRecord, config: RunConfig, reparse: bool) -> Read:
    """The cells whose record is whole; others count as open. Raises ArchiveError."""
    events = group_events(folder, run)
    damaged_calls = _reparse(folder, events.parts) if reparse else []
    adapter = build(ADAPTERS, config.adapter, f"{folder / 'run.json'}: adapter")
    inputs = {case: _inputs(folder, event, config) for case, event in events.opened.items()}
    cells = []
    for (case, repeat), parts in events.parts.items():
        if case in events.opened and repeat < config.repeats and parts.whole(config.review):
            try:
                cells.append(_cell(events.opened[case], repeat, parts, inputs[case], adapter))
            except (ContractError, ArchiveError) as error:
                raise ArchiveError(f"{folder / 'events.jsonl'}, case {case!r}: {error}") from error
    return Read(cells, adapter, events.opened, events.damaged, damaged_calls)


def _inputs(folder: Path, opened: Opened, config: RunConfig) -> AdapterInputs | None:
    if (config.simulator is None) != (opened.adapter_inputs == ""):
        raise ArchiveError(
            f"{folder}: case {opened.case.id!r} has adapter inputs if and only if the run has a simulator"
        )
    if not opened.adapter_inputs:
        return None
    try:
        return AdapterInputs.model_validate_json(read_blob(folder, opened.adapter_inputs))
    except ValidationError as error:
        raise ArchiveError(f"{folder}: blob {opened.adapter_inputs} holds no adapter inputs") from error


def _cell(opened: Opened, repeat: int, parts: Parts, inputs: AdapterInputs | None, adapter: Any) -> Cell:
    closed = parts.closed
    assert closed is not None  # noqa: S101 - only whole parts come here
    observations = [parts.observed[turn].observation for turn in range(len(closed.measured))]
    _check_sealed(opened, observations)
    check_truth(opened.case, opened.truth)
    steps = tuple(parts.steps[key] for key in sorted(parts.steps, key=lambda k: (k[1], k[0])))
    for step in steps:
        _check_answers(opened.case, step)
    return Cell(
        case=opened.case,
        repeat=repeat,
        truth=opened.truth,
        answers=_stage_answers(opened.case, steps),
        measured=tuple(o.measurement for o in observations),
        outcome=closed.outcome,
        sealed=opened.sealed,
        inputs=inputs,
        adapted=() if inputs is None else adapter.calibrate(inputs, observations),
        simulated=() if inputs is None else inputs.predictions,
        baselines=opened.baselines,
        steps=steps,
        refused=sum(len(s.refused) for s in parts.selected.values()),
    )


def _check_sealed(opened: Opened, observations: Iterable[Observation]) -> None:
    sealed = {o.measurement: o for o in opened.sealed}
    for observation in observations:
        if sealed.get(observation.measurement) != observation:
            raise ArchiveError(
                f"case {opened.case.id!r}: the observation {observation.measurement!r} differs from the sealed one"
            )


def _check_answers(case: Case, step: Stepped) -> None:
    """Answers are to the readouts asked, in order, with labels that were options."""
    if not step.answers:
        return
    if [a.readout for a in step.answers] != [r.id for r in case.readouts]:
        raise ArchiveError(f"step {step.step}: answers to {[a.readout for a in step.answers]}")
    for readout, answer in zip(case.readouts, step.answers, strict=True):
        if answer.label is not None and answer.label not in readout.labels:
            raise ArchiveError(f"step {step.step}: {answer.label!r} is no option of {readout.id!r}")


def _stage_answers(case: Case, steps: Sequence[Stepped]) -> dict[str, tuple[Answer, ...]]:
    """Answers by stage. Where no revision was asked for, the initial answers stand as the final ones."""
    answers: dict[str, tuple[Answer, ...]] = {}
    for stage, step in STAGES.items():
        made = [s for s in steps if s.step == step]
        if made:
            answers[stage] = made[-1].answers or missing_answers(case, made[-1].status)
    if "revised" not in answers:
        answers["revised"] = answers.get("initial", missing_answers(case, "not reached"))
    return answers


def missing_answers(case: Case, reason: str) -> tuple[Answer, ...]:
    """An answer with status "missing" for every readout."""
    return tuple(Answer(readout=r.id, status="missing", reason=reason) for r in case.readouts)


def archived_request(call: CallRecord) -> Request:
    """The request of an archived call. Raises ArchiveError where this version cannot read it."""
    plain = {key: value for key, value in call.request.items() if key != "identity"}
    try:
        return Request.model_validate_json(json.dumps(plain))
    except ValidationError as error:
        raise ArchiveError(f"the request of case {call.case!r}, step {call.step}, cannot be read: {error}") from error


def _reparse(folder: Path, found: Mapping[tuple[str, int], Parts]) -> list[int]:
    """Read the raw reply of every step's last attempt again. Returns the damaged lines of calls.jsonl.

    A step whose last attempt is not there (its line is damaged) keeps its archived reading.
    """
    calls = read_calls(folder)
    for call in calls.records:
        parts = found.get((call.case, call.repeat))
        stepped = None if parts is None else parts.steps.get((call.step, call.turn))
        if parts is None or stepped is None or call.step == "select" or call.attempt != len(stepped.attempts):
            continue
        parsed = parse_reply(archived_request(call), call.reply)
        reading = {"answers": parsed.answers, "status": parsed.status}
        parts.steps[call.step, call.turn] = stepped.model_copy(update=reading)
    return calls.damaged

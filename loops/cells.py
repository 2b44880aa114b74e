"""The archive read back cell by cell: one cell for every finished case and repeat, and no more than one in memory."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from pydantic import ValidationError

from evidence.checks import check_truth
from evidence.contracts import Adapter, AdapterInputs, Case, Observation, Prediction, Request, Truth
from evidence.errors import ArchiveError, ConfigError, ContractError
from evidence.journal import CallRecord, call_of
from evidence.registry import ADAPTERS
from evidence.strict_yaml import parse_value
from interpreters.reply import SUM_TOLERANCE, parse_reply
from loops import lean
from loops.archive import Opened, RunRecord, read_blob
from loops.config import RunConfig, build
from loops.index import LineIndex, LineReader, Place
from loops.lean import Answer, Stepped
from loops.run_events import Parts, RunEvents

STAGES = {"initial": "predict", "reviewed": "review", "revised": "revise"}
"""The scored stages and the step that gives each."""


class Cell(NamedTuple):
    """One case in one repeat, as archived: what was answered at each stage, what was measured, how it ended.

    `queried` are the readouts that were measured. What repeats of a case have in common is the same object in all of
    them, and so are `queried` and `adapted` where the same was measured.
    """

    case: Case
    repeat: int
    truth: tuple[Truth, ...]
    answers: Mapping[str, tuple[Answer, ...]]
    measured: tuple[str, ...]
    queried: frozenset[str]
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
        return parse_value(json.dumps(run.config), RunConfig, where=f"{folder / 'run.json'}: config", as_json=True)
    except ConfigError as error:
        raise ArchiveError(str(error)) from error


class Cells:
    """The finished cells of a run: iterating reads them, in the order of the case file and of the repeats.

    A cell is finished where its record is whole; others count as open. `damaged` and `damaged_calls` are the numbers of
    damaged lines, complete when the iteration ends. `reparse` reads the raw reply of every step's last attempt again; a
    step whose last attempt is not there (its line is damaged) keeps its archived reading. Raises ArchiveError.
    """

    def __init__(self, folder: Path, run: RunRecord, config: RunConfig, *, reparse: bool = False):
        self.folder = folder
        self.run = run
        self.config = config
        self.events = RunEvents(folder, run)
        self.adapter: Adapter = build(ADAPTERS, config.adapter, f"{folder / 'run.json'}: adapter")
        self._calls = LineIndex(folder / "calls.jsonl", None) if reparse else None
        self._damaged_calls: list[int] = [] if self._calls is None else list(self._calls.damaged)

    @property
    def damaged(self) -> list[int]:
        """The numbers of damaged lines of events.jsonl."""
        return self.events.damaged

    @property
    def damaged_calls(self) -> list[int]:
        """The numbers of damaged lines of calls.jsonl, where it was read."""
        return sorted(self._damaged_calls)

    def __iter__(self) -> Iterator[Cell]:
        with self.events.index.open() as reader, contextlib.ExitStack() as more:
            calls = None if self._calls is None else more.enter_context(self._calls.open())
            for case in self.run.cases:
                opened = self.events.opened(reader, case)
                shared: _Shared | None = None
                for repeat in range(self.config.repeats):
                    parts = self.events.parts(reader, Place(case, repeat))
                    if calls is not None:
                        self._reparse(calls, Place(case, repeat), parts)
                    if opened is not None and parts.whole(self.config.review):
                        try:
                            if shared is None:
                                shared = _Shared(opened, _inputs(self.folder, opened, self.config), self.adapter)
                            cell = _cell(shared, repeat, parts)
                        except (ContractError, ArchiveError) as error:
                            raise ArchiveError(f"{self.events.index.path}, case {case!r}: {error}") from error
                        yield cell
            for place in self.events.index.places():
                if place.repeat is not None and place.repeat >= self.config.repeats:
                    self.events.parts(reader, place)  # scored nowhere, but its damage is told

    def _reparse(self, calls: LineReader, place: Place, parts: Parts) -> None:
        for number, line in calls.lines(place):
            call = call_of(line, calls.index.path, number, self._damaged_calls)
            stepped = None if call is None else parts.steps.get((call.step, call.turn))
            if call is None or stepped is None or call.step == "select" or call.attempt != len(stepped.attempts):
                continue
            parsed = parse_reply(archived_request(call), call.reply)
            answers = tuple(lean.answer(a) for a in parsed.answers)
            parts.steps[call.step, call.turn] = msgspec.structs.replace(stepped, answers=answers, status=parsed.status)


class _Shared:
    """What all repeats of a case share: it is checked once, and calibrated once for each way of measuring.

    Raises ContractError where the truth does not answer the readouts.
    """

    def __init__(self, opened: Opened, inputs: AdapterInputs | None, adapter: Adapter):
        check_truth(opened.case, opened.truth)
        self.opened = opened
        self.inputs = inputs
        self._adapter = adapter
        self._readouts = [r.id for r in opened.case.readouts]
        self._options = [frozenset((*r.labels, None)) for r in opened.case.readouts]
        self._sealed = {o.measurement: o for o in opened.sealed}
        self._measured: dict[str, lean.Observation] = {}
        self._ways: dict[tuple[str, ...], _Way] = {}

    def check_observation(self, observation: lean.Observation) -> None:
        """Raise ArchiveError where an observation is not the one that was sealed when the case was opened."""
        name = observation.measurement
        if name not in self._measured and name in self._sealed:
            self._measured[name] = lean.observation(self._sealed[name])
        if self._measured.get(name) != observation:
            raise ArchiveError(f"the observation {name!r} differs from the sealed one")

    def check_answers(self, step: Stepped) -> None:
        """Raise ArchiveError unless answers are to the readouts asked, in order, with labels that were options."""
        answers = step.answers
        if not answers:
            return
        if [a.readout for a in answers] != self._readouts:
            raise ArchiveError(f"step {step.step}: answers to {[a.readout for a in answers]}")
        for a, options in zip(answers, self._options, strict=True):
            if a.label not in options:
                raise ArchiveError(f"step {step.step}: {a.label!r} is no option of {a.readout!r}")
            stated, chances = a.confidence, a.probabilities
            if stated is not None and not 0 <= stated <= 1:
                raise ArchiveError(f"step {step.step}: the confidence of {a.readout!r} is not from 0 to 1")
            if chances is not None and not _fit(chances, options):
                raise ArchiveError(
                    f"step {step.step}: the probabilities of {a.readout!r} are not one a label that sum to 1"
                )

    def way(self, measured: tuple[str, ...]) -> _Way:
        """What measuring these, in this order, gives in every repeat."""
        if measured not in self._ways:
            found = (self.opened.case.measurement(m).readout for m in measured)
            adapted = None
            if self.inputs is not None:
                adapted = self._adapter.calibrate(self.inputs, [self._sealed[m] for m in measured])
            self._ways[measured] = _Way(measured, frozenset(r for r in found if r is not None), adapted or ())
        return self._ways[measured]


def _fit(chances: Sequence[float], options: Collection[str | None]) -> bool:
    """Whether there is a probability for every label, and they sum to 1 as closely as in a reply. None is no label."""
    n_labels = sum(option is not None for option in options)
    rounding = SUM_TOLERANCE + 1e-9
    return len(chances) == n_labels and all(0 <= p <= 1 for p in chances) and abs(sum(chances) - 1) <= rounding


class _Way(NamedTuple):
    """What was measured, the readouts of that, and the adapter's predictions after it."""

    measured: tuple[str, ...]
    queried: frozenset[str]
    adapted: tuple[Prediction, ...]


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


def _cell(shared: _Shared, repeat: int, parts: Parts) -> Cell:
    closed, opened = parts.closed, shared.opened
    assert closed is not None  # noqa: S101 - only whole parts come here
    for turn in range(len(closed.measured)):
        shared.check_observation(parts.observed[turn].observation)
    steps = tuple([parts.steps[step, turn] for turn, step in sorted([(turn, step) for step, turn in parts.steps])])
    for step in steps:
        shared.check_answers(step)
    way = shared.way(closed.measured)
    return Cell(
        case=opened.case,
        repeat=repeat,
        truth=opened.truth,
        answers=_stage_answers(opened.case, steps),
        measured=way.measured,
        queried=way.queried,
        outcome=closed.outcome,
        sealed=opened.sealed,
        inputs=shared.inputs,
        adapted=way.adapted,
        simulated=() if shared.inputs is None else shared.inputs.predictions,
        baselines=opened.baselines,
        steps=steps,
        refused=sum(len(s.refused) for s in parts.selected.values()),
    )


def _stage_answers(case: Case, steps: tuple[Stepped, ...]) -> dict[str, tuple[Answer, ...]]:
    """Answers by stage. Where no revision was asked for, the initial answers stand as the final ones."""
    last = {step.step: step for step in steps}
    answers: dict[str, tuple[Answer, ...]] = {}
    for stage, step in STAGES.items():
        made = last.get(step)  # type: ignore[call-overload]
        if made is not None:
            answers[stage] = made.answers or missing_answers(case, made.status)
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

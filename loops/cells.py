"""The archive read back as cells: one for every finished case and repeat, and no more than some hundreds in memory."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
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
from interpreters.reply import parse_reply
from loops import lean
from loops.answer_checks import Questions, all_fit
from loops.answers import Answers
from loops.archive import Opened, RunRecord, read_blob
from loops.cell_events import CellEvents, CellLines, Plan
from loops.config import RunConfig, build
from loops.index import LineIndex, LineReader, Place
from loops.run_events import OpenedCases

CELLS_AT_ONCE = 256
"""Cells whose answers are checked at a time."""


class Cell(msgspec.Struct, frozen=True, gc=False):
    """One case in one repeat, as archived: what was answered at each stage, what was measured, how it ended.

    `answers`: the entry of a stage's first answer among those of the run; one follows for each readout. `steps` are
    numbers of steps of the run, in the order of turns. `queried` are the readouts that were measured. What repeats of a
    case have in common is the same object in all of them; so are `queried` and `adapted` where the same was measured.
    """

    case: Case
    repeat: int
    truth: tuple[Truth, ...]
    answers: Mapping[str, int]
    measured: tuple[str, ...]
    queried: frozenset[str]
    outcome: str
    sealed: tuple[Observation, ...]
    inputs: AdapterInputs | None
    adapted: tuple[Prediction, ...]
    simulated: tuple[Prediction, ...]
    baselines: Mapping[str, tuple[Prediction, ...]]
    steps: tuple[int, ...]
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
        self.index = CellEvents(folder / "events.jsonl", run.cases, config.repeats, review=config.review)
        self.events = OpenedCases(self.index)
        self.adapter: Adapter = build(ADAPTERS, config.adapter, f"{folder / 'run.json'}: adapter")
        self._calls = LineIndex(folder / "calls.jsonl", None) if reparse else None
        self._damaged_calls: list[int] = [] if self._calls is None else list(self._calls.damaged)

    @property
    def answers(self) -> Answers:
        """The answers of the run."""
        return self.index.answers

    @property
    def damaged(self) -> list[int]:
        """The numbers of damaged lines of events.jsonl."""
        return self.events.damaged

    @property
    def damaged_calls(self) -> list[int]:
        """The numbers of damaged lines of calls.jsonl, where it was read."""
        return sorted(self._damaged_calls)

    def __iter__(self) -> Iterator[Cell]:
        with self.index.open() as reader, contextlib.ExitStack() as more:
            calls = None if self._calls is None else more.enter_context(self._calls.open())
            made: list[tuple[_Shared, Cell]] = []
            for number, case in enumerate(self.run.cases):
                opened, shared = self.events.opened(reader, case), None
                for lines in self.index.cells(number) if calls is None else self._reparsed(calls, number):
                    plan = self.index.plan(lines.marks)
                    if opened is None or not plan.whole:
                        continue
                    try:
                        if shared is None:
                            inputs = _inputs(self.folder, opened, self.config)
                            shared = _Shared(opened, inputs, self.adapter, self.index)
                        made.append((shared, shared.cell(plan, lines)))
                    except (ContractError, ArchiveError) as error:
                        raise self._at(case, error) from error
                    if len(made) == CELLS_AT_ONCE:
                        yield from self._checked(made)
                        made = []
            yield from self._checked(made)

    def _checked(self, made: Sequence[tuple[_Shared, Cell]]) -> Iterator[Cell]:
        """Cells, after the answers of all their steps were checked."""
        asked = [(shared.questions, cell.steps) for shared, cell in made]
        if not all_fit(asked, self.index.steps):
            for own, steps in asked:
                try:
                    own.check(steps, self.index.steps)
                except ArchiveError as error:
                    raise self._at(own.case, error) from error
        return iter([cell for _, cell in made])

    def _at(self, case: str, error: Exception) -> ArchiveError:
        return ArchiveError(f"{self.index.path}, case {case!r}: {error}")

    def _reparsed(self, calls: LineReader, number: int) -> Iterator[CellLines]:
        """The lines of a case, steps replaced by what reading their last attempts again gives."""
        found = {lines.repeat: lines for lines in self.index.cells(number)}
        for repeat in range(self.config.repeats):
            lines = found.get(repeat, CellLines(repeat, (), []))
            steps = self.index.plan(lines.marks).steps
            for line_number, line in calls.lines(Place(self.run.cases[number], repeat)):
                call = call_of(line, calls.index.path, line_number, self._damaged_calls)
                at = None if call is None or call.step == "select" else steps.get((call.step, call.turn))
                if call is None or at is None or call.attempt != self.index.steps.attempts(lines.refs[at]):
                    continue
                parsed = parse_reply(archived_request(call), call.reply)
                answers = [lean.answer(a) for a in parsed.answers]
                lines.refs[at] = self.index.steps.reread(lines.refs[at], parsed.status, answers)
            if lines.marks:
                yield lines


class _Shared:
    """What all repeats of a case share: it is checked once, and calibrated once for each way of measuring.

    Raises ContractError where the truth does not answer the readouts.
    """

    def __init__(self, opened: Opened, inputs: AdapterInputs | None, adapter: Adapter, index: CellEvents):
        check_truth(opened.case, opened.truth)
        self.opened = opened
        self.inputs = inputs
        self.simulated = () if inputs is None else inputs.predictions
        self.questions = Questions(opened.case, index.answers)
        self._adapter = adapter
        self._index = index
        self._sealed = {o.measurement: o for o in opened.sealed}
        self._observed: set[int] = set()
        self._ways: dict[tuple[str, ...], _Way] = {}

    def cell(self, plan: Plan, lines: CellLines) -> Cell:
        """A whole cell. Raises ArchiveError where it observed something else than what was sealed."""
        refs, opened = lines.refs, self.opened
        for at in plan.observed:
            if refs[at] not in self._observed:
                self._check_observation(refs[at])
        way = self._way(plan.measured)
        return Cell(
            case=opened.case,
            repeat=lines.repeat,
            truth=opened.truth,
            answers=self._answers(plan, refs),
            measured=way.measured,
            queried=way.queried,
            outcome=plan.outcome,
            sealed=opened.sealed,
            inputs=self.inputs,
            adapted=way.adapted,
            simulated=self.simulated,
            baselines=opened.baselines,
            steps=tuple([refs[at] for at in plan.steps.values()]),
            refused=sum([refs[at] for at in plan.selected]),
        )

    def _answers(self, plan: Plan, refs: Sequence[int]) -> dict[str, int]:
        """Answers by stage. Where no revision was asked for, the initial answers stand as the final ones."""
        steps, missing = self._index.steps, self._index.answers.missing
        answers: dict[str, int] = {}
        for stage, at in plan.stages.items():
            step = refs[at]
            answers[stage] = (
                steps.first[step] if steps.size[step] else missing(self.questions.names, steps.status(step))
            )
        if "revised" not in answers:
            answers["revised"] = (
                answers["initial"] if "initial" in answers else missing(self.questions.names, "not reached")
            )
        return answers

    def _check_observation(self, number: int) -> None:
        """Raise ArchiveError where an observation is not the one that was sealed when the case was opened."""
        observation = self._index.observations.things[number]
        sealed = self._sealed.get(observation.measurement)
        if sealed is None or lean.observation(sealed) != observation:
            raise ArchiveError(f"the observation {observation.measurement!r} differs from the sealed one")
        self._observed.add(number)

    def _way(self, measured: tuple[str, ...]) -> _Way:
        """What measuring these, in this order, gives in every repeat."""
        if measured not in self._ways:
            found = (self.opened.case.measurement(m).readout for m in measured)
            adapted = None
            if self.inputs is not None:
                adapted = self._adapter.calibrate(self.inputs, [self._sealed[m] for m in measured])
            self._ways[measured] = _Way(measured, frozenset(r for r in found if r is not None), adapted or ())
        return self._ways[measured]


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


def archived_request(call: CallRecord) -> Request:
    """The request of an archived call. Raises ArchiveError where this version cannot read it."""
    plain = {key: value for key, value in call.request.items() if key != "identity"}
    try:
        return Request.model_validate_json(json.dumps(plain))
    except ValidationError as error:
        raise ArchiveError(f"the request of case {call.case!r}, step {call.step}, cannot be read: {error}") from error

"""The archive read back as cells: one for every finished case and repeat, in columns, some at a time."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from evidence.contracts import Adapter, Request
from evidence.errors import ArchiveError, ConfigError, ContractError
from evidence.journal import CallRecord, call_of
from evidence.registry import ADAPTERS
from evidence.strict_yaml import parse_value
from interpreters.reply import parse_reply
from loops import lean
from loops.answer_checks import Questions, all_fit
from loops.answers import Answers, Numbers, joined
from loops.archive import RunRecord
from loops.cell_events import NOWHERE, CellEvents
from loops.config import RunConfig, build
from loops.index import LineIndex, LineReader, Place
from loops.opened import Asked, OpenedCase
from loops.run_events import STAGES, OpenedCases
from loops.ways import CaseWays, Way, archived_inputs

AT_ONCE = 1024
"""Cells in a batch."""

Ints = NDArray[np.intp]


class Batch(NamedTuple):
    """Some finished cells, k of them, in the order of the case file and of the repeats; each has at least one answer.

    `way` (k,): which of `ways` a cell measured; `repeat` (k,). `first`: stage -> (k,) entry of a cell's first answer
    among those of the run, one follows for each readout; NOWHERE in a cell without this stage. `steps` are the numbers
    of all their steps, `outcomes` how many ended how, `refused` is how many selections were refused.
    """

    ways: Sequence[Way]
    way: Ints
    repeat: Ints
    first: Mapping[str, Ints]
    steps: Ints
    outcomes: Mapping[str, int]
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
        self._questions: Questions | None = None
        self._damaged_calls: list[int] = []
        if reparse:
            calls = LineIndex(folder / "calls.jsonl", None)
            self._damaged_calls += calls.damaged
            with calls.open() as reader:
                self._read_again(reader)

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

    def __iter__(self) -> Iterator[Batch]:
        case_of, cases = self.index.cell // self.config.repeats, self.run.cases
        opened, n_opened = dict[int, OpenedCase | None](), 0
        with self.index.open() as reader:
            for start in range(0, len(case_of), AT_ONCE):
                end = min(start + AT_ONCE, len(case_of))
                first, last = int(case_of[start]), int(case_of[end - 1])
                opened = {number: case for number, case in opened.items() if number == first}
                opened |= {number: self.events.in_short(reader, cases[number]) for number in range(n_opened, last + 1)}
                n_opened = last + 1
                batch = self._batch(start, end, opened)
                if len(batch.way):
                    yield batch
            for case in cases[n_opened:]:  # for its damaged lines
                self.events.in_short(reader, case)

    def _batch(self, start: int, end: int, opened: Mapping[int, OpenedCase | None]) -> Batch:
        """The finished cells from one place to another among those that have lines."""
        index, repeats = self.index, self.config.repeats
        plan_of, plans = np.array(index.plans_of(start, end), dtype=np.intp), index.plans
        case_of, lost = index.cell[start:end] // repeats, [number for number, case in opened.items() if case is None]
        whole = np.array([plan.whole for plan in plans], dtype=bool)[plan_of]
        kept = np.flatnonzero(whole & ~np.isin(case_of, lost))
        plan_of, case_of, lines = plan_of[kept], case_of[kept], index.start[start:end][kept]
        cases = {number: self._case(number, opened[number]) for number in np.unique(case_of).tolist()}

        first = {stage: np.full(len(kept), NOWHERE, dtype=np.intp) for stage in STAGES}
        measured, measured_of = Numbers[tuple[str, ...]](), np.zeros(len(kept), dtype=np.intp)
        steps, asked, observed = list[Ints](), list[Ints](), set[tuple[int, int]]()
        outcomes, refused = Counter[str](), 0
        for number in np.unique(plan_of).tolist():
            plan, mine = plans[number], np.flatnonzero(plan_of == number)
            own, case = lines[mine], case_of[mine]
            for stage, line in plan.stages.items():
                first[stage][mine] = self._first(index.ref[own + line], case, cases)
            if "revised" not in plan.stages:  # none was asked for: the initial answers stand
                first["revised"][mine] = first["initial"][mine]
            for line in plan.observed:
                observed.update(zip(case.tolist(), index.ref[own + line].tolist(), strict=True))
            steps.append(index.ref[own[:, None] + np.array(list(plan.steps.values()))].ravel())
            asked.append(np.repeat(case, len(plan.steps)))
            refused += sum(int(index.ref[own + line].sum()) for line in plan.selected)
            outcomes[plan.outcome] += len(mine)
            measured_of[mine] = measured[plan.measured]
        for number, observation in sorted(observed):
            try:
                cases[number].check_observation(index.observations.things[observation])
            except ArchiveError as error:
                raise self._at(number, error) from error
        pairs, way = np.unique(case_of * max(1, len(measured)) + measured_of, return_inverse=True)
        ways = [cases[pair // len(measured)].way(measured.things[pair % len(measured)]) for pair in pairs.tolist()]
        all_steps = joined(steps)
        self._check(all_steps, joined(asked), cases)
        return Batch(ways, way, index.cell[start:end][kept] % repeats, first, all_steps, outcomes, refused)

    def _case(self, number: int, opened: OpenedCase | None) -> CaseWays:
        assert opened is not None  # noqa: S101 - cells of such a case are not among the finished ones
        try:
            inputs = archived_inputs(self.folder, opened, self.config)
            return CaseWays(opened, inputs, self.adapter, self._questions_of(opened.case.asked))
        except (ContractError, ArchiveError) as error:
            raise self._at(number, error) from error

    def _questions_of(self, asked: Asked) -> Questions:
        """The questions of a case; the same as those of the case before where it asks the same."""
        if self._questions is None or self._questions.asked is not asked:
            self._questions = Questions(asked, self.answers)
        return self._questions

    def _first(self, step: Ints, case: Ints, cases: Mapping[int, CaseWays]) -> Ints:
        """The entries of the first answers of steps (n,) of cases (n,); of one without answers, missing ones."""
        steps = self.index.steps
        first = np.asarray(steps.first)[step]
        for n in np.flatnonzero(np.asarray(steps.size)[step] == 0).tolist():
            first[n] = self.answers.missing(cases[int(case[n])].questions.names, steps.status(int(step[n])))
        return first

    def _check(self, steps: Ints, asked: Ints, cases: Mapping[int, CaseWays]) -> None:
        """Raise ArchiveError where a step, of those (n,), has answers that its case (n,) does not ask for."""
        questions = [case.questions for case in cases.values()]
        if not all_fit(questions, np.searchsorted(list(cases), asked), steps, self.index.steps):
            for n in np.argsort(asked, kind="stable").tolist():
                number = int(asked[n])
                try:
                    cases[number].questions.check((int(steps[n]),), self.index.steps)
                except ArchiveError as error:
                    raise self._at(number, error) from error

    def _at(self, number: int, error: Exception) -> ArchiveError:
        return ArchiveError(f"{self.index.path}, case {self.run.cases[number]!r}: {error}")

    def _read_again(self, calls: LineReader) -> None:
        """Give every step what reading its last attempt again gives."""
        index, steps = self.index, self.index.steps
        plans = zip(index.plans_of(0, len(index.cell)), index.start[:-1].tolist(), strict=True)
        plan_of = dict(zip(index.cell.tolist(), plans, strict=True))
        for cell, (case, repeat) in enumerate(itertools.product(self.run.cases, range(self.config.repeats))):
            plan, start = plan_of.get(cell, (None, 0))
            for line_number, line in calls.lines(Place(case, repeat)):
                call = call_of(line, calls.index.path, line_number, self._damaged_calls)
                at = None if call is None or plan is None else index.plans[plan].steps.get((call.step, call.turn))
                if call is None or at is None or call.step == "select":
                    continue
                step = int(index.ref[start + at])
                if call.attempt == steps.attempts(step):
                    parsed = parse_reply(archived_request(call), call.reply)
                    answers = [lean.answer(a) for a in parsed.answers]
                    index.ref[start + at] = steps.reread(step, parsed.status, answers)


def archived_request(call: CallRecord) -> Request:
    """The request of an archived call. Raises ArchiveError where this version cannot read it."""
    plain = {key: value for key, value in call.request.items() if key != "identity"}
    try:
        return Request.model_validate_json(json.dumps(plain))
    except ValidationError as error:
        raise ArchiveError(f"the request of case {call.case!r}, step {call.step}, cannot be read: {error}") from error

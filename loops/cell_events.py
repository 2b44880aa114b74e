"""events.jsonl read once, from front to back: of the events of cells only columns stay, one entry a line.

A line has a mark: what of its event decides which steps of the cell count and whether the cell is whole. Cells with the
same marks are read alike, so that this is settled once for all of them (`Plan`).
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from loops import lean
from loops.answers import Answers, Numbers
from loops.collection import rare_collection
from loops.index import LineIndex, Place
from loops.lean import Closed, Event, Observed, Selected, Stepped
from loops.run_events import STAGES, Parts, check_names
from loops.step_columns import StepColumns

NOWHERE = -1
"""Stands for a cell that is scored nowhere."""


class Plan(NamedTuple):
    """Which of a cell's lines count, by their place among its lines; the last of a step or turn counts.

    `stages`: the step of each scored stage. `steps` are in the order of turns.
    """

    whole: bool
    outcome: str
    measured: tuple[str, ...]
    steps: dict[tuple[str, int], int]
    stages: dict[str, int]
    observed: tuple[int, ...]
    selected: tuple[int, ...]


class _Case(msgspec.Struct, gc=False):
    id: str


class _Opened(msgspec.Struct, gc=False):
    """What a line that opens a case says of its place; the rest of it is read when the case is."""

    case: _Case
    event: Literal["opened"]


class _Seen(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A line that says what was observed; repeats of a case mostly say the same, to the byte."""

    calibrated: msgspec.Raw
    case: str
    event: Literal["observed"]
    observation: msgspec.Raw
    repeat: int
    turn: int


class _Known(NamedTuple):
    """The number of an observation, and the event of a line that was checked."""

    number: int
    event: Observed


_KINDS: Mapping[type, int] = {Stepped: 0, Observed: 1, _Seen: 1, Selected: 2, Closed: 3}
_OTHER = 4
_OPENED = msgspec.json.Decoder(_Opened).decode
_BY_START: Mapping[bytes, Callable[[bytes], Event | _Opened | _Seen]] = {
    **lean.BY_START,
    b"ada": _OPENED,
    b"cal": msgspec.json.Decoder(_Seen).decode,
}
KNOWN = 4096
"""How many different lines of observations are known at a time, so that they are checked once."""


def _decode(line: bytes) -> Event | _Opened:
    try:
        return lean.decode(line)
    except msgspec.ValidationError:
        return _OPENED(line)


class CellEvents(LineIndex):
    """The events of all cells in columns, and, as an index, where the lines are that open cases.

    `cell`: the number of each cell that has lines (that of its case times the repeats, plus its own repeat), ascending.
    Its lines are those of `mark` and `ref` from its `start` to the next one's: their marks, and of each the number of
    its step or observation, or how many were refused. Raises ArchiveError for lines that are no events or of a case
    that the run does not have.
    """

    def __init__(self, path: Path, cases: Sequence[str], repeats: int, *, review: bool):
        self.answers = Answers()
        self.steps = StepColumns(self.answers)
        self.observations: Numbers[lean.Observation] = Numbers()
        self._known: dict[tuple[int, bytes, bytes], _Known] = {}
        self._marks: Numbers[tuple[Any, ...]] = Numbers()
        self._examples: list[Event] = []
        self.plans: list[Plan] = []
        self._plan_of: Numbers[bytes] = Numbers()
        self._repeats = repeats
        self._review = review
        self._first = {case: number * repeats for number, case in enumerate(cases)}
        self._cell, self._mark, self._ref = array("q"), array("i"), array("q")
        with rare_collection():
            super().__init__(path, cases)
        self._sort()

    def plans_of(self, first: int, last: int) -> list[int]:
        """How to read the cells from one place of `cell` to another: numbers among `plans`."""
        marks, starts = self.mark[self.start[first] : self.start[last]], self.start[first : last + 1]
        text, ends = marks.tobytes(), ((starts - starts[0]) * marks.itemsize).tolist()
        numbers = [self._plan_of[text[a:b]] for a, b in itertools.pairwise(ends)]
        for new in self._plan_of.things[len(self.plans) :]:
            found = np.frombuffer(new, dtype=marks.dtype).tolist()
            self.plans.append(_plan([self._examples[mark] for mark in found], self._review))
        return numbers

    def _sort(self) -> None:
        """Put the lines of each cell together, in the order written, cells in the order of cases and repeats."""
        cell = np.asarray(self._cell, dtype=np.int64)
        order = np.argsort(cell, kind="stable")
        order = order[np.searchsorted(cell[order], 0) :]
        self.cell, starts = np.unique(cell[order], return_index=True)
        self.start = np.append(starts, len(order))
        self.mark, self.ref = np.asarray(self._mark)[order], np.asarray(self._ref)[order]
        del self._cell, self._mark, self._ref, self._known

    def _named(self, before: int, lines: list[bytes]) -> list[Place | None]:
        """Take up the events of cells. The places of the other lines."""
        by_start = _BY_START
        found: list[Event | _Opened | _Seen | Place | None]
        try:
            found = [by_start.get(line[2:5], _decode)(line) for line in lines]
        except (msgspec.MsgspecError, RecursionError):
            found = [self._alone(number, line) for number, line in enumerate(lines, start=before + 1)]
        places = self._take_up(before, lines, found)
        if not self.answers.sound:
            for n, event in enumerate(found, start=1):
                if type(event) is Stepped:
                    self._alone(before + n, lines[n - 1])
        return places

    def _alone(self, number: int, line: bytes) -> Event | Place | None:
        """The event of a line; the place of one that opens a case, or is of an unknown one; None for a damaged one."""
        (named,) = super()._named(number - 1, [line])
        if named is None:
            return None
        place = Place(*named)
        if place.repeat is None or place.case not in self._first:
            return place
        if place.repeat < 0:
            return None
        event = lean.read_event(line, self.path, number, self.damaged)
        if event is not None:
            check_names(self.path, number, place, event.case, event.repeat)
        return event

    def _take_up(self, before: int, lines: Sequence[bytes], found: list[Any]) -> list[Place | None]:
        """Append events to the columns, kind by kind. The places of what is no event of a cell, None for all others."""
        kinds = np.array([_KINDS.get(type(event), _OTHER) for event in found], dtype=np.int8)
        seen = list[_Known]()
        for n in np.flatnonzero(kinds == _KINDS[Observed]).tolist():
            known = self._known_as(before + n + 1, lines[n], found[n])
            if isinstance(known, _Known):
                seen.append(known)
            else:
                found[n], kinds[n] = known, _KINDS.get(type(known), _OTHER)
        order = np.argsort(kinds, kind="stable")
        sorted_ = [found[n] for n in order.tolist()]
        ends = np.cumsum(np.bincount(kinds, minlength=_OTHER)).tolist()
        stepped, _, selected, closed = (sorted_[a:b] for a, b in itertools.pairwise([0, *ends[:_OTHER]]))
        n_events, places = ends[_OTHER - 1], list[Place | None]([None] * len(found))
        for n, event in zip(order[n_events:].tolist(), sorted_[n_events:], strict=True):
            places[n] = Place(event.case.id, None) if type(event) is _Opened else event

        marks = self._marked(stepped, [(e.step, e.turn) for e in stepped])
        marks += self._marked([e for _, e in seen], [(e.turn, e.observation.measurement, "observed") for _, e in seen])
        marks += self._marked(selected, [(e.turn, e.measurement, "selected") for e in selected])
        marks += self._marked(closed, [(e.outcome, e.measured) for e in closed])
        step = len(self.steps)
        refs = list(range(step, step + len(stepped)))
        refs += [number for number, _ in seen]
        refs += [len(e.refused) for e in selected]
        refs += [0] * len(closed)
        self.steps.add(stepped)

        first, repeats, unknown = self._first.get, self._repeats, NOWHERE - self._repeats
        events = sorted_[:n_events]
        cells = [first(e.case, unknown) + e.repeat if 0 <= e.repeat < repeats else NOWHERE for e in events]
        if cells and min(cells) < 0:
            for n, event in zip(order[:n_events].tolist(), events, strict=True):
                if event.case not in self._first:
                    places[n] = Place(event.case, event.repeat)
        back = np.argsort(order[:n_events])
        for column, new in ((self._cell, cells), (self._mark, marks), (self._ref, refs)):
            column.frombytes(np.array(new, dtype=column.typecode)[back].tobytes())
        return places

    def _known_as(self, number: int, line: bytes, event: _Seen | Observed) -> _Known | Event | Place | None:
        """What was observed, checked once for all lines that say the same; else what `_alone` says of the line."""
        found: Event | Place | None
        if isinstance(event, Observed):
            said, found = None, event
        else:
            said = event.turn, bytes(event.observation), bytes(event.calibrated)
            if said in self._known:
                return self._known[said]
            try:
                found = lean.DECODERS["observed"](line)
            except (msgspec.MsgspecError, RecursionError):
                found = self._alone(number, line)
        if isinstance(found, Observed) and found.observation.parts:  # they have checks of their own
            found = self._alone(number, line)
        if not isinstance(found, Observed):
            return found
        known = _Known(self.observations[found.observation], found)
        if said is not None:
            if len(self._known) == KNOWN:
                self._known.clear()
            self._known[said] = known
        return known

    def _marked(self, events: Sequence[Event], keys: Sequence[tuple[Any, ...]]) -> list[int]:
        """The mark of each event, by what marks it."""
        mark_of, examples = self._marks, self._examples
        marks = [mark_of[key] for key in keys]
        if len(mark_of) > len(examples):
            by_mark = dict(zip(marks, events, strict=True))
            examples += [by_mark[mark] for mark in range(len(examples), len(mark_of))]
        return marks


def _plan(events: Sequence[Event], review: bool) -> Plan:
    """How to read a cell with these events; of equal ones the last is meant."""
    parts, last = Parts(), {id(event): n for n, event in enumerate(events)}
    for event in events:
        parts.add(event)
    steps = {key: last[id(parts.steps[key])] for key in sorted(parts.steps, key=lambda key: (key[1], key[0]))}
    of_step = {step: n for (step, _), n in steps.items()}
    if parts.closed is None or not parts.whole(review):
        return Plan(False, "", (), steps, {}, (), ())
    turns = range(len(parts.closed.measured))
    return Plan(
        whole=True,
        outcome=parts.closed.outcome,
        measured=parts.closed.measured,
        steps=steps,
        stages={stage: of_step[step] for stage, step in STAGES.items() if step in of_step},
        observed=tuple(last[id(parts.observed[turn])] for turn in turns),
        selected=tuple(last[id(event)] for event in parts.selected.values()),
    )

"""The events of a run, place by place: what was written of a case when it was opened, and of each of its cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from evidence.errors import ArchiveError
from loops.archive import Opened, RunRecord, event_of
from loops.config import RunConfig
from loops.index import LineIndex, LineReader, Place
from loops.lean import Closed, Event, Observed, Selected, Stepped, read_event, read_events
from loops.opened import OpenedCase, read_opened

Found = TypeVar("Found", Opened, OpenedCase)

STAGES = {"initial": "predict", "reviewed": "review", "revised": "revise"}
"""The scored stages and the step that gives each."""


@dataclass
class Parts:
    """The events of one case in one repeat; where a resumed run wrote a step again, the last one counts."""

    steps: dict[tuple[str, int], Stepped] = field(default_factory=dict)
    selected: dict[int, Selected] = field(default_factory=dict)
    observed: dict[int, Observed] = field(default_factory=dict)
    closed: Closed | None = None

    def add(self, event: Event) -> None:
        """Take up one event."""
        if isinstance(event, Stepped):
            self.steps[event.step, event.turn] = event
        elif isinstance(event, Selected):
            self.selected[event.turn] = event
        elif isinstance(event, Observed):
            self.observed[event.turn] = event
        else:
            self.closed = event

    def whole(self, review: bool) -> bool:
        """Whether the case is closed and no line of it was lost: a closed case that is not whole is run again."""
        if self.closed is None or ("predict", 0) not in self.steps:
            return False
        turns = range(len(self.closed.measured))
        made = tuple(self.observed[t].observation.measurement for t in turns if t in self.observed)
        if self.closed.outcome == "predict failed":
            return made == self.closed.measured
        chosen = tuple(self.selected[t].measurement for t in turns if t in self.selected)
        revised = all(("revise", t) in self.steps for t in turns)
        ended = self.closed.outcome in ("complete", "revise failed") or len(turns) in self.selected
        reviewed = not review or ("review", 0) in self.steps
        return revised and ended and reviewed and made == chosen == self.closed.measured


class OpenedCases:
    """The cases of a run as they were opened. `damaged` has the numbers of the damaged lines that were come upon."""

    def __init__(self, index: LineIndex):
        self.index = index
        self._found: set[int] = set(index.damaged)

    @property
    def damaged(self) -> list[int]:
        """The numbers of damaged lines, from the first to the last."""
        return sorted(self._found)

    def opened(self, reader: LineReader, case: str) -> Opened | None:
        """The case as it was opened; the last line counts."""
        return self._last(reader, case, _opened_of)

    def in_short(self, reader: LineReader, case: str) -> OpenedCase | None:
        """What scoring needs of that."""
        return self._last(reader, case, read_opened)

    def _last(
        self, reader: LineReader, case: str, read: Callable[[bytes, Path, int, list[int]], Found | None]
    ) -> Found | None:
        place, damaged = Place(case, None), list[int]()
        found = None
        for number, line in reader.lines(place):
            opened = read(line, self.index.path, number, damaged)
            if opened is not None:
                check_names(self.index.path, number, place, opened.case.id, None)
                found = opened
        self._found.update(damaged)
        return found


def _opened_of(line: bytes, path: Path, number: int, damaged: list[int]) -> Opened | None:
    event = event_of(line, path, number, damaged)
    return event if isinstance(event, Opened) else None


class RunEvents(OpenedCases):
    """The events of a run, read place by place.

    Raises ArchiveError for lines of a case the run does not have, and, as they are read, for lines that are no events.
    """

    def __init__(self, folder: Path, run: RunRecord):
        super().__init__(LineIndex(folder / "events.jsonl", run.cases))

    def parts(self, reader: LineReader, place: Place) -> Parts:
        """What the run wrote of one case and repeat."""
        parts, (case, repeat) = Parts(), place
        events = read_events(reader.text(place))
        if events is None or [event for event in events if event.case != case or event.repeat != repeat]:
            events = self._one_by_one(reader, place)
        for event in events:
            parts.add(event)
        return parts

    def _one_by_one(self, reader: LineReader, place: Place) -> list[Event]:
        """The events of a place, some of whose lines are damaged, or unlike those that the archive writes."""
        events, damaged = [], list[int]()
        for number, line in reader.lines(place):
            event = read_event(line, self.index.path, number, damaged)
            if event is not None:
                check_names(self.index.path, number, place, event.case, event.repeat)
                events.append(event)
        self._found.update(damaged)
        return events


def check_names(path: Path, number: int, place: Place, *named: str | int | None) -> None:
    """Raise ArchiveError where an event is not of the place that its line was found at."""
    if named != place:
        raise ArchiveError(f"{path} line {number} names two cases: {place} and {named}")


def open_cells(folder: Path, run: RunRecord, config: RunConfig) -> list[tuple[str, int]]:
    """The cells that are still to be made, in the order of the case file. Raises ArchiveError."""
    events = RunEvents(folder, run)
    places = (Place(case, repeat) for case in run.cases for repeat in range(config.repeats))
    with events.index.open() as reader:
        return [
            (place.case, repeat)
            for repeat, place in ((place.repeat, place) for place in places)
            if repeat is not None and not events.parts(reader, place).whole(config.review)
        ]

"""The archive of one run: the folder that resuming, rescoring and comparing read, and its only writer.

run.json        status, resolved config, versions, hashes (rewritten whole, atomically)
calls.jsonl     one line per attempt (evidence.journal.CallRecord)
events.jsonl    one line per step (the values below)
blobs/<sha256>  figures and adapter inputs by content
scores/         written by rescoring alone
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from evidence.contracts import Answer, Case, Observation, Prediction, Reply, Step, Truth, Usage
from evidence.errors import ArchiveError
from evidence.files import write_atomic
from evidence.journal import (
    CallRecord,
    Calls,
    Journal,
    call_line,
    call_of,
    numbered_lines,
    read_call_journal,
    read_line,
)
from evidence.values import Value, canonical_json, sha256_of
from interpreters.canonical import Written
from loops.index import LineIndex, LineReader, Place, canonical_line

FORMAT = 1
TRANSPORT_FAULTS = frozenset(
    {"timeout", "connection", "rate_limited", "server_error", "malformed", "quota", "bad_request"}
)
"""Statuses of attempts that brought no reply of a model: a resumed run makes them again."""


class Opened(Value):
    """A case as it was opened: options as shown, and, sealed from every prompt, truth and all observations."""

    event: Literal["opened"] = "opened"
    case: Case
    truth: tuple[Truth, ...]
    sealed: tuple[Observation, ...]
    baselines: dict[str, tuple[Prediction, ...]]
    adapter_inputs: str
    """sha256 of the blob with the AdapterInputs; empty where the setting has no simulator."""


class Stepped(Value):
    """One call of the loop as it was read. `attempts` are the statuses of its attempts, in order."""

    event: Literal["stepped"] = "stepped"
    case: str
    repeat: int
    step: Step
    turn: int
    status: str
    answers: tuple[Answer, ...] = ()
    proposal: str | None = None
    attempts: tuple[str, ...]
    usage: Usage
    unmetered: int = 0
    """Replies among the attempts that came without usage."""


class Selected(Value):
    """What was chosen to be measured; `refused` are proposals that are not on the open menu, as the model put them."""

    event: Literal["selected"] = "selected"
    case: str
    repeat: int
    turn: int
    measurement: str | None
    refused: tuple[str, ...] = ()
    reason: str = ""


class Observed(Value):
    """What the measurement gave, and the predictions calibrated with all measurements so far."""

    event: Literal["observed"] = "observed"
    case: str
    repeat: int
    turn: int
    observation: Observation
    calibrated: tuple[Prediction, ...]


CaseOutcome = Literal["complete", "no measurement", "no valid selection", "predict failed", "revise failed"]


class Closed(Value):
    """The record of a case is complete. `outcome` says how the loop ended, `measured` what was measured, in order."""

    event: Literal["closed"] = "closed"
    case: str
    repeat: int
    outcome: CaseOutcome
    measured: tuple[str, ...] = ()


Event = Annotated[Opened | Stepped | Selected | Observed | Closed, Field(discriminator="event")]
_EVENT: TypeAdapter[Event] = TypeAdapter(Event)
_VALIDATE: Callable[[bytes], Event] = _EVENT.validator.validate_json
E = TypeVar("E")


RunKind = Literal["loop", "bench", "judge", "mine"]
"""The loop, and the static benchmarks: answers to items, a judge's scores of them, distractors made of them."""


class RunRecord(Value):
    """run.json. `incomplete` means that the run can be resumed; `started` that it was killed or is still going."""

    format: Literal[1] = 1
    kind: RunKind = "loop"
    status: Literal["started", "incomplete", "finished"]
    reason: str = ""
    name: str
    setting: str
    title: str
    synthetic: bool
    case_file: str
    case_file_sha256: str
    data: dict[str, str]
    cases: tuple[str, ...] = Field(min_length=1)
    config: dict[str, Any]
    interpreter: dict[str, Any]
    simulator: dict[str, Any] = {}
    versions: dict[str, str]
    commit: str | None
    started_at: str


class CallKey(NamedTuple):
    """The place of one attempt in a run."""

    case: str
    repeat: int
    step: str
    turn: int
    attempt: int


class Archive:
    """The open archive of a run: of one process, and of those forked from it.

    Every append is on its way to the disk when it returns.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._calls = Journal(folder / "calls.jsonl")
        self._events = Journal(folder / "events.jsonl")
        self._lock: int | None = None
        self._before: LineReader | None = None
        self._replies: dict[Place, dict[CallKey, tuple[str, Reply]]] = {}
        self._known: set[bytes] = set()
        self._past: Counter[Usage] = Counter()
        self.damaged: list[str] = []
        self.patience_s = 0.0
        """How long to wait for another process that has the run open: one that was killed is gone soon."""

    def __enter__(self) -> Self:
        try:
            (self.folder / "blobs").mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ArchiveError(f"cannot write the run folder {self.folder}: {error.strerror}") from error
        until = time.monotonic() + self.patience_s
        while not _locks(self._lock):
            if time.monotonic() >= until:
                os.close(self._lock)
                self._lock = None
                raise ArchiveError(f"{self.folder} is in use by another process; wait for it or choose another name")
            time.sleep(0.1)
        self._read_back()
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.close()
        self._events.close()
        if self._before is not None:
            self._before.close()
        if self._lock is not None:
            fcntl.flock(self._lock, fcntl.LOCK_UN)  # processes forked for another run may have the descriptor, too
            os.close(self._lock)

    def _read_back(self) -> None:
        """Note what is there already: where the calls of each cell are, what they used, and digests of the events."""
        damaged: list[int] = []
        for number, line in numbered_lines(self._calls.path):
            call = call_of(line, self._calls.path, number, damaged)
            if call is not None:
                self._past[call.reply.usage] += 1
        self._before = LineIndex(self._calls.path, None).open()  # opens the file when it reads: every process its own
        self.damaged = [f"calls.jsonl line {n}" for n in damaged]
        for number, line in numbered_lines(self._events.path):
            text = canonical_line(line)
            if text is not None:
                self._known.add(_digest(text))
            elif line.strip():
                self.damaged.append(f"events.jsonl line {number}")

    @property
    def past(self) -> Iterator[Reply]:
        """Every attempt made before this start of the run, as a reply that says what it used and no more."""
        for usage, n in self._past.items():
            yield from itertools.repeat(Reply(usage=usage), n)

    def reply(self, key: CallKey, request_sha256: str) -> Reply | None:
        """The archived reply of this attempt to this very request, if it brought one. A cell is read when asked for."""
        place = Place(key.case, key.repeat)
        if place not in self._replies:
            self._replies[place] = dict(self._replies_of(place))
        found = self._replies[place].get(key)
        return found[1] if found is not None and found[0] == request_sha256 else None

    def _replies_of(self, place: Place) -> Iterator[tuple[CallKey, tuple[str, Reply]]]:
        if self._before is None:
            return
        path = self._calls.path
        calls = [call_of(line, path, number, []) for number, line in self._before.lines(place)]
        for call in _without_open_faults(call for call in calls if call is not None):
            yield _call_key(call), (call.request_sha256, call.reply)

    def open_journals(self) -> None:
        """Open the files that lines are appended to, so that processes forked from this one share them."""
        self._calls.open()
        self._events.open()

    def add_call(self, key: CallKey, request: Written, reply: Reply, *, repair: bool, seconds: float) -> None:
        """Append one attempt."""
        self._calls.append(
            call_line(
                **key._asdict(),
                repair=repair,
                request=request.text,
                request_sha256=request.sha256,
                reply=reply,
                seconds=seconds,
            )
        )

    def add_event(self, event: Value) -> None:
        """Append one step, unless the very same line is there already from before a resume."""
        text = canonical_json(event)
        if not self._known or _digest(text.encode()) not in self._known:
            self._events.append(text)

    def add_blob(self, data: bytes) -> str:
        """Store bytes by their sha256, which is returned."""
        sha256 = sha256_of(data)
        path = self.folder / "blobs" / sha256
        if not path.is_file() or sha256_of(path.read_bytes()) != sha256:
            write_atomic(path, data, error=ArchiveError)
        return sha256

    def write_run(self, record: RunRecord) -> None:
        """Replace run.json."""
        text = json.dumps(record.model_dump(mode="json"), indent=1, sort_keys=True, ensure_ascii=True, allow_nan=False)
        write_atomic(self.folder / "run.json", (text + "\n").encode(), error=ArchiveError)


def _locks(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()[:16]


def _without_open_faults(records: Iterable[CallRecord]) -> list[CallRecord]:
    """The attempts that a resumed run takes up: all but the faults that no reply came after, at the same place."""
    places: dict[tuple[str, int, str, int], dict[int, CallRecord]] = {}
    for record in records:
        places.setdefault(_call_key(record)[:4], {})[record.attempt] = record
    kept = []
    for attempts in places.values():
        answered = [n for n, record in attempts.items() if record.reply.status not in TRANSPORT_FAULTS]
        kept += [record for n, record in attempts.items() if answered and n <= max(answered)]
    return kept


def _call_key(record: CallRecord) -> CallKey:
    return CallKey(record.case, record.repeat, record.step, record.turn, record.attempt)


def read_run(folder: Path, kind: RunKind | None = "loop") -> RunRecord:
    """Read run.json. Raises ArchiveError where the folder is not a run, or one of another kind or a newer format."""
    path = folder / "run.json"
    try:
        data = json.loads(path.read_text())
        json.dumps(data, allow_nan=False)
    except OSError as error:
        raise ArchiveError(f"{folder} is not a run folder: cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ArchiveError(f"{path} is not valid JSON: {error}") from error
    if isinstance(data, dict) and data.get("format") != FORMAT:
        raise ArchiveError(f"{path} has format {data.get('format')!r}; this version of vcloop reads format {FORMAT}")
    try:
        record = RunRecord.model_validate_json(json.dumps(data))
    except ValidationError as error:
        first = error.errors()[0]
        raise ArchiveError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    if kind is not None and record.kind != kind:
        command = "vcloop bench" if record.kind != "loop" else "vcloop"
        raise ArchiveError(f"{folder} is a run of the kind {record.kind!r}, not {kind!r}; see {command} --help")
    if len(set(record.cases)) != len(record.cases):
        raise ArchiveError(f"{path}: cases: a case is named twice")
    return record


def read_events(folder: Path) -> tuple[list[Event], list[int]]:
    """All events of a loop in the order written, and the numbers of damaged lines. Raises ArchiveError."""
    return read_events_as(_EVENT, folder)


def read_events_as(kind: TypeAdapter[E], folder: Path) -> tuple[list[E], list[int]]:
    """All events of a run whose events are of this kind. Raises ArchiveError."""
    path, damaged = folder / "events.jsonl", list[int]()
    found = (_event_of(kind, line, path, number, damaged) for number, line in numbered_lines(path))
    return [event for event in found if event is not None], damaged


def event_of(line: bytes, path: Path, number: int, damaged: list[int]) -> Event | None:
    """The event of a line; None, and its number to `damaged`, where it is no JSON. Raises ArchiveError."""
    try:
        return _VALIDATE(line)
    except ValidationError:
        return _event_of(_EVENT, line, path, number, damaged)


def _event_of(kind: TypeAdapter[E], line: bytes, path: Path, number: int, damaged: list[int]) -> E | None:
    """Whole lines are read in one go; only of a line that is no event it is asked whether it is JSON at all."""
    try:
        return kind.validate_json(line)
    except ValidationError:
        record = read_line(line)
    if record is None:
        damaged += [number] if line.strip() else []
        return None
    return _parsed(kind, record, path, number)


def _parsed(kind: TypeAdapter[E], line: dict[str, Any], path: Path, number: int) -> E:
    try:
        return kind.validate_json(json.dumps(line))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ArchiveError(f"{path} line {number} is not an event: {place}: {first['msg']}") from error


def read_calls(folder: Path) -> Calls:
    """Read calls.jsonl. Raises ArchiveError."""
    return read_call_journal(folder / "calls.jsonl")


_SHA256 = re.compile("[0-9a-f]{64}")


def read_blob(folder: Path, sha256: str) -> bytes:
    """The bytes of a blob, checked against their name. Raises ArchiveError."""
    if _SHA256.fullmatch(sha256) is None:
        raise ArchiveError(f"{folder}: {sha256!r} is not the sha256 of a blob")
    path = f"{folder}/blobs/{sha256}"
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a path object costs as much as the reading
            data = file.read()
    except OSError as error:
        raise ArchiveError(f"blob {path} cannot be read: {error.strerror}") from error
    if sha256_of(data) != sha256:
        raise ArchiveError(f"blob {path} is damaged: its content has the sha256 {sha256_of(data)}")
    return data

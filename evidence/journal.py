"""Append-only JSON lines that survive a kill at any moment, and the record of one call.

A line is written by one system call and ends with a newline, so a kill leaves whole lines and at most one torn line.
Readers skip torn lines and say which; writers never remove them.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from evidence.contracts import Reply, Step
from evidence.errors import ArchiveError
from evidence.values import NonNegative, Value, canonical_json

BLOCK = 1 << 20
"""Bytes of lines that are read at a time."""


class CallRecord(Value):
    """One attempt of one call: where in the run, what was asked, what came back.

    `request` is the canonical request (interpreter identity and conversation, figures by sha256); its sha256 is the
    key under which a resumed or replayed run finds the reply. `repair`: an earlier reply could not be read, and this
    turn asks for it again.
    """

    case: str
    repeat: int
    step: Step
    turn: int
    attempt: int
    repair: bool = False
    request_sha256: str
    request: dict[str, Any]
    reply: Reply
    seconds: NonNegative


def call_line(
    *,
    case: str,
    repeat: int,
    step: str,
    turn: int,
    attempt: int,
    repair: bool,
    request: str,
    request_sha256: str,
    reply: Reply,
    seconds: float,
) -> str:
    """The canonical JSON of a CallRecord whose request is there as canonical JSON already: it is not written twice."""
    before = canonical_json({"attempt": attempt, "case": case, "repair": repair, "repeat": repeat})[:-1]
    after = canonical_json({"request_sha256": request_sha256, "seconds": seconds, "step": step, "turn": turn})[1:]
    return f'{before},"reply":{canonical_json(reply)},"request":{request},{after}'


class Lines(NamedTuple):
    """The readable lines of a journal with their numbers, and the numbers of damaged lines."""

    records: list[tuple[int, dict[str, Any]]]
    damaged: list[int]


class Journal:
    """An append-only JSON-lines file. Raises ArchiveError where it cannot be written."""

    def __init__(self, path: Path):
        self.path = path
        self._fd: int | None = None
        self._torn = False

    def open(self) -> int:
        """Open the file, unless it is, and end a torn last line. The descriptor: forked processes may share it."""
        try:
            if self._fd is None:
                self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
                self._torn = not _ends_with_newline(self.path)
            if self._torn:
                os.write(self._fd, b"\n")
                self._torn = False
        except OSError as error:
            raise self._unwritable(error) from error
        return self._fd

    def append(self, text: str) -> None:
        """Append one record, as canonical JSON, as one line, in one write."""
        line = (text + "\n").encode()
        fd = self.open()
        try:
            written = os.write(fd, line)
            while written < len(line):
                self._torn = True  # until the rest is there
                written += os.write(fd, line[written:])
            self._torn = False
        except OSError as error:
            raise self._unwritable(error) from error

    def close(self) -> None:
        """Flush to the disk and close."""
        if self._fd is not None:
            os.fsync(self._fd)
            os.close(self._fd)
            self._fd = None

    def _unwritable(self, error: OSError) -> ArchiveError:
        return ArchiveError(f"cannot write {self.path}: {error.strerror}; the run can be resumed")


def read_journal(path: Path) -> Lines:
    """Read every whole line; a file that does not exist has none."""
    found = Lines([], [])
    for number, line in numbered_lines(path):
        record = read_line(line)
        if record is not None:
            found.records.append((number, record))
        elif line.strip():
            found.damaged.append(number)
    return found


def read_line(line: bytes) -> dict[str, Any] | None:
    """The record of one line; None where the line is torn, blank or no JSON object."""
    try:
        record = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file as they are, counted from 1; a file that does not exist has none. Raises ArchiveError."""
    yield from enumerate(itertools.chain.from_iterable(line_blocks(path, BLOCK)), start=1)


def line_blocks(path: Path, size: int) -> Iterator[list[bytes]]:
    """The lines of a file as they are, about `size` bytes at a time, as `numbered_lines` gives them."""
    if not path.exists():
        return
    try:
        with path.open("rb") as file:
            while lines := file.readlines(size):
                yield lines
    except OSError as error:
        raise ArchiveError(f"cannot read {path}: {error.strerror}") from error


def _refuse(token: str) -> None:
    raise ValueError(f"{token} is not JSON")


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


class Calls(NamedTuple):
    """All attempts of a run in the order written, and the numbers of damaged lines."""

    records: list[CallRecord]
    damaged: list[int]


def read_call_journal(path: Path) -> Calls:
    """Read a calls.jsonl. Raises ArchiveError for a whole line that is no call record."""
    damaged: list[int] = []
    found = (call_of(line, path, number, damaged) for number, line in numbered_lines(path))
    return Calls([call for call in found if call is not None], damaged)


def call_of(line: bytes, path: Path, number: int, damaged: list[int]) -> CallRecord | None:
    """The call of a line; None, and its number to `damaged`, where it is no JSON. Raises ArchiveError.

    Whole lines are read in one go; only of a line that is no call it is asked whether it is JSON at all.
    """
    if b"NaN" not in line and b"Infinity" not in line:  # a request may hold any JSON, and these are none
        try:
            return CallRecord.model_validate_json(line)
        except ValidationError:
            pass
    record = read_line(line)
    if record is None:
        damaged += [number] if line.strip() else []
        return None
    return _parse_call(record, path, number)


def _parse_call(line: dict[str, Any], path: Path, number: int) -> CallRecord:
    """The call record of one line. Raises ArchiveError naming file and line."""
    try:
        return CallRecord.model_validate_json(json.dumps(line))
    except ValidationError as error:
        raise ArchiveError(f"{path} line {number} is not a call record: {error.errors()[0]['msg']}") from error

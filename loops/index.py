"""Where the lines of each case and repeat are in a journal of a run, so that it can be read cell by cell.

Memory grows by three numbers for lines of one cell that follow each other. Of a line only case and repeat are looked
at; it is damaged where it is no JSON object. Whoever reads a line checks that it is what the index says.
"""

from __future__ import annotations

import contextlib
import itertools
from array import array
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec
from pydantic_core import from_json

from evidence.errors import ArchiveError
from evidence.journal import BLOCK, line_blocks, read_line
from evidence.values import canonical_json

_STARTS = (b'{"answers":[', b'{"case":"', b'{"calibrated":[', b'{"adapter_inputs":"', b'{"attempt":')
"""How canonical lines begin."""


class _Case(msgspec.Struct, gc=False):
    id: str


class _Named(msgspec.Struct, gc=False):
    """What a line says of its place; the rest of it is skipped."""

    case: str | _Case
    repeat: int | None = None


_NAMED = msgspec.json.Decoder(_Named).decode


class Place(NamedTuple):
    """A case and a repeat; `repeat` is None for the line that opens the case."""

    case: str
    repeat: int | None


class LineIndex:
    """The places of the lines of events.jsonl or calls.jsonl, and the numbers of its damaged lines.

    Raises ArchiveError where the file cannot be read, or a line names no case or one that the run does not have.
    """

    def __init__(self, path: Path, cases: Collection[str] | None):
        self.path = path
        self.damaged: list[int] = []
        self._runs: dict[Place, array[int]] = {}
        number, start = 0, 0
        for lines in line_blocks(path, BLOCK):
            ends = list(itertools.accumulate(map(len, lines), initial=start))
            at = 0
            for named, same in itertools.groupby(self._named(number, lines)):
                until = at + len(list(same))
                if named is not None:
                    runs = self._runs.get(named)  # type: ignore[call-overload]
                    if runs is None:
                        runs = self._runs[Place(*named)] = array("q")
                    runs.extend((number + at + 1, ends[at], ends[until] - ends[at]))
                at = until
            number, start = number + at, ends[at]
        if cases is not None:
            self._check_cases(frozenset(cases))

    def places(self) -> Iterator[Place]:
        """Every place that has lines, in the order first seen."""
        return iter(self._runs)

    def open(self) -> LineReader:
        """A reader of the lines."""
        return LineReader(self)

    def runs_of(self, place: Place) -> array[int]:
        """Lines of a place that follow each other: number of the first, its first byte, bytes of all; by turns."""
        return self._runs.get(place, array("q"))

    def _check_cases(self, known: frozenset[str]) -> None:
        """Of lines of an unknown case, those that are no JSON after all are damaged."""
        unknown = sorted((place for place in self._runs if place.case not in known), key=lambda place: place.case)
        with self.open() as reader:
            for place in unknown:
                for number, line in reader.lines(place):
                    if read_line(line) is not None:
                        raise ArchiveError(f"{self.path}: lines of case {place.case!r}, which run.json does not have")
                    self.damaged.append(number)
                del self._runs[place]

    def _named(self, before: int, lines: list[bytes]) -> Sequence[tuple[str, int | None] | None]:
        """Case and repeat of each line, None for a damaged one; `before` is how many lines came before them."""
        try:
            found = [_NAMED(line) for line in lines]  # one by one: a lost newline makes one line of two
            named = [(n.case, n.repeat) if isinstance(n.case, str) else (n.case.id, None) for n in found]
            unnamed = [n for n in found if n.repeat is None and isinstance(n.case, str)]
            if not unnamed:
                return named
        except (msgspec.MsgspecError, RecursionError):
            pass
        return [self._named_alone(number, line) for number, line in enumerate(lines, start=before + 1)]

    def _named_alone(self, number: int, line: bytes) -> tuple[str, int | None] | None:
        record = read_line(line)
        if record is None:
            if line.strip():
                self.damaged.append(number)
            return None
        case, repeat = record.get("case"), record.get("repeat")
        if isinstance(case, dict):
            case, repeat = case.get("id"), None
        elif type(repeat) is not int:
            raise ArchiveError(f"{self.path} line {number}: expected a case and a repeat, got {case!r} and {repeat!r}")
        if not isinstance(case, str):
            raise ArchiveError(f"{self.path} line {number}: expected a case, got {case!r}")
        return case, repeat


class LineReader:
    """Reads the lines of a place. Closed with `close`, or as a context."""

    def __init__(self, index: LineIndex):
        self.index = index
        self._file: BinaryIO | None = None
        self._at = 0

    def __enter__(self) -> LineReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def lines(self, place: Place) -> Iterator[tuple[int, bytes]]:
        """The lines of a place with their numbers, in the order written, without their newlines."""
        for number, text in self._texts(place):
            yield from enumerate(text.removesuffix(b"\n").split(b"\n"), start=number)

    def text(self, place: Place) -> bytes:
        """The lines of a place, one after the other."""
        return b"".join([text for _, text in self._texts(place)])

    def _texts(self, place: Place) -> Iterator[tuple[int, bytes]]:
        """Lines that follow each other as one text, and the number of the first."""
        runs = self.index.runs_of(place)
        try:
            if self._file is None and runs:
                self._file, self._at = self.index.path.open("rb", buffering=BLOCK), 0
            for at in range(0, len(runs), 3):
                assert self._file is not None  # noqa: S101 - opened above
                number, start, size = runs[at : at + 3]
                if self._at != start:  # the next line is there already
                    self._file.seek(start)
                self._at = start + size
                yield number, self._file.read(size)
        except OSError as error:
            raise ArchiveError(f"cannot read {self.index.path}: {error.strerror}") from error


def canonical_line(line: bytes) -> bytes | None:
    """The canonical JSON of a line, without its newline; None where the line is damaged.

    A line that looks as the archive writes it is taken as it is, once it is known to be JSON.
    """
    if line.startswith(_STARTS) and line.endswith(b"}\n"):
        with contextlib.suppress(ValueError):
            from_json(line, allow_inf_nan=False)
            return line[:-1]
    record = read_line(line)
    return None if record is None else canonical_json(record).encode()

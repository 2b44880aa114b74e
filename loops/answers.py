"""The answers of a run in columns, one entry each, from the moment they are read."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from loops.lean import Answer

Thing = TypeVar("Thing")


class Numbers(dict[Thing, int]):
    """A number for everything it is asked for: 0, 1, 2 ... in the order first seen. `things` are by their number."""

    def __init__(self) -> None:
        super().__init__()
        self.things: list[Thing] = []

    def __missing__(self, thing: Thing) -> int:
        number = self[thing] = len(self.things)
        self.things.append(thing)
        return number


Head = tuple[str | None, str, str]
"""Label, status and reason of an answer: what it says beside its numbers. Most answers of a run share a few."""


class _Plain(dict[str | None, int]):
    """The numbers of heads with status "answered" and no reason, by label: most are such, and need no key of three."""

    def __init__(self, heads: Numbers[Head]):
        super().__init__()
        self._heads = heads

    def __missing__(self, label: str | None) -> int:
        number = self[label] = self._heads[label, "answered", ""]
        return number


class Answers:
    """Answers by entry: the number of the readout's id and of the head, value and confidence (NaN for none).

    `probabilities` are by entry, where an answer states them. Answers to one question follow each other. `options`
    numbers the labels that readouts may have.
    """

    def __init__(self) -> None:
        self.readouts: Numbers[str] = Numbers()
        self.heads: Numbers[Head] = Numbers()
        self._plain = _Plain(self.heads)
        self.options: Numbers[tuple[str, ...]] = Numbers()
        self.readout, self.head = array("i"), array("i")
        self.value, self.confidence = array("d"), array("d")
        self.probabilities: dict[int, tuple[float, ...]] = {}
        self._sound_heads = 0
        self._missing: dict[tuple[tuple[str, ...], str], int] = {}

    def __len__(self) -> int:
        return len(self.head)

    def add(self, new: Sequence[Answer]) -> int:
        """Append answers. The entry of the first."""
        first, readouts, heads, plain, nan = len(self.head), self.readouts, self.heads, self._plain, math.nan
        self.readout.fromlist([readouts[a.readout] for a in new])
        self.head.fromlist(
            [
                plain[a.label] if a.status == "answered" and not a.reason else heads[a.label, a.status, a.reason]
                for a in new
            ]
        )
        self.value.fromlist([nan if a.value is None else a.value for a in new])
        self.confidence.fromlist([nan if a.confidence is None else a.confidence for a in new])
        stated = [a.probabilities for a in new]
        if stated.count(None) < len(stated):
            self.probabilities |= {n: p for n, p in enumerate(stated, start=first) if p is not None}
        return first

    @property
    def sound(self) -> bool:
        """Whether in all answers a label goes with status "answered" and no other, as the contract wants it."""
        things = self.heads.things
        while self._sound_heads < len(things):
            label, status, _ = things[self._sound_heads]
            if (status == "answered") is (label is None):
                return False
            self._sound_heads += 1
        return True

    def missing(self, readouts: tuple[str, ...], reason: str) -> int:
        """The first of entries with status "missing", one a readout; the same ones whenever they are asked for."""
        if (readouts, reason) not in self._missing:
            new = [Answer(readout=readout, status="missing", reason=reason) for readout in readouts]
            self._missing[readouts, reason] = self.add(new)
        return self._missing[readouts, reason]

    def of(self, first: int, size: int) -> list[Answer]:
        """The answers of some entries, as they were read."""
        made = []
        for n in range(first, first + size):
            label, status, reason = self.heads.things[self.head[n]]
            value, confidence = self.value[n], self.confidence[n]
            made.append(
                Answer(
                    readout=self.readouts.things[self.readout[n]],
                    status=status,  # type: ignore[arg-type]
                    label=label,
                    value=None if math.isnan(value) else value,
                    confidence=None if math.isnan(confidence) else confidence,
                    probabilities=self.probabilities.get(n),
                    reason=reason,
                )
            )
        return made


def spans(start: NDArray[np.intp], size: NDArray[np.intp]) -> NDArray[np.intp]:
    """The numbers from each start on, `size` of them, one after the other."""
    before = np.cumsum(size) - size
    return np.repeat(start - before, size) + np.arange(size.sum())


def joined(parts: Sequence[NDArray[np.intp]]) -> NDArray[np.intp]:
    """Numbers one after the other; there may be no parts."""
    return np.concatenate([np.zeros(0, dtype=np.intp), *parts])


def by_width(rows: Sequence[Sequence[float]]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.float64]]]:
    """Rows with the same number of values together: their places, (n,), and a table of them, (n, width)."""
    width = np.array([len(row) for row in rows], dtype=np.intp)
    for size in np.unique(width).tolist():
        places = np.flatnonzero(width == size)
        yield places, np.array([rows[n] for n in places.tolist()], dtype=float).reshape(len(places), size)


def sums(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of each row, (n, width) -> (n,), added up from the first value to the last, as `sum` does."""
    total = np.zeros(len(table))
    for column in table.T:
        total += column
    return total

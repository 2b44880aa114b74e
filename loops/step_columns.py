"""The steps of a run in columns, one entry each, from the moment they are read."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate

from loops.answers import Answers, Numbers
from loops.lean import Answer, Stepped

UNKNOWN = -1
"""Stands for a number of tokens that no server stated."""


class StepColumns:
    """Steps by entry: name, how it ended, its answers (first entry and how many), what it used."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.ends: Numbers[tuple[str, tuple[str, ...]]] = Numbers()
        """Status and attempts."""
        self.names: Numbers[str] = Numbers()
        self.name, self.end, self.first, self.size = array("i"), array("i"), array("q"), array("i")
        self.prompt, self.completion = array("q"), array("q")
        self.unmetered: list[int] = []

    def __len__(self) -> int:
        return len(self.end)

    def add(self, new: Sequence[Stepped]) -> None:
        """Append steps and their answers."""
        ends, names, sizes = self.ends, self.names, [len(s.answers) for s in new]
        first = self.answers.add([a for s in new for a in s.answers])
        self.first.fromlist(list(accumulate(sizes, initial=first))[:-1])
        self.size.fromlist(sizes)
        self.name.fromlist([names[s.step] for s in new])
        self.end.fromlist([ends[s.status, s.attempts] for s in new])
        used = [s.usage for s in new]
        self.prompt.fromlist([UNKNOWN if u.prompt_tokens is None else u.prompt_tokens for u in used])
        self.completion.fromlist([UNKNOWN if u.completion_tokens is None else u.completion_tokens for u in used])
        self.unmetered += [s.unmetered for s in new]

    def step(self, number: int) -> str:
        """The name of a step."""
        return self.names.things[self.name[number]]

    def status(self, number: int) -> str:
        """How a step ended."""
        return self.ends.things[self.end[number]][0]

    def attempts(self, number: int) -> int:
        """How many attempts a step took."""
        return len(self.ends.things[self.end[number]][1])

    def reread(self, number: int, status: str, answers: Sequence[Answer]) -> int:
        """Append a step that is like another but for its answers and how it ended. Its number."""
        _, attempts = self.ends.things[self.end[number]]
        self.first.append(self.answers.add(answers))
        self.size.append(len(answers))
        self.end.append(self.ends[status, attempts])
        for column in (self.name, self.prompt, self.completion, self.unmetered):
            column.append(column[number])
        return len(self) - 1

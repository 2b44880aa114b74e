"""Items of static benchmarks: JSON lines, one multiple-choice or open question a line, checked as a whole file."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError, model_validator

from evidence.errors import DataError
from evidence.values import Name, Value

LETTERS = "ABCDEFGHIJ"


class Item(Value):
    """One question. With options, `answer` is the letter of the right one; without, the reference answer."""

    id: Name
    question: Name
    answer: Name
    options: tuple[Name, ...] = Field(default=(), max_length=len(LETTERS))

    @model_validator(mode="after")
    def _answer_fits(self) -> Self:
        if not self.options:
            return self
        twice = sorted({o for o in self.options if [p.strip() for p in self.options].count(o.strip()) > 1})
        if twice:
            raise ValueError(f"two options have the same text: {twice[0]!r}")
        letters = LETTERS[: len(self.options)]
        if self.answer not in tuple(letters):
            raise ValueError(f"answer {self.answer!r} is not the letter of an option (expected one of {letters})")
        return self


def load_items(path: Path) -> tuple[Item, ...]:
    """Read a JSON-lines file. Raises DataError that lists every problem with its line number."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read items {path}: {error}") from error
    items: list[Item] = []
    problems: list[str] = []
    seen: dict[str, list[int]] = defaultdict(list)
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            item = Item.model_validate_json(line)
        except ValidationError as error:
            problems += [f"line {number}: {_words(detail)}" for detail in error.errors(include_url=False)]
            seen[_id_of(line)].append(number)
            continue
        items.append(item)
        seen[item.id].append(number)
    problems += [
        f"id {item_id!r} is used on lines {', '.join(map(str, where))}"
        for item_id, where in seen.items()
        if item_id and len(where) > 1
    ]
    if problems or not items:
        listed = "\n".join(f"  {problem}" for problem in problems or ["the file has no item"])
        raise DataError(f"items {path}: {max(1, len(problems))} problem(s)\n{listed}")
    return tuple(items)


def _id_of(line: str) -> str:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    return str(found.get("id", "")) if isinstance(found, dict) else ""


def _words(detail: object) -> str:
    facts = dict(detail) if isinstance(detail, dict) else {}
    place = ".".join(map(str, facts.get("loc", ())))
    return f"{place + ': ' if place else ''}{str(facts.get('msg', '')).removeprefix('Value error, ')}"

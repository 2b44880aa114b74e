"""Items with foreign key names, read through a mapping file (docs/static-benchmarks.md has one)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from benchmarks.items import LETTERS
from benchmarks.rows import Row, doi, json_rows
from evidence.strict_yaml import read_value
from evidence.values import Value

ItemField = Literal[
    "id",
    "question",
    "answer",
    "reference",
    "images",
    "level",
    "stage",
    "task",
    "source",
    "title",
    "panels",
    "caption",
    "context",
]


class KeyMap(Value):
    """Which key of a row gives which field of an item. A dot goes into an inner object.

    `options`: the keys of the options in order, or one key that holds them as a list or by letter. `answer` says
    whether the answer is a letter, the text of an option, or its number from 0. `values` replaces values of a field,
    such as level: {"1": L1}. A row without the key of `id` is named by its number.
    """

    version: Literal[1]
    fields: dict[ItemField, str]
    options: tuple[str, ...] | str = ()
    answer: Literal["letter", "text", "index"] = "letter"
    values: dict[ItemField, dict[str, str]] = Field(default={})


def read_mapped(source: Path, mapping: Path) -> Iterator[Row]:
    """Rows of a JSON array or JSON lines, through the mapping file."""
    keys = read_value(mapping, KeyMap, what="mapping file")
    for number, row in enumerate(json_rows(source), start=1):
        if isinstance(row, dict):
            yield _row(source.name, number, row, keys)
        else:
            yield Row(source.name, number, {}, ("expected an object",))


def _row(file: str, number: int, row: Mapping[str, Any], keys: KeyMap) -> Row:
    problems: list[str] = []
    fields: dict[str, Any] = {"id": f"row-{number:05d}"}
    for field, key in keys.fields.items():
        value = _at(row, key)
        if value is None:
            if field != "id":
                problems += [f"{key} ({field}) is missing"] * (field in ("question", "answer"))
            continue
        named = keys.values.get(field, {}).get(str(value), value)
        listed = field in ("images", "panels")
        fields[field] = ([named] if isinstance(named, str) else named) if listed else str(named)
    if "source" in fields:
        fields["source"] = doi(fields["source"])
    fields["options"] = _options(row, keys.options)
    if keys.answer != "letter" and "answer" in fields:
        fields["answer"] = _letter(fields["options"], fields["answer"], keys.answer)
    return Row(file, number, fields, tuple(problems))


def _options(row: Mapping[str, Any], keys: tuple[str, ...] | str) -> list[Any]:
    if not isinstance(keys, str):
        return [_at(row, key) for key in keys]
    found = _at(row, keys)
    if isinstance(found, dict):
        return [found[letter] for letter in sorted(found)]
    return list(found) if isinstance(found, list) else []


def _letter(options: list[Any], answer: str, kind: str) -> str:
    """The letter of an answer given as text or as a number; the answer itself where it is none, to be reported."""
    if kind == "text":
        return LETTERS[options.index(answer)] if answer in options[: len(LETTERS)] else answer
    return LETTERS[int(answer)] if answer.isdigit() and int(answer) < len(LETTERS) else answer


def _at(row: Any, key: str) -> Any:
    """The value at a key, whole or with dots into inner objects; None where there is none."""
    if isinstance(row, dict) and key in row:
        return row[key]
    head, dot, rest = key.partition(".")
    return _at(row[head], rest) if dot and isinstance(row, dict) and head in row else None

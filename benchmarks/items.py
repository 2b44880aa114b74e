"""Items of static benchmarks: JSON lines, one multiple-choice or open question a line, checked as a whole file.

docs/static-benchmarks.md lists the fields. Files of other benchmarks are turned into this form by benchmarks.convert.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, ValidationError, model_validator

from benchmarks.images import ImageFile, check_images
from evidence.errors import DataError
from evidence.values import Name, Value, canonical_json, sha256_of

LETTERS = "ABCDEFGHIJ"
Words = Annotated[str, Field(min_length=1, pattern=r"\S")]
Level = Literal["L1", "L2", "L3"]


class Item(Value):
    """One question. With options, `answer` is the letter of the right one; without, the reference answer.

    `source` is what the item comes from (a paper's DOI, else an image): items of one source are resampled together.
    `images` are paths inside the image folder. `caption`, `context` and `reference` are evidence for the judge and
    are never shown to a candidate. `asks_test` says that an L3 question asks for a discriminating experiment.
    """

    id: Name
    question: Words
    answer: Words
    options: tuple[Words, ...] = Field(default=(), max_length=len(LETTERS))
    reference: str = ""
    images: tuple[Words, ...] = ()
    level: Level | None = None
    stage: str = ""
    task: str = ""
    source: str = ""
    title: str = ""
    panels: tuple[str, ...] = ()
    caption: str = ""
    context: str = ""
    asks_test: bool = False
    canary: str = ""
    synthetic: bool = False

    @model_validator(mode="after")
    def _answer_fits(self) -> Self:
        if not self.options:
            return self
        if len(self.options) < 2:
            raise ValueError("one option is no choice: expected none or at least two")
        twice = sorted({o for o in self.options if [p.strip() for p in self.options].count(o.strip()) > 1})
        if twice:
            raise ValueError(f"two options have the same text: {twice[0]!r}")
        if self.answer not in tuple(self.letters):
            raise ValueError(f"answer {self.answer!r} is not the letter of an option (expected one of {self.letters})")
        return self

    @property
    def letters(self) -> str:
        """The letters of the options, in order."""
        return LETTERS[: len(self.options)]

    @property
    def key(self) -> int:
        """The number of the right option, from 0. Raises ValueError for an open question."""
        return self.letters.index(self.answer)

    @property
    def reference_answer(self) -> str:
        """The answer in words: the reference, else the text of the right option, else the answer of an open item."""
        return self.reference or (self.options[self.key] if self.options else self.answer)

    @property
    def cluster(self) -> str:
        """What is resampled together with this item: its source, else its first image, else the item alone."""
        return self.source or (self.images[0] if self.images else self.id)


class ItemSet(NamedTuple):
    """A checked item file: its items, its images by their path, and the sha256 of both together."""

    items: tuple[Item, ...]
    images: Mapping[str, ImageFile]
    folder: Path
    sha256: str


class Problem(NamedTuple):
    """What is wrong with one row of one file."""

    file: str
    row: int
    words: str

    def __str__(self) -> str:
        return f"{self.file} row {self.row}: {self.words}"


def load_item_set(path: Path, images: Path | None = None) -> ItemSet:
    """Read an item file and look at every image, by default beside it.

    Raises DataError that lists every problem of items and images with its line.
    """
    folder = path.parent if images is None else images
    rows, problems = _read(path)
    found, missing = check_images(folder, ((row, item.images) for row, item in rows))
    problems += [f"line {row}: {words}" for row, words in missing]
    items = _whole(path, rows, problems)
    hashed = {"items": [item.model_dump(mode="json") for item in items]}
    return ItemSet(
        items, found, folder, sha256_of({**hashed, "images": {name: image.sha256 for name, image in found.items()}})
    )


def load_items(path: Path) -> tuple[Item, ...]:
    """Read a JSON-lines file without looking at its images. Raises DataError that lists every problem with its line."""
    rows, problems = _read(path)
    return _whole(path, rows, problems)


def write_items(items: Iterable[Item]) -> bytes:
    """The items as JSON lines, without the fields that hold their defaults."""
    lines = (canonical_json(item.model_dump(mode="json", exclude_defaults=True)) for item in items)
    return "".join(f"{line}\n" for line in lines).encode()


def build_item(fields: Mapping[str, Any]) -> tuple[Item | None, list[str]]:
    """An item from plain data, or what is wrong with it in words."""
    try:
        return Item.model_validate_json(json.dumps(fields)), []
    except ValidationError as error:
        return None, [_words(detail) for detail in error.errors(include_url=False)]
    except (ValueError, RecursionError) as error:
        return None, [str(error)]


def repeated_ids(where: Iterable[tuple[str, str]], kind: str = "") -> list[str]:
    """What to say of ids used more than once. `where`: (id, place) in order; `kind` is put before the places."""
    seen: dict[str, list[str]] = defaultdict(list)
    for item_id, place in where:
        seen[item_id].append(place)
    return [
        f"id {item_id!r} is used on {kind}{', '.join(places)}" for item_id, places in seen.items() if len(places) > 1
    ]


def _whole(path: Path, rows: Sequence[tuple[int, Item]], problems: Sequence[str]) -> tuple[Item, ...]:
    if problems or not rows:
        listed = "\n".join(f"  {problem}" for problem in problems or ["the file has no item"])
        raise DataError(f"items {path}: {max(1, len(problems))} problem(s)\n{listed}")
    return tuple(item for _, item in rows)


def _read(path: Path) -> tuple[list[tuple[int, Item]], list[str]]:
    """The good items with their line numbers, and every problem."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise DataError(f"cannot read items {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        bad = error.object[: error.start].count(b"\n") + 1
        raise DataError(f"items {path} line {bad} is not UTF-8 text; save the file as UTF-8") from error
    rows: list[tuple[int, Item]] = []
    problems: list[str] = []
    seen: list[tuple[str, str]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            plain = json.loads(line, object_pairs_hook=_unique)
        except _Repeated as error:
            problems.append(f"line {number}: {error}")
            plain = json.loads(line)
        except (ValueError, RecursionError) as error:
            problems.append(f"line {number}: not JSON: {error}")
            continue
        else:
            item, wrong = build_item(plain) if isinstance(plain, dict) else (None, ["expected a JSON object"])
            problems += [f"line {number}: {words}" for words in wrong]
            rows += [(number, item)] if item else []
        if isinstance(plain, dict) and plain.get("id"):
            seen.append((str(plain["id"]), str(number)))
    return rows, problems + repeated_ids(seen, "lines ")


class _Repeated(Exception):
    """A key of one item is given twice."""


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    keys = [key for key, _ in pairs]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise _Repeated(f"repeated key {twice[0]!r}")
    return dict(pairs)


def _words(detail: object) -> str:
    facts = dict(detail) if isinstance(detail, dict) else {}
    place = ".".join(map(str, facts.get("loc", ())))
    return f"{place + ': ' if place else ''}{str(facts.get('msg', '')).removeprefix('Value error, ')}"

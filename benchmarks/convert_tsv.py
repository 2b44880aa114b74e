"""VLMEvalKit's tables as items: images as paths or as base64, one or several a row."""

from __future__ import annotations

import base64
import binascii
import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

from benchmarks.images import MAX_BYTES
from benchmarks.items import LETTERS
from benchmarks.rows import Row, source_text
from evidence.errors import DataError
from evidence.values import sha256_of

MAX_REFERENCE = 64
"""An image cell that is no longer is the index of the row that holds the image."""


def read_vlmeval(source: Path, images: Path) -> Iterator[Row]:
    """Rows of a TSV with index, image or image_path, question, A.., answer, and maybe hint and category."""
    limit = csv.field_size_limit(2 * MAX_BYTES)
    try:
        reader = csv.DictReader(io.StringIO(source_text(source), newline=""), dialect="excel-tab")
        missing = [name for name in ("index", "question", "answer") if name not in (reader.fieldnames or ())]
        if missing:
            raise DataError(f"{source}: expected a TSV with the columns index, question, answer; no {missing[0]}")
        known: dict[str, list[str]] = {}
        for number, cells in enumerate(reader, start=1):
            yield _row(source.name, number, {k: (v or "").strip() for k, v in cells.items() if k}, known)
    except csv.Error as error:
        raise DataError(f"{source} is not a TSV: {error}") from error
    finally:
        csv.field_size_limit(limit)


def _row(file: str, number: int, cells: dict[str, str], known: dict[str, list[str]]) -> Row:
    problems: list[str] = []
    options = [cells.get(letter, "") for letter in LETTERS]
    filled = [option for option in options if option]
    if options[: len(filled)] != filled:
        problems.append("an option is empty and a later one is not")
    embedded: dict[str, bytes] = {}
    names: list[str] = []
    try:
        if cells.get("image_path"):
            names = _listed(cells["image_path"])
        elif len(cells.get("image", "")) > MAX_REFERENCE or cells.get("image", "").startswith("["):
            embedded = dict(_decoded(text) for text in _listed(cells["image"]))
            names = list(embedded)
        elif cells.get("image"):
            names = known[cells["image"]]
    except KeyError:
        problems.append(f"image {cells['image']!r} is not the index of an earlier row with an image")
    except ValueError as error:
        problems.append(f"image: {error}")
    known[cells["index"]] = names
    fields = {
        "id": cells["index"],
        "question": "\n".join(filter(None, (cells.get("hint"), cells["question"]))),
        "answer": cells["answer"],
        "options": filled,
        "images": names,
        "task": cells.get("category", ""),
    }
    return Row(file, number, fields, tuple(problems), embedded)


def _listed(cell: str) -> list[str]:
    """One text, or a list of texts written as JSON or, as Python writes it, with single quotes."""
    if not (cell.startswith("[") and cell.endswith("]")):
        return [cell]
    found = json.loads(cell if '"' in cell else cell.replace("'", '"'))
    if not all(isinstance(text, str) for text in found):
        raise ValueError("expected a list of texts")
    return list(found)


def _decoded(text: str) -> tuple[str, bytes]:
    """An image by a name made of its content."""
    try:
        data = base64.b64decode(text.rpartition("base64,")[2], validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from error
    ending = "png" if data.startswith(b"\x89PNG") else "jpg"
    return f"images/{sha256_of(data)[:16]}.{ending}", data

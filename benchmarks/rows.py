"""Rows of other benchmarks' files, as readers hand them on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from evidence.errors import DataError

MAX_FILE_BYTES = 2_000_000_000
_DOI = re.compile(r"^(?:https?://(?:dx\.)?doi\.org/|doi:\s*)", re.IGNORECASE)


class Row(NamedTuple):
    """One row of a file: its number from 1, the fields of its item, and problems found while reading it.

    `embedded` are images that come inside the row, by the path that the item has for them.
    """

    file: str
    row: int
    fields: dict[str, Any]
    problems: tuple[str, ...] = ()
    embedded: Mapping[str, bytes] = {}


Reader = Callable[[Path, Path], Iterator[Row]]
"""Reads a source; the second path is the folder of the images."""


def doi(text: str) -> str:
    """A DOI without the resolver in front of it, in lower case, so that one paper has one name."""
    return _DOI.sub("", text.strip()).casefold()


def source_text(path: Path) -> str:
    """The text of a source file. Raises DataError."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise DataError(f"{path} has more than {MAX_FILE_BYTES} bytes")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error


def json_rows(path: Path) -> list[Any]:
    """The rows of a JSON array or of JSON lines. Raises DataError."""
    text = source_text(path)
    try:
        if text.lstrip().startswith("["):
            return list(json.loads(text))
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is neither a JSON array nor JSON lines: {error}") from error

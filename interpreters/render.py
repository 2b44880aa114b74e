"""Turning requests into chat messages: tables as Markdown, figures as data URLs, text as it is."""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterable, Mapping
from typing import Any

from evidence.contracts import Figure, Message, Part, Request, Table, Text
from evidence.errors import ConfigError, ContractError
from evidence.values import Same
from interpreters.canonical import KEPT
from interpreters.extract import clean

MISSING = "missing"
"""What an empty cell of a table reads as."""


def render_table(table: Table) -> str:
    """A table as Markdown, under its name. Numbers have four significant digits; bars and line ends are escaped."""
    header = _row(table.columns)
    rule = _row("---" for _ in table.columns)
    return "\n".join((f"Table: {table.name}", "", header, rule, *(_row(map(_cell, row)) for row in table.rows)))


def chat_messages(request: Request, blobs: Mapping[str, bytes], *, max_figure_bytes: int) -> list[dict[str, Any]]:
    """The conversation in chat form. A message without figures is one text, which every server takes.

    Raises ContractError if the bytes of a figure are not among the blobs, ConfigError if they are too many.
    """
    return [_message(message, blobs, max_figure_bytes) for message in request.messages]


def _message(message: Message, blobs: Mapping[str, bytes], limit: int) -> dict[str, Any]:
    if not any(isinstance(part, Figure) for part in message.parts):
        return {"role": message.role, "content": _text_message(Same(message))}
    content: list[dict[str, Any]] = []
    for part in message.parts:
        content.append({"type": "text", "text": _words(part)})
        if isinstance(part, Figure):
            content.append({"type": "image_url", "image_url": {"url": _data_url(part, blobs, limit)}})
    return {"role": message.role, "content": content}


@functools.lru_cache(KEPT)
def _text_message(message: Same[Message]) -> str:
    return "\n\n".join(_words(part) for part in message.value.parts)


def _words(part: Part) -> str:
    if isinstance(part, Text):
        return clean(part.text)
    if isinstance(part, Table):
        return _table_words(Same(part))
    return clean(f"Figure: {part.name}" + (f". {part.caption}" if part.caption else ""))


@functools.lru_cache(KEPT)
def _table_words(table: Same[Table]) -> str:
    """What the repeats of a case show are the same tables."""
    return clean(render_table(table.value))


def _data_url(figure: Figure, blobs: Mapping[str, bytes], limit: int) -> str:
    data = blobs.get(figure.sha256)
    if data is None:
        raise ContractError(
            f"figure {figure.name!r}: its bytes (sha256 {figure.sha256[:12]}...) are not among the {len(blobs)} blobs "
            f"given"
        )
    if len(data) > limit:
        raise ConfigError(
            f"figure {figure.name!r} has {len(data)} bytes, more than max_figure_bytes ({limit}); raise the limit "
            f"in the interpreter's options or have the setting draw a smaller figure"
        )
    return f"data:{figure.media_type};base64,{base64.b64encode(data).decode()}"


def _row(cells: Iterable[str]) -> str:
    escaped = (cell.replace("\\", "\\\\").replace("|", "\\|") for cell in cells)
    return "| " + " | ".join(" ".join(cell.split()) for cell in escaped) + " |"


def _cell(value: str | float | int | None) -> str:
    if value is None:
        return MISSING
    if isinstance(value, float):
        rounded = float(f"{value:.4g}") + 0.0
        return f"{rounded:.0f}" if abs(rounded) >= 1e4 else f"{rounded:.4g}"
    return str(value)

"""The canonical text of a request, which is archived and whose sha256 is the key of its reply.

A conversation only grows, and cases are asked again and again: the text of each message is made once. Messages,
readouts and menus are immutable, so the same object has the same text.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from evidence.contracts import Request
from evidence.values import Same, Value, canonical_json, sha256_of

KEPT = 4096
"""How many texts are kept; older ones are made again."""


class Written(NamedTuple):
    """A canonical request as text, and its sha256."""

    text: str
    sha256: str


class RequestWriter:
    """Writes requests to one interpreter: who is asked, and everything that is asked."""

    def __init__(self, identity: Mapping[str, Any]):
        self._identity = canonical_json(identity)

    def write(self, request: Request) -> Written:
        """The canonical JSON of identity and request, with sorted keys."""
        menu, readouts = _list_text(Same(request.menu)), _list_text(Same(request.readouts))
        messages = ",".join(_text(Same(message)) for message in request.messages)
        text = (
            f'{{"identity":{self._identity},"menu":{menu},"messages":[{messages}],'
            f'"readouts":{readouts},"step":{json.dumps(request.step)}}}'
        )
        return Written(text, sha256_of(text))


@functools.lru_cache(KEPT)
def _list_text(values: Same[tuple[Value, ...]]) -> str:
    """The readouts of a case, and its menu while nothing new is measured, are the same objects in many requests."""
    return "[" + ",".join(_text(Same(value)) for value in values.value) + "]"


@functools.lru_cache(KEPT)
def _text(value: Same[Value]) -> str:
    """Messages of a conversation, readouts and menu entries are the same objects in many requests."""
    return canonical_json(value.value)

"""Finding the one JSON object of a reply. Pure, total, and linear in the length of the reply.

The rules:
- Text inside a leading <think> ... </think> is reasoning and is not read.
- Prose and code fences around the object are passed over. A "{" opens an object if a key in double quotes and a colon
  follow, or "}"; any other "{" is prose.
- What opens as an object must be read to its end: one that is cut or damaged is a failure; nothing inside it counts.
- Two different objects are a failure (the same object twice is not); so are a repeated key at any depth, NaN and
  Infinity, and more than 64 levels of nesting. Fields of two objects are never mixed.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

_OPENS = re.compile(r'\{\s*(?:\}|"(?:[^"\\]++|\\.)*+"\s*:)', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_DEPTH = 64


class Extraction(NamedTuple):
    """The object of a reply, or the reason why there is none. Exactly one of the two is given."""

    value: dict[str, Any] | None
    problem: str = ""


class _Refused(ValueError):
    """Something JSON readers let pass and we do not."""


def extract_object(text: str) -> Extraction:
    """The one JSON object of a reply, by the rules above."""
    body = answer_part(text)
    found: dict[str, Any] | None = None
    position = 0
    while opening := _OPENS.search(body, position):
        try:
            value, position = _DECODER.raw_decode(body, opening.start())
            if _too_deep(value):
                raise RecursionError
        except RecursionError:
            return Extraction(None, f"the JSON object is nested more than {_MAX_DEPTH} levels deep")
        except _Refused as error:
            return Extraction(None, str(error))
        except json.JSONDecodeError as error:
            return Extraction(None, f"the JSON object is cut or damaged: {error.msg} ({_near(body, error.pos)})")
        except ValueError:
            return Extraction(None, "the JSON object holds a number with too many digits")
        if found is not None and found != value:
            return Extraction(None, "the reply holds two different JSON objects; expected exactly one")
        found = value
    if found is None:
        return Extraction(None, "the reply holds no JSON object; expected exactly one")
    return Extraction(found)


def answer_part(text: str) -> str:
    """The reply without the reasoning that some servers leave in front of it, between <think> and </think>.

    Templates that open the reasoning themselves send only the closing mark. Reasoning that never closes leaves nothing.
    """
    closing = text.find("</think>")
    opening = text.find("<think>")
    starts = text[: opening + 7].strip() == "<think>"
    if closing >= 0 and (starts or not 0 <= opening < closing):
        return text[closing + 8 :]
    return "" if starts else text


def clean(text: str) -> str:
    """Text that can be written as UTF-8: lone surrogates become U+FFFD. Everything else stays as it is."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def shown(text: str, limit: int = 80) -> str:
    """A quoted, one-line, bounded view of a text from a reply, for messages."""
    short = text if len(text) <= limit else text[:limit] + "..."
    return json.dumps(clean(short), ensure_ascii=False)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise _Refused(f"the JSON object repeats the key {shown(key)}")
        result[key] = value
    return result


def _no_constant(name: str) -> Any:
    raise _Refused(f"the JSON object holds {name}, which is not a JSON number")


_NESTS = (dict, list)
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)


def _too_deep(value: object) -> bool:
    """Measured level by level: no recursion, and the same limit whatever the caller's own depth."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            inner
            for item in level
            if isinstance(item, _NESTS)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return True


def _near(body: str, position: int) -> str:
    return f"near {shown(body[max(0, position - 20) : position + 20], 40)}" if position < len(body) else "at the end"

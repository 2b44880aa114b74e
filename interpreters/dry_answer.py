"""Well-formed made-up replies to the prompts of the loop, for dry runs: they cost nothing and mean nothing.

The form comes from the request's JSON schema where it has one, else from the words of the prompt
(interpreters.prompts). Labels, numbers and menu entry are decided by a hash of what the user side of the conversation
says and of the sampling seed. What a model said before plays no part, so a repaired or retried call gets the answers
that it would have got at once.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from evidence.contracts import NUMERIC_LABELS

_FORM = "Form of the reply:\n"
_LIST = r"{title}:\n((?:- .*(?:\n|$))+)"
_READOUTS = re.compile(_LIST.format(title="Readouts to answer"))
_MENU = re.compile(_LIST.format(title="Menu of measurements"))
_READOUT = re.compile(r"- (.+?): .*?(?:\. One of: (.+))?$")
_ENTRY = re.compile(r"- (.+?): .*\(cost [^)]*\)")


class Form(NamedTuple):
    """What a request asks for: the labels of every readout, whether it has a value, and the ids of the menu."""

    labels: Mapping[str, Sequence[str]]
    numeric: frozenset[str]
    menu: Sequence[str]


def dry_answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """The reply object to the body of a chat-completions request; only an explanation where no form is asked for."""
    said = list(_user_texts(request))
    form = _form_of_schema(request) or _form_of_words(said)
    chosen = _Choices(json.dumps([said, request.get("seed")]), 3 * len(form.labels) + 1)
    answers: dict[str, Any] = {}
    for readout, labels in form.labels.items():
        label = chosen.one_of(labels)
        answers[readout] = {"label": label, "confidence": round(0.4 + 0.5 * chosen.fraction(), 2)}
        if readout in form.numeric:
            answers[readout]["value"] = round((labels.index(label) - 1) * (0.5 + 0.5 * chosen.fraction()), 3)
    reply: dict[str, Any] = {"explanation": "A dry run: this answer is made up."}
    if answers:
        reply["answers"] = answers
    if form.menu:
        reply["measurement"] = chosen.one_of(form.menu)
    return reply


class _Choices:
    """At most `n` choices read off a hash, one after the other."""

    def __init__(self, text: str, n: int):
        drawn = hashlib.shake_128(text.encode("utf-8", "surrogatepass")).digest(4 * n)
        self._drawn: Iterator[int] = iter(struct.unpack(f"<{n}I", drawn))

    def fraction(self) -> float:
        """From 0 to 1."""
        return next(self._drawn) / 2**32

    def one_of(self, options: Sequence[str]) -> str:
        return options[int(self.fraction() * len(options))]


def _user_texts(request: Mapping[str, Any]) -> Iterator[str]:
    """What the user side says, up to the last message that asks for a form: turns that ask for a repair come after."""
    messages = [m for m in request.get("messages") or () if isinstance(m, dict) and m.get("role") == "user"]
    texts = [_text(message.get("content")) for message in messages]
    last = max((n for n, text in enumerate(texts) if _FORM in text), default=len(texts) - 1)
    yield from texts[: last + 1]


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n\n".join(str(part["text"]) for part in parts if isinstance(part, dict) and "text" in part)


def _form_of_schema(request: Mapping[str, Any]) -> Form | None:
    """The form of interpreters.reply_schema, sent as json_schema or as the schema of a json_object."""
    asked = request.get("response_format")
    if not isinstance(asked, dict):
        return None
    schema = asked.get("schema") or (asked.get("json_schema") or {}).get("schema")
    if not isinstance(schema, dict):
        return None
    fields = schema["properties"]
    answers = fields.get("answers", {}).get("properties", {})
    return Form(
        labels={readout: answer["properties"]["label"]["enum"] for readout, answer in answers.items()},
        numeric=frozenset(readout for readout, answer in answers.items() if "value" in answer["properties"]),
        menu=[entry for entry in fields.get("measurement", {}).get("enum", ()) if entry is not None],
    )


def _form_of_words(said: Sequence[str]) -> Form:
    _, _, form = (said[-1] if said else "").rpartition(_FORM)
    labels = _labels(_last(_READOUTS, said)) if '"answers"' in form else {}
    menu = _menu(_last(_MENU, said)) if '"measurement"' in form else ()
    numeric = frozenset(readout for readout, options in labels.items() if tuple(options) == NUMERIC_LABELS)
    return Form(labels, numeric, menu)


def _last(block: re.Pattern[str], said: Sequence[str]) -> str:
    """The lines of the last such list in the conversation."""
    found = [match[1] for text in said for match in block.finditer(text)]
    return found[-1] if found else ""


@functools.lru_cache
def _labels(lines: str) -> Mapping[str, Sequence[str]]:
    found = filter(None, map(_READOUT.match, lines.splitlines()))
    return {match[1]: match[2].split("; ") if match[2] else NUMERIC_LABELS for match in found}


@functools.lru_cache
def _menu(lines: str) -> Sequence[str]:
    return [match[1] for match in filter(None, map(_ENTRY.match, lines.splitlines()))]

"""What servers and models do wrong, each with the status that an archive must show for it.

`FAULTS` is the one list: the dry server injects from it, tests and `loops.fault_table` count by it. Every injected
reply carries its fault's mark in a text that is archived; four faults have no text and are known by their status.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from evidence.contracts import Reply
from evidence.errors import ConfigError, did_you_mean
from interpreters.fake_server import chat, failure
from interpreters.loopback_http import Served
from interpreters.reply import ParsedStatus

_MARK = re.compile(r"\[fault ([a-z_0-9]+)\]")
_CODES = "<script>alert(1)</script> [x](javascript:alert(1)) \x1b[31mred\x1b[0m \x1b]0;title\x07 # **bold**"


Make = Callable[[str, dict[str, Any]], Served]
"""From a fault's mark and the reply object that would have been right to what is served."""


class Fault(NamedTuple):
    """`status` is what the archive must show for an attempt that met this fault."""

    name: str
    make: Make
    status: ParsedStatus

    def serve(self, good: dict[str, Any]) -> Served:
        """What is served in place of the right reply."""
        return self.make(f"[fault {self.name}]", good)


def fault_in(reply: Reply) -> str | None:
    """Which fault was injected into an archived reply; None where none was."""
    found = _MARK.search("\n".join((reply.text[:2000], reply.error, reply.reasoning[:2000])))
    return found[1] if found else UNMARKED.get(reply.status)


def fault_named(name: str) -> Fault:
    """Raises ConfigError, with a suggestion, for a name that is none of FAULTS."""
    if name not in FAULTS:
        raise ConfigError(f"no fault named {name!r}.{did_you_mean(name, FAULTS)} Known: {', '.join(FAULTS)}")
    return FAULTS[name]


def _failure(status: int, **more: Any) -> Make:
    return lambda mark, good: failure(status, f"{mark} injected", **more)


def _text(
    change: Callable[[str], str] = str, *, words: str = "", finish_reason: str = "stop", **message: object
) -> Make:
    """The right reply, marked and changed. The mark comes first, so that cut replies have it too."""

    def make(mark: str, good: dict[str, Any]) -> Served:
        rest = {key: value for key, value in good.items() if key != "explanation"}
        text = json.dumps({"explanation": f"{mark} {words}", **rest})
        return chat(change(text), finish_reason=finish_reason, **message)

    return make


def _cut(text: str) -> str:
    return text[: -max(2, len(text) // 4)]


def _wrong_types(text: str) -> str:
    """Numbers as words and a label as a list; where no answers are asked for, the menu entry as a number."""
    reply = json.loads(text)
    if "answers" not in reply:
        return json.dumps({**reply, "measurement": 7})
    first, *others = reply["answers"]
    reply["answers"][first]["label"] = [reply["answers"][first]["label"]]
    for other in others:
        reply["answers"][other]["confidence"] = "high"
    return json.dumps(reply)


def _extra_keys(text: str) -> str:
    reply = json.loads(text)
    answers = {readout: {**answer, "p_value": 0.01} for readout, answer in reply.get("answers", {}).items()}
    return json.dumps({**reply, **({"answers": answers} if answers else {}), "notes": ["x"], "version": None})


def _twice(text: str) -> str:
    """The first key of the object again, with another value."""
    return text[:-1] + ', "explanation": "again"}'


def _without_usage(mark: str, good: dict[str, Any]) -> Served:
    served = _text()(mark, good)
    return served._replace(body={key: value for key, value in served.body.items() if key != "usage"})


def _two_choices(mark: str, good: dict[str, Any]) -> Served:
    served = _text()(mark, good)
    other = {"index": 1, "finish_reason": "stop", "message": {"role": "assistant", "content": '{"answers": {}}'}}
    return served._replace(body={**served.body, "choices": [*served.body["choices"], other]})


_ALL = (
    Fault("rate_limited", _failure(429), "rate_limited"),
    Fault("retry_after", _failure(429, headers={"Retry-After": "0.05"}), "rate_limited"),
    Fault("server_error", _failure(500), "server_error"),
    Fault("hang", lambda mark, good: Served(action="hang"), "timeout"),
    Fault("reset", lambda mark, good: Served(action="reset"), "connection"),
    Fault("empty_body", lambda mark, good: Served(b""), "malformed"),
    Fault("empty_content", lambda mark, good: chat(""), "empty"),
    Fault("refusal", lambda mark, good: chat(None, refusal=f"{mark} I can't help with that"), "refused"),
    Fault("cut_at_limit", _text(_cut, finish_reason="length"), "truncated"),
    Fault("cut", _text(_cut), "invalid"),
    Fault("fenced", _text(lambda text: f"```json\n{text}\n```"), "ok"),
    Fault("trailing_prose", _text(lambda text: f"{text}\n\nSee [1] and {{Norman}}."), "ok"),
    Fault("wrong_types", _text(_wrong_types), "invalid"),
    Fault("extra_keys", _text(_extra_keys), "ok"),
    Fault("missing_usage", _without_usage, "ok"),
    Fault("two_choices", _two_choices, "ok"),
    Fault("content_filter", _text(_cut, finish_reason="content_filter"), "filtered"),
    Fault("filtered_prompt", _failure(400, code="content_filter"), "filtered"),
    Fault("megabyte", _text(words="x" * 1_000_000), "ok"),
    Fault("nul_around", _text(lambda text: f"\0{text}\0", words="\0"), "ok"),
    Fault("nul_inside", _text(lambda text: text.replace("] ", "] \0")), "invalid"),
    Fault("surrogate", _text(lambda text: f"\ud800{text}", words="\ud83d"), "ok"),
    Fault("repeated_key", _text(_twice), "invalid"),
    Fault("reasoning", _text(reasoning_content='So it is {"answers": {}} ...'), "ok"),
    Fault("markup", _text(words=_CODES), "ok"),
    Fault("quota", _failure(429, code="insufficient_quota"), "quota"),
)
FAULTS: Mapping[str, Fault] = {fault.name: fault for fault in _ALL}
"""By name. "ok" is a reply that must be read as if nothing had happened."""

UNMARKED: Mapping[str, str] = {
    "timeout": "hang",
    "connection": "reset",
    "malformed": "empty_body",
    "empty": "empty_content",
}
"""The faults without a text, by the status that only they have."""

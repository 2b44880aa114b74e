"""What a chat-completions server answered, as a Reply: pure functions of status, headers and body.

Nothing here raises, and nothing here imports a client: any body, however odd, ends as one of the statuses of a Reply.
"""

from __future__ import annotations

import email.utils
import json
import math
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from evidence.contracts import Reply, ReplyStatus, Usage
from interpreters.extract import clean

_QUOTA_WORDS = ("insufficient_quota", "exceeded your current quota", "billing_hard_limit", "credit balance", "billing")
_FILTER_WORDS = ("content_filter", "content_policy_violation", "responsibleaipolicyviolation")
_MAX_WORDS = 2000


class ServerError(NamedTuple):
    """The error part of a body: `words` for people, the rest for rules (lower case)."""

    words: str
    code: str = ""
    param: str = ""

    @property
    def text(self) -> str:
        """Words and code in one lower-case text."""
        return f"{self.code} {self.words}".casefold()


def read_completion(body: str) -> Reply:
    """The Reply of a 200 answer."""
    data = _load(body)
    if not isinstance(data, dict):
        return Reply(status="malformed", error=f"the server's answer is not a JSON object: {_short(body)}")
    choices = data.get("choices")
    if not choices and data.get("error"):
        return _error_inside(data, body)
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        return Reply(
            status="malformed", error=f"the server's answer has no message: {_short(body)}", usage=_usage(data)
        )
    text = _content(message.get("content"))
    reasoning = _text(message.get("reasoning_content")) or _text(message.get("reasoning"))
    refusal = _text(message.get("refusal"))
    finish = choice.get("finish_reason") if isinstance(choice.get("finish_reason"), str) else None
    status, error = _status(text, finish, refusal, bool(reasoning) or _hidden_reasoning(data))
    return Reply(
        status=status,
        text=clean(text or ""),
        reasoning=clean(reasoning),
        finish_reason=None if finish is None else clean(finish),
        usage=_usage(data),
        error=clean(error),
    )


def read_failure(status: int, headers: Mapping[str, str], body: str) -> Reply:
    """The Reply of an answer with an error status. `headers` have lower-case names."""
    error = read_error(body)
    kind = _failure_kind(status, error)
    retry_after = _retry_after(headers) if kind in ("rate_limited", "server_error") else None
    words = error.words or f"HTTP {status} without words"
    return Reply(status=kind, error=f"HTTP {status}: {words}", retry_after_s=retry_after)


def read_error(body: str) -> ServerError:
    """The error a body tells: OpenAI's form, its flat variants, FastAPI's "detail", or the text itself."""
    data = _load(body)
    found = data.get("error", data.get("detail", data)) if isinstance(data, dict) else data
    if not isinstance(found, dict):
        return ServerError(_short(found if isinstance(found, str) and found else body))
    inner = found.get("innererror")
    codes = [found.get("code"), found.get("type"), inner.get("code") if isinstance(inner, dict) else None]
    return ServerError(
        words=_short(_text(found.get("message")) or json.dumps(found)),
        code=" ".join(str(code) for code in codes if isinstance(code, str | int)).casefold(),
        param=_text(found.get("param")).casefold(),
    )


def _failure_kind(status: int, error: ServerError) -> ReplyStatus:
    if status == 402 or (status in (403, 429) and any(word in error.text for word in _QUOTA_WORDS)):
        return "quota"
    if status == 429:
        return "rate_limited"
    if status in (408, 504):
        return "timeout" if status == 408 else "server_error"
    if status >= 500:
        return "server_error"
    if any(word in error.code for word in _FILTER_WORDS):
        return "filtered"
    return "bad_request"


def _error_inside(data: Mapping[str, Any], body: str) -> Reply:
    """Some gateways answer 200 and put the error of the model's own server into the body."""
    error = data["error"]
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) and not isinstance(code, bool) and 400 <= code < 600 else 500
    return read_failure(status, {}, body)


def _status(text: str | None, finish: str | None, refusal: str, reasoned: bool) -> tuple[ReplyStatus, str]:
    if text is None:
        return "malformed", "the message's content is neither a text nor a list of texts"
    if refusal.strip():
        return "refused", f"the model refuses: {_short(refusal)}"
    if finish == "content_filter":
        return "filtered", "the provider's content filter cut the reply"
    unclosed = text.lstrip().startswith("<think>") and "</think>" not in text
    if finish == "length" and (unclosed or (reasoned and not text.strip())):
        return "truncated_in_reasoning", "all tokens went into reasoning; raise max_tokens"
    if finish == "length":
        return "truncated", "the reply reached max_tokens"
    return ("ok", "") if text.strip() else ("empty", "the reply is empty")


def _content(content: object) -> str | None:
    """The text of a message: "" for null, joined for a list of text parts, None for anything else."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        return None
    return "".join(_text(part.get("text")) for part in content if part.get("type") in (None, "text", "output_text"))


def _hidden_reasoning(data: Mapping[str, Any]) -> bool:
    """Whether tokens were spent on reasoning that the server does not show."""
    usage = data.get("usage")
    details = usage.get("completion_tokens_details") if isinstance(usage, dict) else None
    return isinstance(details, dict) and bool(_count(details.get("reasoning_tokens")))


def _usage(data: Mapping[str, Any]) -> Usage:
    usage = data.get("usage")
    if not isinstance(usage, dict):
        return Usage()
    return Usage(
        prompt_tokens=_count(usage.get("prompt_tokens")), completion_tokens=_count(usage.get("completion_tokens"))
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait: Retry-After-Ms, or Retry-After in seconds or as a date; None where none can be read."""
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) / scale
        except (KeyError, ValueError):
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    now = _date(headers.get("date", "")) or time.time()
    until = _date(headers.get("retry-after", ""))
    return None if until is None else max(0.0, until - now)


def _date(text: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def _load(body: str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _short(text: str) -> str:
    flat = clean(text).strip()
    return flat if len(flat) <= _MAX_WORDS else flat[:_MAX_WORDS] + "..."

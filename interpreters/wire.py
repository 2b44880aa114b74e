"""The settings of one send, and the one way in which each may be adapted to a server that refuses it.

A server is asked in one form at a time. When it refuses a setting, the form changes once and stays changed for the
endpoint: max_tokens is renamed, temperature is left out, the output mode steps down from schema to object to none.
"""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

from evidence.contracts import Request
from interpreters.completions import ServerError
from interpreters.reply import reply_schema

TokenParameter = Literal["max_tokens", "max_completion_tokens", "omit"]
Output = Literal["schema", "object", "none"]

OMITTED = "omitted"
"""What Reply.sent says of a setting that was configured and did not go out."""

_UNSUPPORTED = re.compile(
    r"unsupported|not supported|does ?n[o']t support|not support|only the default|unknown|unrecogni[sz]ed|unexpected"
    r"|not permitted|not allowed|extra inputs|max_completion_tokens"
)
_OUTPUT = re.compile(r"response_format|json_schema|json_object|json mode|structured output|guided")
_SCHEMA_WORD = re.compile(
    r"\b(?:schema|enum|required|properties|additionalproperties|m(?:in|ax)items|m(?:in|ax)imum)\b"
)


class Form(NamedTuple):
    """In what form the adaptable settings go out. `limit`: the name of the token limit; `temperature` None: omitted."""

    limit: TokenParameter
    temperature: float | None
    output: Output


class Change(NamedTuple):
    """A changed form, and which setting changed in which way, such as ("temperature", "0 -> omitted")."""

    form: Form
    setting: str
    how: str


def adapted(form: Form, error: ServerError) -> Change | None:
    """The one change that a refusal (HTTP 400 or 422) calls for; None where it names no setting that can change."""
    unsupported = _UNSUPPORTED.search(error.text) is not None
    if form.limit == "max_tokens" and unsupported and _names(error, "max_tokens"):
        return Change(
            form._replace(limit="max_completion_tokens"),
            "token_parameter",
            "max_tokens -> max_completion_tokens",
        )
    if form.temperature is not None and unsupported and _names(error, "temperature"):
        return Change(form._replace(temperature=None), "temperature", f"{form.temperature:g} -> {OMITTED}")
    if form.output != "none" and _refuses_output(form.output, error, unsupported):
        lower: Output = "object" if form.output == "schema" else "none"
        return Change(form._replace(output=lower), "output", f"{form.output} -> {lower}")
    return None


def body_of(form: Form, request: Request, fixed: dict[str, Any], max_tokens: int) -> dict[str, Any]:
    """The settings part of a request body; model and messages are not in it. `fixed` never adapts."""
    body = dict(fixed)
    if form.limit != "omit":
        body[form.limit] = max_tokens
    if form.temperature is not None:
        body["temperature"] = form.temperature
    response_format = _response_format(form.output, request)
    if response_format is not None:
        body["response_format"] = response_format
    return body


def sent_of(form: Form, wanted: Form, body: dict[str, Any]) -> dict[str, Any]:
    """What went out, for Reply.sent: the settings as they were, and "omitted" where a configured one was left out."""
    sent = {key: value for key, value in body.items() if key != "response_format"}
    if wanted.temperature is not None and form.temperature is None:
        sent["temperature"] = OMITTED
    sent["output"] = form.output if "response_format" in body else "none"
    return sent


def _response_format(output: Output, request: Request) -> dict[str, Any] | None:
    """Requests with neither readouts nor menu want free text, whatever the output mode."""
    if output == "none" or not (request.readouts or request.menu):
        return None
    if output == "object":
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": reply_schema(request)}}


def _names(error: ServerError, setting: str) -> bool:
    return error.param == setting or (not error.param and re.search(rf"\b{setting}\b", error.text) is not None)


def _refuses_output(output: Output, error: ServerError, unsupported: bool) -> bool:
    if error.param.startswith("response_format") or _OUTPUT.search(error.text):
        return True
    return output == "schema" and unsupported and _SCHEMA_WORD.search(error.text) is not None

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
_OUTPUT = re.compile(r"response_format|json_schema|json_object|json mode|structured output|guided|grammar")
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


class Refusal(NamedTuple):
    """How a server refused a request: the HTTP status and the error it tells."""

    status: int
    error: ServerError


def adapted(form: Form, refusal: Refusal) -> Change | None:
    """The one change that a refusal calls for; None where it names no setting that can change.

    HTTP 400 and 422 refuse a request. A 500 does so only where it says that it is about the output's form: llama.cpp's
    server answers so to a schema.
    """
    error = refusal.error
    if refusal.status == 500:
        return _lower_output(form) if form.output != "none" and _OUTPUT.search(error.text) else None
    if refusal.status not in (400, 422):
        return None
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
        return _lower_output(form)
    return None


def _lower_output(form: Form) -> Change:
    lower: Output = "object" if form.output == "schema" else "none"
    return Change(form._replace(output=lower), "output", f"{form.output} -> {lower}")


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


def sent_of(form: Form, wanted: float | None, body: dict[str, Any]) -> dict[str, Any]:
    """What went out, for Reply.sent: the settings as they were, and "omitted" where the wanted
    temperature was left out."""
    sent = {key: value for key, value in body.items() if key != "response_format"}
    if wanted is not None and form.temperature is None:
        sent["temperature"] = OMITTED
    sent["output"] = form.output if "response_format" in body else "none"
    return sent


def form_of(sent: dict[str, Any], form: Form, request: Request) -> Form:
    """The form in which an archived request went out, read back from Reply.sent; `form` where it does not tell."""
    limits: tuple[TokenParameter, ...] = ("max_tokens", "max_completion_tokens")
    limit: TokenParameter = next((name for name in limits if name in sent), "omit")
    temperature = None if sent.get("temperature") == OMITTED else form.temperature
    output = sent.get("output") if _wants_form(request) else form.output
    return Form(limit, temperature, output if output in ("schema", "object", "none") else form.output)


def _wants_form(request: Request) -> bool:
    """Requests with neither readouts nor menu want free text, whatever the output mode."""
    return bool(request.readouts or request.menu)


def _response_format(output: Output, request: Request) -> dict[str, Any] | None:
    if output == "none" or not _wants_form(request):
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

"""The form of a reply as a JSON schema, for servers that can hold a model to one.

Only `type`, `enum`, `properties`, `required` and `additionalProperties: false` are used: other words (minItems,
minimum ...) are refused by some servers. Ranges are checked by the reply parser.
"""

from __future__ import annotations

from typing import Any

from evidence.contracts import Readout, Request


def reply_schema(request: Request) -> dict[str, Any]:
    """The wire schema of a request: answers where it has readouts, measurement where it has a menu."""
    fields: dict[str, Any] = {}
    if request.readouts:
        fields["answers"] = _closed({readout.id: _answer(readout) for readout in request.readouts})
    fields["explanation"] = {"type": "string"}
    if request.menu:
        fields["measurement"] = {"type": ["string", "null"], "enum": [*request.menu_ids, None]}
    return _closed(fields)


def _answer(readout: Readout) -> dict[str, Any]:
    fields: dict[str, Any] = {"label": {"type": "string", "enum": list(readout.labels)}}
    if readout.numeric:
        fields["value"] = {"type": ["number", "null"]}
    fields["confidence"] = {"type": "number"}
    if not readout.numeric:
        probabilities = _closed({label: {"type": "number"} for label in readout.labels})
        fields["probabilities"] = {**probabilities, "type": ["object", "null"]}
    return _closed(fields)


def _closed(fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}

"""A judge for tests and dry runs: it compares words and understands nothing. Its grades mean nothing for a model.

It replies in the judge's form, with a rationale that says what it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from evidence.contracts import NoOptions, Reply, Request, Text
from evidence.values import Value

RATIONALE = "TEST JUDGE: the share of the reference's words that the response holds; no understanding."
_BLOCK = re.compile(r"^<<<([A-Z]+) ([0-9a-f]{16})\n(.*)\n\1 \2>>>$", re.DOTALL)
_SCORE = re.compile(r'"(\w+)": 1 to 5')
_WORD = re.compile(r"[^\W_]{3,}")


class RuleJudge:
    """Grade a response by the words that it shares with the reference answer. For tests and dry runs only."""

    Options: ClassVar[type[Value]] = NoOptions
    modalities: ClassVar[frozenset[str]] = frozenset({"text"})
    metered: ClassVar[bool] = False

    def __init__(self, options: NoOptions):
        self.options = options

    def identity(self) -> dict[str, Any]:
        """The name, which says that this is no judge to report, and the version."""
        return {"name": "rule_judge", "version": 1, "for": "tests and dry runs only"}

    async def ask(self, request: Request, blobs: Mapping[str, bytes], *, repeat: int) -> Reply:
        """Reply at once; refuses anything but a judge's request."""
        texts = [part.text for part in request.messages[-1].parts if isinstance(part, Text)]
        blocks = {match[1]: match[3] for text in texts if (match := _BLOCK.match(text))}
        if request.step != "judge" or not {"REFERENCE", "RESPONSE"} <= set(blocks):
            return Reply(status="refused", error="rule_judge: this is no request to judge a response")
        wanted = set(_WORD.findall(blocks["REFERENCE"].casefold()))
        shared = wanted & set(_WORD.findall(blocks["RESPONSE"].casefold()))
        score = 1 + round(4 * len(shared) / max(1, len(wanted)))
        body = {
            "claims": [{"id": "c1", "text": "the whole response"}],
            "verdicts": [{"id": "c1", "verdict": "supported" if score >= 3 else "not in evidence"}],
            "key_error": "none",
            "rationale": RATIONALE,
            "dimensions": dict.fromkeys(_dimensions(texts[-1]), score),
            "overall": score,
        }
        return Reply(text=json.dumps(body), finish_reason="stop")


def _dimensions(form: str) -> list[str]:
    """The dimensions asked for, as the form of the reply lists them."""
    return [name for name in _SCORE.findall(form) if name != "overall"]

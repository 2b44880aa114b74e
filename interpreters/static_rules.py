"""What the offline rules answer to a static item: a floor that looks at no figure and knows no biology.

A question with options gets the longest option (the first of equals): answer keys tend to be long, so this is the
length shortcut that a good item set does not give away. An open question gets a sentence that says nothing.
"""

from __future__ import annotations

import re

from evidence.contracts import Message, Reply, Request, Step, Text

STEPS: frozenset[Step] = frozenset({"plan", "look", "answer"})
OPEN = "A rule that looks at no figure cannot tell; the question gives no more."
_OPTIONS = re.compile(r"\nOptions:\n((?:[A-J]\. [^\n]*(?:\n|$)){2,})")
_LINE = re.compile(r"^([A-J])\. ([^\n]*)$", re.MULTILINE)


def static_reply(request: Request) -> Reply:
    """The reply to one call of a prompting strategy."""
    if request.step != "answer":
        return Reply(text="none", finish_reason="stop")
    found = _OPTIONS.search("\n".join(_texts(request.messages[-1])))
    if found is None:
        return Reply(text=OPEN, finish_reason="stop")
    options = _LINE.findall(found[1])
    letter = max(options, key=lambda option: len(option[1]))[0]
    return Reply(text=f"The longest option, by rule and without the figure.\nANSWER: {letter}", finish_reason="stop")


def _texts(message: Message) -> list[str]:
    return [part.text for part in message.parts if isinstance(part, Text)]

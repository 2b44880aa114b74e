"""An interpreter that says what it was told to: for tests, demonstrations and dry runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from evidence.contracts import Reply, Request, Step
from evidence.errors import ReplyError
from evidence.values import Value, sha256_of

Script = tuple[Reply | str, ...]


class ScriptedOptions(Value):
    """`replies` are given in order, or in order for each step; a text stands for a reply with status "ok".

    `at_end`: what comes after the last reply. "stop" raises ReplyError; "repeat_last" gives the last one for ever.
    """

    replies: Script | dict[Step, Script] = ()
    at_end: Literal["stop", "repeat_last"] = "stop"


class Received(NamedTuple):
    """One request as it came."""

    request: Request
    blobs: Mapping[str, bytes]
    repeat: int


class ScriptedInterpreter:
    """Give scripted replies and record the requests in `received`."""

    Options: ClassVar[type[Value]] = ScriptedOptions
    modalities: ClassVar[frozenset[str]] = frozenset({"figure", "table", "text"})
    metered: ClassVar[bool] = False
    in_order: ClassVar[bool] = True

    def __init__(
        self,
        options: ScriptedOptions | None = None,
        *,
        replies: Sequence[Reply | str] | Mapping[Step, Sequence[Reply | str]] | None = None,
    ):
        self.options = options
        self.replies = replies
        self.received: list[Received] = []
        self._given: dict[str, int] = {}

    def identity(self) -> dict[str, Any]:
        """The name and the sha256 of the script."""
        script = self._script()
        plain = {key: [_reply(r).model_dump(mode="json") for r in replies] for key, replies in script.items()}
        return {"name": "scripted", "script": sha256_of(plain)}

    async def ask(self, request: Request, blobs: Mapping[str, bytes], *, repeat: int) -> Reply:
        """The next reply of the script. Raises ReplyError when the script has no reply left."""
        self.received.append(Received(request, blobs, repeat))
        script = self._script()
        key = request.step if request.step in script else "any step"
        replies = script.get(key, ())
        number = self._given.get(key, 0)
        self._given[key] = number + 1
        if number < len(replies):
            return _reply(replies[number])
        if replies and self.options is not None and self.options.at_end == "repeat_last":
            return _reply(replies[-1])
        raise ReplyError(
            f"the script has {len(replies)} replies for {key}, and this is request {number + 1}; add a reply to the "
            f"script, or set at_end: repeat_last",
            step=request.step,
        )

    def taken_up(self, request: Request, reply: Reply) -> None:
        """Pass over the reply to a request that a resumed run took from its archive."""
        key = request.step if request.step in self._script() else "any step"
        self._given[key] = self._given.get(key, 0) + 1

    def _script(self) -> dict[str, Sequence[Reply | str]]:
        replies = self.replies if self.replies is not None else (self.options or ScriptedOptions()).replies
        return {str(k): v for k, v in replies.items()} if isinstance(replies, Mapping) else {"any step": replies}


def _reply(scripted: Reply | str) -> Reply:
    return Reply(text=scripted, finish_reason="stop") if isinstance(scripted, str) else scripted

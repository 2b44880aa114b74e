"""The one owner of attempts: asks, archives every attempt, waits, repairs, and takes up archived replies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from evidence.contracts import Interpreter, Reply, Request, Usage
from evidence.errors import BudgetError, ReplyError
from evidence.journal import CallRecord
from evidence.values import sha256_of
from interpreters.extract import clean
from interpreters.prompts import repair_request
from interpreters.replay import canonical_request
from interpreters.reply import Parsed, parse_reply
from loops.archive import Archive
from loops.config import Attempts

WAIT_AND_RETRY = frozenset({"timeout", "connection", "rate_limited", "server_error"})
ASK_AGAIN = frozenset({"empty", "malformed", "truncated_in_reasoning"})
"""The model may do better when asked the same again. Refused, filtered and cut replies stand as they are."""


class Place(NamedTuple):
    """Where in a run a call belongs. `turn` counts measurements from 0."""

    case: str
    repeat: int
    step: str
    turn: int


class Asked(NamedTuple):
    """What came of a call: the last reply, how it was read, and the statuses of all attempts."""

    request: Request
    reply: Reply
    parsed: Parsed
    attempts: tuple[str, ...]
    usage: Usage


class Caller:
    """Make calls of one run. `wait` is the clock's sleep, replaceable in tests."""

    def __init__(
        self,
        interpreter: Interpreter,
        archive: Archive,
        attempts: Attempts,
        blobs: Mapping[str, bytes],
        *,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_call: Callable[[bool], None] = lambda live: None,
    ):
        self.interpreter = interpreter
        self.archive = archive
        self.attempts = attempts
        self.blobs = blobs
        self._wait = wait
        self._on_call = on_call

    async def ask(
        self, place: Place, request: Request, *, check: Callable[[Parsed], str | None] = lambda p: None
    ) -> Asked:
        """Ask until a reply can be read or the attempts are used up. `check` may find a reply wanting, in words.

        Raises BudgetError where the server asks for a longer wait than allowed or the quota is used up, ReplyError
        where the server refuses the request itself; both leave a run that can be resumed.
        """
        statuses: list[str] = []
        usages: list[Usage] = []
        asked = request
        for attempt in range(1, self.attempts.max_attempts + 1):
            reply = await self._attempt(place, attempt, asked)
            parsed = parse_reply(request, reply)
            objection = check(parsed) if parsed.status == "ok" else None
            statuses.append("invalid" if objection else parsed.status)
            usages.append(reply.usage)
            if parsed.status == "ok" and objection is None:
                break
            if parsed.status == "invalid" or objection:
                asked = repair_request(asked, reply.text, [objection] if objection else parsed.problems)
            elif reply.status in WAIT_AND_RETRY:
                if attempt < self.attempts.max_attempts:
                    await self._pause(place, reply, attempt)
            elif reply.status not in ASK_AGAIN:
                self._stop_on(place, reply)
                break
        return Asked(request, reply, parsed, tuple(statuses), _total(usages))

    async def _attempt(self, place: Place, attempt: int, request: Request) -> Reply:
        canonical = canonical_request(self.interpreter.identity(), request)
        record = CallRecord(
            **place._asdict(),
            attempt=attempt,
            request_sha256=sha256_of(canonical),
            request=canonical,
            reply=Reply(),
            seconds=0.0,
        )
        archived = self.archive.reply(record)
        if archived is not None:
            self._on_call(False)
            return archived.reply
        began = time.monotonic()
        try:
            reply = await self.interpreter.ask(request, self.blobs, repeat=place.repeat)
        except ReplyError as error:
            error.case, error.step = place.case, place.step
            raise
        reply = reply.model_copy(update={"text": clean(reply.text), "reasoning": clean(reply.reasoning)})
        seconds = round(time.monotonic() - began, 4)
        self.archive.add_call(record.model_copy(update={"reply": reply, "seconds": seconds}))
        self._on_call(True)
        return reply

    async def _pause(self, place: Place, reply: Reply, attempt: int) -> None:
        asked_for = reply.retry_after_s or 0.0
        if asked_for > self.attempts.max_wait_s:
            raise BudgetError(
                f"the server says: retry after {asked_for:g} s, more than attempts.max_wait_s "
                f"({self.attempts.max_wait_s:g} s); resume the run then",
                case=place.case,
                step=place.step,
            )
        await self._wait(max(asked_for, min(self.attempts.backoff_s * 2 ** (attempt - 1), self.attempts.max_wait_s)))

    @staticmethod
    def _stop_on(place: Place, reply: Reply) -> None:
        if reply.status == "quota":
            raise BudgetError(f"the quota is used up; the server says: {reply.error}", case=place.case, step=place.step)
        if reply.status == "bad_request":
            raise ReplyError(f"the server refuses the request: {reply.error}", case=place.case, step=place.step)


def _total(usages: list[Usage]) -> Usage:
    """Tokens of all attempts; unknown if any attempt's is unknown."""
    prompt = [u.prompt_tokens for u in usages]
    completion = [u.completion_tokens for u in usages]
    return Usage(
        prompt_tokens=None if None in prompt else sum(p or 0 for p in prompt),
        completion_tokens=None if None in completion else sum(c or 0 for c in completion),
    )

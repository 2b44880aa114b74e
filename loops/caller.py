"""The one owner of attempts: asks, archives every attempt, waits, repairs, and takes up archived replies."""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from evidence.contracts import Interpreter, Reply, Request, Usage
from evidence.errors import BudgetError, ReplyError
from evidence.values import derive_seed
from interpreters.canonical import RequestWriter, Written
from interpreters.extract import clean
from interpreters.prompts import repair_request
from interpreters.reply import Parsed, parse_reply
from loops.archive import Archive, CallKey, Stepped
from loops.config import CommonConfig
from loops.endpoints import Endpoint
from loops.limits import Meter, Stop, unmetered

WAIT_AND_RETRY = frozenset({"timeout", "connection", "rate_limited", "server_error", "malformed"})
"""Faults of the server, tried again within attempts.max_attempts. Malformed: an answer that is no completion."""
ASK_AGAIN = frozenset({"empty", "truncated_in_reasoning"})
"""Replies with nothing to read, asked for again within `repairs`. Refused, filtered and cut ones stand as they are."""


class Place(NamedTuple):
    """Where in a run a call belongs. `turn` counts measurements from 0."""

    case: str
    repeat: int
    step: str
    turn: int


class Asked(NamedTuple):
    """What came of a call: the last reply, how it was read, the statuses of all attempts, and the tokens they used.

    `request` is what was asked at first, `sha256` that of its canonical text. `unmetered` counts replies of a
    metered model that came without usage: their tokens are in no sum.
    """

    request: Request
    sha256: str
    reply: Reply
    parsed: Parsed
    attempts: tuple[str, ...]
    usage: Usage
    unmetered: int


class _Made(NamedTuple):
    reply: Reply
    live: bool


class Caller:
    """Make the calls of one run. Several runs may share an endpoint and a meter."""

    def __init__(
        self,
        interpreter: Interpreter,
        archive: Archive,
        config: CommonConfig,
        blobs: Mapping[str, bytes],
        *,
        endpoint: Endpoint,
        meter: Meter,
        stop: Stop,
        may_ask: Callable[[], Awaitable[None]],
        on_call: Callable[[bool], None] = lambda live: None,
        redact: Callable[[str], str] = lambda text: text,
    ):
        self.interpreter = interpreter
        self.archive = archive
        self.attempts = config.attempts
        self.repairs = config.repairs
        self.prices = config.interpreter.prices
        self.blobs = blobs
        self.endpoint = endpoint
        self.meter = meter
        self.stop = stop
        self.metered = bool(getattr(interpreter, "metered", True))
        self._writer = RequestWriter(interpreter.identity())
        self._may_ask = may_ask
        self._on_call = on_call
        self._redact = redact

    async def ask(
        self,
        place: Place,
        request: Request,
        *,
        read: Callable[[Request, Reply], Parsed] = parse_reply,
        check: Callable[[Parsed], str | None] = lambda p: None,
    ) -> Asked:
        """Ask until a reply can be read, or the attempts or the repair turns (one, by default) are used up.

        `read` says whether it can: the loop's own parser, unless told otherwise. `check` may find a reply wanting, in
        words. Raises BudgetError where the server asks for a longer wait than
        allowed, the quota is used up or a limit of the run is reached, ReplyError where the server refuses the request
        itself; all leave a run that can be resumed.
        """
        statuses: list[str] = []
        replies: list[Reply] = []
        first = written = self._writer.write(request)
        asked, faults, repairs = request, 0, 0
        while True:
            made = await self._attempt(CallKey(*place, len(replies) + 1), asked, written, repair=repairs > 0)
            reply = made.reply
            parsed = read(request, reply)
            objection = check(parsed) if parsed.status == "ok" else None
            unreadable = parsed.status == "invalid" or objection is not None
            statuses.append("invalid" if objection else parsed.status)
            replies.append(reply)
            if reply.status in WAIT_AND_RETRY:
                faults += 1
                await self._pause(place, made, faults)
                if faults < self.attempts.max_attempts:
                    continue
            elif repairs < self.repairs and (unreadable or reply.status in ASK_AGAIN):
                repairs += 1
                if unreadable:
                    asked = repair_request(asked, reply.text, [objection] if objection else parsed.problems)
                    written = self._writer.write(asked)
                continue
            self._stop_on(place, reply)
            blind = sum(map(unmetered, replies)) if self.metered else 0
            return Asked(request, first.sha256, reply, parsed, tuple(statuses), _total(replies), blind)

    async def _attempt(self, key: CallKey, request: Request, written: Written, *, repair: bool) -> _Made:
        archived = self.archive.reply(key, written.sha256)
        if archived is not None:
            self._on_call(False)
            taken_up = getattr(self.interpreter, "taken_up", None)
            if taken_up is not None:
                taken_up(request, archived)
            return _Made(archived, live=False)
        await self._may_ask()
        call = functools.partial(self._call, key, request, written, repair)
        return _Made(await self.endpoint.ask(call, self.stop), live=True)

    async def _call(self, key: CallKey, request: Request, written: Written, repair: bool) -> Reply:
        """Ask and archive. A run that stops meanwhile leaves this to its end."""
        self.meter.admit()
        began = time.monotonic()
        try:
            reply = await self.interpreter.ask(request, self.blobs, repeat=key.repeat)
        except ReplyError as error:
            error.case, error.step = key.case, key.step
            raise
        reply = reply.with_texts(lambda text: self._redact(clean(text)))
        seconds = round(time.monotonic() - began, 4)
        self.archive.add_call(key, written, reply, repair=repair, seconds=seconds)
        self.meter.add(reply, self.prices, metered=self.metered)
        self._on_call(True)
        return reply

    async def _pause(self, place: Place, made: _Made, faults: int) -> None:
        """Wait before the next attempt, if there is one. A Retry-After that is too long stops the run in any case."""
        if not made.live:
            return
        asked_for, longest = made.reply.retry_after_s or 0.0, self.attempts.max_wait_s
        if asked_for > longest:
            raise BudgetError(
                f"the server says: retry after {asked_for:g} s, more than attempts.max_wait_s ({longest:g} s); resume "
                "the run then",
                case=place.case,
                step=place.step,
            )
        if faults < self.attempts.max_attempts:
            spread = (
                0.75 + 0.5 * derive_seed(faults, *map(str, place)) / 2**63
            )  # so that calls do not come back at once
            backoff = min(self.attempts.backoff_s * 2 ** (faults - 1) * spread, longest)
            await self.stop.sleep(max(asked_for, backoff))

    @staticmethod
    def _stop_on(place: Place, reply: Reply) -> None:
        if reply.status == "quota":
            raise BudgetError(f"the quota is used up; the server says: {reply.error}", case=place.case, step=place.step)
        if reply.status == "bad_request":
            raise ReplyError(f"the server refuses the request: {reply.error}", case=place.case, step=place.step)


def stepped(place: Place, asked: Asked) -> Stepped:
    """The event of a call that has ended."""
    return Stepped(
        **place._asdict(),
        status=asked.attempts[-1],
        answers=asked.parsed.answers,
        proposal=asked.parsed.proposal,
        attempts=asked.attempts,
        usage=asked.usage,
        unmetered=asked.unmetered,
    )


def _total(replies: list[Reply]) -> Usage:
    """The tokens of all replies that say what they used; None where none does."""
    prompt = [r.usage.prompt_tokens for r in replies if r.usage.prompt_tokens is not None]
    completion = [r.usage.completion_tokens for r in replies if r.usage.completion_tokens is not None]
    return Usage(
        prompt_tokens=sum(prompt) if prompt else None, completion_tokens=sum(completion) if completion else None
    )

"""What a run may use, what it has used, and how it stops: no new call starts, calls under way end and are archived."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from typing import NamedTuple

from evidence.contracts import Reply, Usage
from evidence.errors import BudgetError, VcloopError
from loops.config import Limits, Prices

PER = 1_000_000
"""Prices are for this many tokens."""


class Stopped(BudgetError):
    """Raised in place of a call that must not start any more, since its run is to stop."""


class LimitReached(BudgetError):
    """Raised in place of a call that a limit forbids."""


class Stop:
    """Says once that no new call of a run may start, and why. Whoever waits wakes up; `on_set` is called."""

    def __init__(self) -> None:
        self.reason = ""
        self.error: VcloopError | None = None
        self.on_set: Callable[[], None] = lambda: None
        self._event = asyncio.Event()

    def set(self, reason: str, error: VcloopError | None = None) -> None:
        """Stop the run; the first reason counts. With `error` it ends as failed."""
        if not self.is_set:
            self.reason, self.error = reason, error
            self._event.set()
            self.on_set()

    @property
    def is_set(self) -> bool:
        """Whether the run is to stop."""
        return self._event.is_set()

    def check(self) -> None:
        """Raise Stopped if the run is to stop."""
        if self.is_set:
            raise Stopped(self.reason)

    async def sleep(self, seconds: float) -> None:
        """Wait, but not longer than until the run is to stop; Stopped is raised then."""
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._event.wait()
        self.check()


class Used(NamedTuple):
    """Calls made, tokens in and out and their price as far as they are known, and replies that did not say."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: Decimal = Decimal(0)
    unknown: int = 0


class Meter:
    """Counts every attempt of all runs of one start, those made before a resume included, against the limits, if any.

    `calls` is kept exactly. Tokens and cost are known only when a reply is there: the calls under way at that moment
    may pass the limit.
    """

    def __init__(self, limits: Limits):
        self.limits = limits
        self.used = Used()

    @property
    def used(self) -> Used:
        """What was used so far."""
        return self._used

    @used.setter
    def used(self, used: Used) -> None:
        self._used = used

    def _locked(self) -> AbstractContextManager[None]:
        """Nobody else counts while this lasts. Here nobody could."""
        return nullcontext()

    def admit(self) -> None:
        """Count a call that is about to be made. Raises LimitReached where a limit forbids it."""
        if not self.limits.counted:
            return
        with self._locked():
            used = self.used
            over = refusal(self.limits, used)
            if over:
                raise LimitReached(over)
            self.used = used._replace(calls=used.calls + 1)

    def past(self, attempts: Iterable[Reply], prices: Prices | None) -> None:
        """Count what an archive already holds."""
        if self.limits.counted:
            self._count(used_before(attempts, prices))

    def add(self, reply: Reply, prices: Prices | None, *, metered: bool) -> None:
        """Count what a reply used. `metered`: its interpreter costs tokens, so that a reply without usage is one that
        a limit of tokens or cost cannot be kept with."""
        if self.limits.counted:
            self._count(used_by(reply, prices, metered=metered))

    def _count(self, more: Used) -> None:
        with self._locked():
            self.used = total([self.used, more])


def refusal(limits: Limits, used: Used) -> str:
    """Why no other call may be made; empty where one may."""
    tokens = used.prompt_tokens + used.completion_tokens
    kept = [name for name in ("tokens", "cost") if getattr(limits, name) is not None]
    if kept and used.unknown:
        return f"limits.{kept[0]} cannot be kept: a reply came without usage; limit calls or wall_time_s instead"
    if limits.calls is not None and used.calls >= limits.calls:
        return f"limits.calls: {used.calls} of {limits.calls} calls are made; raise it to go on"
    if limits.tokens is not None and tokens >= limits.tokens:
        return f"limits.tokens: {tokens} of {limits.tokens} tokens are used; raise it to go on"
    if limits.cost is not None and used.cost >= Decimal(str(limits.cost)):
        return f"limits.cost: {used.cost.normalize():f} of {limits.cost:g} is spent; raise it to go on"
    return ""


def used_by(reply: Reply, prices: Prices | None, *, metered: bool, calls: int = 0) -> Used:
    """What one reply used."""
    usage = reply.usage
    return Used(
        calls,
        usage.prompt_tokens or 0,
        usage.completion_tokens or 0,
        cost_of(usage, prices) or Decimal(0),
        int(metered and unmetered(reply)),
    )


def used_before(attempts: Iterable[Reply], prices: Prices | None) -> Used:
    """What the attempts that an archive holds used. Whether they said so is no matter any more."""
    return total(used_by(reply, prices, metered=False, calls=1) for reply in attempts)


def total(parts: Iterable[Used]) -> Used:
    """The sum of what was used."""
    calls, prompt, completion, unknown, cost = 0, 0, 0, 0, Decimal(0)
    for used in parts:
        calls += used.calls
        prompt += used.prompt_tokens
        completion += used.completion_tokens
        cost += used.cost
        unknown += used.unknown
    return Used(calls, prompt, completion, cost, unknown)


def cost_of(usage: Usage, prices: Prices | None) -> Decimal | None:
    """The price of one reply; None where prices or usage are not known. Exact: no sum of floats drifts."""
    if prices is None or usage.prompt_tokens is None or usage.completion_tokens is None:
        return None
    prompt, completion = Decimal(str(prices.prompt)), Decimal(str(prices.completion))
    return (usage.prompt_tokens * prompt + usage.completion_tokens * completion) / PER


def unmetered(reply: Reply) -> bool:
    """Whether a model worked on a reply and the server does not say how much."""
    usage = reply.usage
    came = bool(reply.text or reply.reasoning or reply.finish_reason)
    return came and (usage.prompt_tokens is None or usage.completion_tokens is None)

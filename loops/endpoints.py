"""How many calls one server gets at once: fewer when it says that it has too many, slowly more again.

Additive increase, multiplicative decrease (Chiu and Jain, 1989): an overload halves the number of places, and every
whole round of good answers gives one back. Calls that began before the last cut do not cut again.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from evidence.contracts import Reply
from loops.limits import Stop

OVERLOADED = frozenset({"rate_limited", "timeout"})
"""Statuses that say a server has too much to do; so does a server error that names a time to wait."""
Call = Callable[[], Awaitable[Reply]]


class _Waiting(NamedTuple):
    call: Call
    stop: Stop
    reply: asyncio.Future[Reply]


class Endpoint:
    """The places of one server, shared by everything that asks it. Calls get places in the order they come.

    Each place is a task that makes one call after the other, as long as calls wait. `reached` is one number, which all
    processes of a run may share: not 0 once a connection to the server has been made.
    """

    def __init__(self, places: int, reached: memoryview | None = None, clock: Callable[[], float] = time.monotonic):
        self.most = places
        self.places = float(places)
        self.busy = 0
        self._reached = memoryview(bytearray(1)) if reached is None else reached
        self._clock = clock
        self._waiting: deque[_Waiting] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._not_before = 0.0
        self._last_cut = float("-inf")

    @property
    def reached(self) -> bool:
        """Whether a connection to the server has been made in this start of the run."""
        return self._reached[0] != 0

    async def ask(self, call: Call, stop: Stop) -> Reply:
        """Make a call as soon as it has a place, and learn from its reply how many places there are to be.

        A call that has begun goes on to its end, even where nobody waits for it any more. Raises what the call raises,
        and Stopped where the run is to stop before the place comes.
        """
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(call, stop, reply))
        self._fill()
        return await reply

    async def finish(self) -> None:
        """Wait for the calls that have begun, so that what was paid is archived."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _fill(self) -> None:
        """Take places for calls that wait, as far as there are any."""
        for _ in range(min(int(self.places) - self.busy, len(self._waiting))):
            self.busy += 1
            task = asyncio.get_running_loop().create_task(self._hold())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _hold(self) -> None:
        """Hold a place and make calls, until none waits or the place is one too many."""
        try:
            while self._waiting and self.busy <= int(self.places):
                call, stop, reply = self._waiting.popleft()
                if reply.done():
                    continue  # given up before it began
                try:
                    came = await self._make(call, stop)
                except asyncio.CancelledError:
                    reply.cancel()
                    raise
                except BaseException as error:
                    if not reply.done():
                        reply.set_exception(error)
                    if isinstance(error, KeyboardInterrupt | SystemExit):
                        raise
                else:
                    if not reply.done():
                        reply.set_result(came)
                    self._fill()
        finally:
            self.busy -= 1
            self._fill()

    async def _make(self, call: Call, stop: Stop) -> Reply:
        while (delay := self._not_before - self._clock()) > 0:
            await stop.sleep(delay)
        stop.check()
        began = self._clock()
        reply = await call()
        self._learn(reply, began)
        return reply

    def _learn(self, reply: Reply, began: float) -> None:
        if reply.status != "connection":
            self._reached[0] = 1
        if reply.status in OVERLOADED or (reply.status == "server_error" and reply.retry_after_s is not None):
            self._not_before = max(self._not_before, self._clock() + (reply.retry_after_s or 0.0))
            if began > self._last_cut:
                self.places = max(1.0, self.places / 2)
                self._last_cut = self._clock()
        elif self.places < self.most:
            self.places = min(float(self.most), self.places + 1 / self.places)

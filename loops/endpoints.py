"""How many calls one server gets at once: fewer when it says that it has too many, slowly more again.

Additive increase, multiplicative decrease (Chiu and Jain, 1989): an overload halves the number of places, and every
whole round of good answers gives one back. Calls that began before the last cut do not cut again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable

from evidence.contracts import Reply
from loops.limits import Stop

OVERLOADED = frozenset({"rate_limited", "timeout"})
"""Statuses that say a server has too much to do; so does a server error that names a time to wait."""


class Endpoint:
    """The places of one server, shared by everything that asks it. Calls get places in the order they come.

    `reached`: a connection to it has been made in this start of the run.
    """

    def __init__(self, places: int, clock: Callable[[], float] = time.monotonic):
        self.most = places
        self.places = float(places)
        self.busy = 0
        self.cuts = 0
        self.reached = False
        self._clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._not_before = 0.0
        self._last_cut = float("-inf")

    @contextlib.asynccontextmanager
    async def place(self, stop: Stop) -> AsyncIterator[Callable[[Reply], None]]:
        """A place for one call. What is given must be told the reply, so that the number of places follows.

        Raises Stopped where the run is to stop before the place comes.
        """
        if self.busy < int(self.places) and not self._waiting:
            self.busy += 1
        else:
            await self._queue()
        try:
            while (delay := self._not_before - self._clock()) > 0:
                await stop.sleep(delay)
            stop.check()
            began = self._clock()
            yield lambda reply: self._learn(reply, began)
        finally:
            self.busy -= 1
            self._admit()

    async def _queue(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the place came and the call was given up: pass it on
                self.busy -= 1
                self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting and self.busy < int(self.places):
            turn = self._waiting.popleft()
            if not turn.done():
                self.busy += 1
                turn.set_result(None)

    def _learn(self, reply: Reply, began: float) -> None:
        self.reached = self.reached or reply.status != "connection"
        if reply.status in OVERLOADED or (reply.status == "server_error" and reply.retry_after_s is not None):
            self._not_before = max(self._not_before, self._clock() + (reply.retry_after_s or 0.0))
            if began > self._last_cut:
                self.places = max(1.0, self.places / 2)
                self.cuts += 1
                self._last_cut = self._clock()
        elif self.places < self.most:
            self.places = min(float(self.most), self.places + 1 / self.places)

"""One of several processes of a run: works through its share, and says to the first process what all must know.

Until one of them has found out how a server wants to be asked, it alone asks it; the limits are counted by all.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import os
import pickle
import signal
import traceback
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from evidence.errors import ContractError, VcloopError, kind_of
from loops.shift import Shift, Working, in_event_loop
from loops.work import Progress

REPORT_EVERY_S = 0.05
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG in linux/prctl.h


class Stopping(NamedTuple):
    """The run with this number is to stop."""

    number: int
    reason: str
    error: VcloopError | None = None


class Found(NamedTuple):
    """What was found out about the server of the run with this number: all may ask it now."""

    number: int
    findings: Any


class Interrupt(NamedTuple):
    """All is to stop as it does at Ctrl-C: calls under way end and are archived."""


class Done(NamedTuple):
    """Calls that were made, calls that were taken from the archive, and cells that were worked through."""

    calls: int = 0
    taken_up: int = 0
    cells: int = 0


class Ended(NamedTuple):
    """A process is at its end: for each run the cells left open and the faults, and what ended it before that."""

    open_cells: list[int]
    faults: list[list[str]]
    error: BaseException | None


def work_there(shift: Shift, parent: Connection, first: bool, parent_pid: int) -> None:
    """Work through a share in a process that was forked for it, and that does not outlive its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent says what is to be done
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent_pid:
        return
    error: BaseException | None = None
    try:
        in_event_loop(_Forked(shift, parent, first).work)
    except asyncio.CancelledError:
        pass
    except BaseException as raised:
        error = _sendable(raised)
    works = shift.works
    parent.send(Ended([work.open_cells for work in works], [work.faults for work in works], error))


class _Forked:
    def __init__(self, shift: Shift, parent: Connection, first: bool):
        self._parent = parent
        self._works = shift.works
        self._shift = shift._replace(progress=Progress(cell=self._worked_through, call=self._called))
        self._done = Done()
        unknown = [n for n, work in enumerate(self._works) if getattr(work.interpreter, "findings", work) is None]
        self._to_tell = unknown if first else []
        self._known = {} if first else {number: asyncio.Event() for number in unknown}
        for number, work in enumerate(self._works):
            work.stop.on_set = functools.partial(self._stopping, number)

    async def work(self) -> None:
        """Work through the share, and listen meanwhile."""
        working = Working(self._shift, self._may_ask)
        loop, through = asyncio.get_running_loop(), asyncio.ensure_future(working.through())
        loop.add_reader(self._parent.fileno(), self._listen, through)
        try:
            await through
        finally:
            await working.finish()
            self._report()
            loop.remove_reader(self._parent.fileno())

    async def _may_ask(self, number: int) -> None:
        if number in self._known:
            await self._known[number].wait()

    def _worked_through(self) -> None:
        self._add(Done(cells=1))

    def _called(self, live: bool) -> None:
        self._add(Done(calls=1) if live else Done(taken_up=1))
        for number in list(self._to_tell):
            findings = self._works[number].interpreter.findings  # type: ignore[attr-defined]
            if findings is not None:
                self._to_tell.remove(number)
                if _arriving(findings) is None:
                    name = self._works[number].record.interpreter.get("name")
                    raise ContractError(f"interpreter {name!r}: its findings cannot be pickled for the other processes")
                self._parent.send(Found(number, findings))

    def _add(self, done: Done) -> None:
        """Count, and report it soon: every message wakes the first process."""
        if not any(self._done):
            asyncio.get_running_loop().call_later(REPORT_EVERY_S, self._report)
        self._done = Done(*map(sum, zip(self._done, done, strict=True)))

    def _report(self) -> None:
        done, self._done = self._done, Done()
        if any(done):
            self._parent.send(done)

    def _stopping(self, number: int) -> None:
        if number in self._known:
            self._known[number].set()  # who waits to ask asks no more, and leaves its place to cells of other runs
        stop = self._works[number].stop
        error = None if stop.error is None else _ours(stop.error)
        self._parent.send(Stopping(number, stop.reason, error))

    def _listen(self, through: asyncio.Future[None]) -> None:
        while self._parent.poll():
            message = self._parent.recv()
            if isinstance(message, Stopping):
                self._works[message.number].stop.set(message.reason)
            elif isinstance(message, Interrupt):
                through.cancel()
            elif isinstance(message, Found) and message.number in self._known:
                if message.findings is not None:
                    self._works[message.number].interpreter.findings = message.findings  # type: ignore[attr-defined]
                self._known[message.number].set()


def _sendable(error: BaseException) -> BaseException:
    """The error, with the traceback of this process; its text in a RuntimeError where it would not arrive as it is."""
    if isinstance(error, VcloopError):
        return _ours(error)
    sent = error if _keeps_its_text(error) else RuntimeError(repr(error))
    sent.add_note("".join(traceback.format_exception(error)))
    return sent


def _ours(error: VcloopError) -> VcloopError:
    """The error; the nearest of our own kinds with the same text, where it would not arrive as it is."""
    return error if _keeps_its_text(error) else kind_of(error)(str(error))


def _keeps_its_text(error: BaseException) -> bool:
    arriving = _arriving(error)
    return arriving is not None and str(arriving) == str(error)


def _arriving(value: Any) -> Any:
    """What a value is in another process; None where it cannot be sent."""
    try:
        return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own
    except Exception:
        return None

"""Work through cells in several processes of this machine, where one processor cannot keep up with the servers.

The processes are forked when everything is prepared and the archives are open: they share what was read and computed,
and append whole lines to the same files. Each has its part of the cells and of the places at a server, and makes its
calls itself (`loops.forked`). This process counts nothing and asks nothing; it passes on what all must know.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from evidence.errors import ConfigError, VcloopError
from loops.forked import Done, Ended, Found, Interrupt, Stopping, work_there
from loops.shift import Shift
from loops.work import Work

CALLS_OF_A_PROCESS = 32
"""Calls at once that are worth another process, unless the config says how many there are to be."""
UNSAFE = ("torch", "jax")
"""Packages whose threads do not survive a fork."""
T = TypeVar("T")


def check_processes(asked: int | None, works: Sequence[Work]) -> None:
    """Raise ConfigError where several processes are asked for and cannot be."""
    if (asked or 1) > 1 and (obstacle := _obstacle(works)):
        raise ConfigError(f"processes: {asked} cannot be, {obstacle}; set processes: 1")


def how_many(asked: int | None, works: Sequence[Work], n_cells: int, concurrency: int) -> int:
    """The number of processes for these cells: as many as are of use, unless the config says how many."""
    if asked is None:
        worth_it = n_cells >= 2 * concurrency and not _obstacle(works)
        asked = min(len(os.sched_getaffinity(0)), concurrency // CALLS_OF_A_PROCESS) if worth_it else 1
    return max(1, min(asked, concurrency, n_cells))


def _obstacle(works: Sequence[Work]) -> str:
    """Why this process cannot be forked for these runs; empty where it can."""
    if sys.platform != "linux":
        return "since they are forked, which is safe on Linux alone"
    if multiprocessing.current_process().daemon:
        return "since this one is a daemon and may have no others"
    loaded = [name for name in UNSAFE if name in sys.modules]
    if loaded:
        return f"since {loaded[0]} is at work in this one (it is not once the simulator is trained: start again)"
    ordered = [work.record.name for work in works if getattr(work.interpreter, "in_order", False)]
    return f"since the interpreter of {ordered[0]} replies in the order of its requests" if ordered else ""


def make_cells_in(n: int, shift: Shift) -> None:
    """Work through all cells of a shift in `n` processes, as `loops.shift.make_cells` does in one.

    Raises what ended one of them; VcloopError where one was killed. The others stop cleanly before.
    """
    for work in shift.works:
        work.archive.open_journals()
    fork = multiprocessing.get_context("fork")
    crew: dict[Connection, BaseProcess] = {}
    try:
        for number, share in enumerate(_shares(n, shift)):
            here, there = fork.Pipe()
            process: BaseProcess = fork.Process(
                target=work_there, args=(share, there, number == 0, os.getpid()), daemon=True
            )
            process.start()
            there.close()
            crew[here] = process
        ended = _Crew(shift, crew).attend()
    finally:
        for process in crew.values():
            process.kill()
            process.join()
    for number, work in enumerate(shift.works):
        work.open_cells = sum(end.open_cells[number] for end in ended)
        work.faults += [fault for end in ended for fault in end.faults[number]]


def _shares(n: int, shift: Shift) -> Iterator[Shift]:
    """Part the cells of every run, and the places. The first share has cells of every run that has any."""
    for number in range(n):
        cells = [_part(of_run, number, n) for of_run in shift.cells]
        yield shift._replace(cells=cells, concurrency=len(_part(range(shift.concurrency), number, n)))


def _part(whole: Sequence[T], number: int, n: int) -> Sequence[T]:
    """The part with this number of `n` parts, each in one piece; the first ones are the longer ones."""
    return whole[-(-len(whole) * number // n) : -(-len(whole) * (number + 1) // n)]


class _Crew:
    """The processes of a shift, and what they say."""

    def __init__(self, shift: Shift, processes: dict[Connection, BaseProcess]):
        self.shift = shift
        self.processes = processes
        self.ended: dict[Connection, Ended] = {}
        self.failure: BaseException | None = None

    def attend(self) -> list[Ended]:
        """Listen until all are at their end. Raises what ended one of them."""
        first = next(iter(self.processes))
        with self._interrupts():
            while len(self.ended) < len(self.processes):
                open_ones = [here for here in self.processes if here not in self.ended]
                ready = wait(open_ones)
                for here in [one for one in open_ones if one in ready]:
                    self._take(here, self._hear(here))
                    if here is first and first in self.ended:
                        for number in range(len(self.shift.works)):
                            self._tell(Found(number, None))
        if self.failure is not None:
            raise self.failure
        return list(self.ended.values())

    def _hear(self, here: Connection) -> Any:
        try:
            return here.recv()
        except (EOFError, OSError):
            process = self.processes[here]
            process.join(timeout=10)
            killed = f"a process of the run was killed (exit code {process.exitcode}); resume the run with --resume"
            return Ended([], [], VcloopError(killed))

    def _take(self, here: Connection, message: Any) -> None:
        progress = self.shift.progress
        if isinstance(message, Done):
            for live in [True] * message.calls + [False] * message.taken_up:
                progress.call(live)
            for _ in range(message.cells):
                progress.cell()
        elif isinstance(message, Found):
            self._tell(message)
        elif isinstance(message, Stopping):
            stop = self.shift.works[message.number].stop
            if not stop.is_set:
                stop.set(message.reason, message.error)
                self._tell(message)
        elif isinstance(message, Ended):
            self.ended[here] = message
            if message.error is not None:
                self.failure = self.failure or message.error
                self._tell(Interrupt())

    def _tell(self, message: Any) -> None:
        for here in self.processes:
            if here not in self.ended:
                with contextlib.suppress(OSError):  # it is gone: that is heard next
                    here.send(message)

    @contextlib.contextmanager
    def _interrupts(self) -> Iterator[None]:
        """The first Ctrl-C lets calls under way end, as in one process; the second ends this process at once."""

        def interrupted(*_: object) -> None:
            if self.failure is not None:
                raise KeyboardInterrupt
            self.failure = KeyboardInterrupt()
            self._tell(Interrupt())

        ours = threading.current_thread() is threading.main_thread()
        if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return
        before = signal.signal(signal.SIGINT, interrupted)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

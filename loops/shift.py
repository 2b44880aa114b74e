"""What one process works through: cells of all runs, some at once, within the limits, until made or stopped."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evidence.errors import BudgetError, ReplyError, VcloopError
from interpreters.secrets import redact
from loops.archive import read_blob
from loops.caller import Caller
from loops.collection import rare_collection
from loops.endpoints import Endpoint
from loops.limits import LimitReached, Meter, Stopped
from loops.work import Cell, Progress, Work


class Shift(NamedTuple):
    """The open cells of each run, in the order of `works`, and what they may use.

    `reached`: a number for each server, see `loops.endpoints`.
    """

    works: Sequence[Work]
    cells: Sequence[Sequence[Cell]]
    meter: Meter
    wall_time_s: float | None
    concurrency: int
    progress: Progress
    reached: memoryview


async def _at_once(number: int) -> None:
    """Nothing is waited for."""


def make_cells(shift: Shift) -> None:
    """Work through all cells of a shift. What comes of it is in the archives and in the works."""

    async def whole() -> None:
        working = Working(shift)
        try:
            await working.through()
        finally:
            await working.finish()

    in_event_loop(whole)


def in_event_loop(whole: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run what works through a shift, in an event loop of its own."""
    import uvloop

    with rare_collection(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(whole())


class Working:
    """A shift at work. The cells of a run make calls when `may_ask`, given its number, returns."""

    def __init__(self, shift: Shift, may_ask: Callable[[int], Awaitable[None]] = _at_once):
        self.shift = shift
        self._endpoints: dict[str, Endpoint] = {}
        self._callers: list[Caller] = []
        for number, (work, cells) in enumerate(zip(shift.works, shift.cells, strict=True)):
            work.open_cells = len(cells)
            endpoint = self._endpoint(work)
            self._callers.append(_caller(work, endpoint, shift, functools.partial(may_ask, number)))
        self._one_cell = [work.worker(caller) for work, caller in zip(shift.works, self._callers, strict=True)]
        at_once = shift.concurrency if shift.concurrency == 1 else 2 * shift.concurrency
        self._open_at_once = asyncio.Semaphore(at_once)

    async def through(self) -> None:
        """Work through the cells, until they are made or the runs are to stop.

        They are opened one by one: what the first of them ask is on its way while the others are prepared.
        """
        wall_time_s, timer = self.shift.wall_time_s, None
        if wall_time_s is not None:
            over = f"limits.wall_time_s: the run has gone on for {wall_time_s:g} s"
            timer = asyncio.get_running_loop().call_later(wall_time_s, self._stop_all, over)
        try:
            async with asyncio.TaskGroup() as group:
                for number, cells in enumerate(self.shift.cells):
                    for case, repeat in cells:
                        await self._open_at_once.acquire()
                        if self.shift.works[number].stop.is_set:
                            self._open_at_once.release()
                            break
                        group.create_task(self._one(number, case, repeat))
                        await asyncio.sleep(0)
        except BaseExceptionGroup as errors:
            self._stop_all("an error ended the run")
            raise _first(errors) from errors
        except BaseException:
            self._stop_all("interrupted")  # whoever waits for a time that a server named begins no call
            raise
        finally:
            if timer is not None:
                timer.cancel()

    async def finish(self) -> None:
        """Wait for the calls under way, and close the connections."""
        for endpoint in self._endpoints.values():
            await endpoint.finish()
        for work in self.shift.works:
            close = getattr(work.interpreter, "aclose", None)
            if close is not None:
                await close()

    def _endpoint(self, work: Work) -> Endpoint:
        """That of the work's server, which other works may ask, too."""
        asked, number = work.record.interpreter, len(self._endpoints)
        name = str(asked.get("base_url") or asked.get("name"))
        if name not in self._endpoints:
            self._endpoints[name] = Endpoint(self.shift.concurrency, self.shift.reached[number : number + 1])
        return self._endpoints[name]

    def _stop_all(self, reason: str) -> None:
        for work in self.shift.works:
            work.stop.set(reason)

    async def _one(self, number: int, case: str, repeat: int) -> None:
        work = self.shift.works[number]
        try:
            work.stop.check()
            fault = await self._one_cell[number](case, repeat)
        except LimitReached as limit:
            self._stop_all(str(limit))
            return
        except Stopped:
            return
        except (BudgetError, ReplyError) as error:
            work.stop.set(redact(str(error), work.secrets), error)
            return
        finally:
            self._open_at_once.release()
        work.open_cells -= 1
        if fault:
            work.faults.append(f"case {case}: {fault}")
            if not self._callers[number].endpoint.reached:
                work.stop.set(f"{fault}; no connection was made at all: is the server up, and its address right?")
        self.shift.progress.cell()


def _caller(work: Work, endpoint: Endpoint, shift: Shift, may_ask: Callable[[], Awaitable[None]]) -> Caller:
    return Caller(
        work.interpreter,
        work.archive,
        work.config,
        StoredBlobs(work.folder),
        endpoint=endpoint,
        meter=shift.meter,
        stop=work.stop,
        may_ask=may_ask,
        on_call=shift.progress.call,
        redact=lambda text: redact(text, work.secrets),
    )


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first of several errors, preferring ours."""
    flat = list(_flatten(errors))
    return next((e for e in flat if isinstance(e, VcloopError)), flat[0])


def _flatten(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _flatten(inner)
    else:
        yield error


class StoredBlobs(Mapping[str, bytes]):
    """Figures by sha256, read from the archive and checked when an interpreter sends them."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __getitem__(self, sha256: str) -> bytes:
        return read_blob(self.folder, sha256)

    def __iter__(self) -> Iterator[str]:
        return (path.name for path in (self.folder / "blobs").iterdir())

    def __len__(self) -> int:
        return sum(1 for _ in self)

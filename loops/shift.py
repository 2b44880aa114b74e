"""What one process works through: cells of all runs, some at once, within the limits, until made or stopped."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from evidence.errors import BudgetError, ReplyError, VcloopError
from interpreters.secrets import redact
from loops.archive import read_blob
from loops.caller import Caller
from loops.collection import rare_collection
from loops.endpoints import Endpoint
from loops.limits import LimitReached, Meter, Stopped
from loops.work import Cell, Progress, Work


class Shift(NamedTuple):
    """The open cells of each run, in the order of `works`, and what they may use."""

    works: Sequence[Work]
    cells: Sequence[Sequence[Cell]]
    meter: Meter
    wall_time_s: float | None
    concurrency: int
    progress: Progress


async def _at_once(number: int) -> None:
    """Nothing is waited for."""


def make_cells(shift: Shift) -> None:
    """Work through all cells of a shift. What comes of it is in the archives and in the works."""
    in_event_loop(work_through(shift))


def in_event_loop(whole: Awaitable[None]) -> None:
    """Run what works through a shift, in an event loop of its own."""
    import uvloop

    async def run() -> None:
        await whole

    with rare_collection(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


async def work_through(shift: Shift, may_ask: Callable[[int], Awaitable[None]] = _at_once) -> None:
    """Work through the cells of a shift. Those of a run make calls when `may_ask`, given its number, returns.

    Cells are opened one by one: what the first of them ask is on its way while the others are prepared.
    """
    works, endpoints, callers = shift.works, dict[str, Endpoint](), list[Caller]()
    for work, cells in zip(works, shift.cells, strict=True):
        work.open_cells = len(cells)
        asked = work.record.interpreter
        endpoint = endpoints.setdefault(str(asked.get("base_url") or asked.get("name")), Endpoint(shift.concurrency))
        may_this_ask = functools.partial(may_ask, len(callers))
        callers.append(_caller(work, endpoint, shift.meter, shift.progress, may_this_ask))
    one_cell = [work.worker(caller) for work, caller in zip(works, callers, strict=True)]
    open_at_once = asyncio.Semaphore(shift.concurrency if shift.concurrency == 1 else 2 * shift.concurrency)

    def stop_all(reason: str) -> None:
        for work in works:
            work.stop.set(reason)

    async def one(number: int, case: str, repeat: int) -> None:
        work = works[number]
        try:
            work.stop.check()
            fault = await one_cell[number](case, repeat)
        except LimitReached as limit:
            stop_all(str(limit))
            return
        except Stopped:
            return
        except (BudgetError, ReplyError) as error:
            work.stop.set(redact(str(error), work.secrets), error)
            return
        finally:
            open_at_once.release()
        work.open_cells -= 1
        if fault:
            work.faults.append(f"case {case}: {fault}")
            if not callers[number].endpoint.reached:
                work.stop.set(f"{fault}; no connection was made at all: is the server up, and its address right?")
        shift.progress.cell()

    timer = None
    if shift.wall_time_s is not None:
        over = f"limits.wall_time_s: the run has gone on for {shift.wall_time_s:g} s"
        timer = asyncio.get_running_loop().call_later(shift.wall_time_s, stop_all, over)
    try:
        async with asyncio.TaskGroup() as group:
            for number, cells in enumerate(shift.cells):
                for case, repeat in cells:
                    await open_at_once.acquire()
                    if works[number].stop.is_set:
                        open_at_once.release()
                        break
                    group.create_task(one(number, case, repeat))
                    await asyncio.sleep(0)
    except ExceptionGroup as errors:
        raise _first(errors) from errors
    finally:
        if timer is not None:
            timer.cancel()
        for endpoint in endpoints.values():
            await endpoint.finish()
        for work in works:
            close = getattr(work.interpreter, "aclose", None)
            if close is not None:
                await close()


def _caller(
    work: Work, endpoint: Endpoint, meter: Meter, progress: Progress, may_ask: Callable[[], Awaitable[None]]
) -> Caller:
    return Caller(
        work.interpreter,
        work.archive,
        work.config,
        StoredBlobs(work.folder),
        endpoint=endpoint,
        meter=meter,
        stop=work.stop,
        may_ask=may_ask,
        on_call=progress.call,
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

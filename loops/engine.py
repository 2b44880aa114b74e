"""Make runs: open or resume their archives, work through their cells, some at once, and stop cleanly.

What happens in a cell is the run's own: `loops.runner` sends a case through the graph, `benchmarks` sends an item
through a prompting strategy or a response to a judge. Attempts, limits, places at a server and resuming are the same.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evidence.contracts import Interpreter
from evidence.errors import ArchiveError, BudgetError, ConfigError, ReplyError, VcloopError
from interpreters.secrets import collect_secrets, redact
from loops.archive import Archive, RunRecord, read_blob
from loops.caller import Caller
from loops.collection import rare_collection
from loops.config import CommonConfig, Limits
from loops.endpoints import Endpoint
from loops.limits import LimitReached, Meter, Stop, Stopped
from loops.records import check_folder

Cell = tuple[str, int]
"""A case and a repeat."""


class Progress(NamedTuple):
    """Called as runs go on: `prepared` with the number of cells, `cell` after each, `call` after each attempt."""

    prepared: Callable[[int], None] = lambda total: None
    cell: Callable[[], None] = lambda: None
    call: Callable[[bool], None] = lambda live: None


class Outcome(NamedTuple):
    """How a run ended: its record, its summary, damaged lines found when it was resumed, and what stopped it."""

    record: RunRecord
    summary: dict[str, Any]
    damaged: list[str]
    error: VcloopError | None = None


class Work(ABC):
    """One run to make, and its state while it goes on."""

    def __init__(self, config: CommonConfig, interpreter: Interpreter, record: RunRecord, folder: Path):
        self.config = config
        self.interpreter = interpreter
        self.record = record
        self.folder = folder
        self.archive = Archive(folder)
        self.secrets = collect_secrets(interpreter)
        self.stop = Stop()
        self.faults: list[str] = []
        self.open_cells = 0

    @abstractmethod
    def prepare(self) -> None:
        """Check and compute everything that needs no archive. Raises before the folder is made."""

    @abstractmethod
    def open(self) -> list[Cell]:
        """Write what is known before the first call into the open archive; the cells that are not complete."""

    @abstractmethod
    def worker(self, caller: Caller) -> Callable[[str, int], Awaitable[str]]:
        """What works through one cell, and returns the fault of the server that left it open, or ""."""

    @abstractmethod
    def score(self) -> dict[str, Any]:
        """Write the scores from the archive; the summary."""

    def begin(self, resume: bool) -> None:
        """Write the record into the open archive. Raises ArchiveError where another run is there."""
        before = check_folder(self.folder, self.record, resume)  # again: another start may have come first
        if before is not None:
            self.record = self.record.model_copy(update={"started_at": before.started_at})
        self.archive.write_run(self.record)

    @property
    def reason(self) -> str:
        """Why the run is incomplete; empty where it is finished."""
        if self.stop.reason and self.open_cells:
            return self.stop.reason
        if not self.faults:
            return ""
        return (
            f"{len(self.faults)} cases had no reply within attempts.max_attempts, first {sorted(self.faults)[0]}; "
            "resume to try again"
        )

    def close(self, reason: str) -> None:
        """Write how the run ended."""
        status = "incomplete" if reason else "finished"
        self.record = self.record.model_copy(update={"status": status, "reason": redact(reason, self.secrets)})
        self.archive.write_run(self.record)


def make(work: Work, *, resume: bool = False, progress: Progress | None = None) -> Outcome:
    """Make or resume one run within the limits of its own config.

    Raises ArchiveError where the folder exists and `resume` is not set, or was started with something else; BudgetError
    and ReplyError where the server ends the run. A limit that is reached is no error: the record says `incomplete`.
    """
    config = work.config
    (outcome,) = make_all(
        [work], limits=config.limits, concurrency=config.concurrency, resume=resume, progress=progress
    )
    if outcome.error is not None:
        raise type(outcome.error)(
            f"{outcome.record.reason}\nResume with --resume; the run is in {work.folder}"
        ) from None
    return outcome


def make_all(
    works: Sequence[Work],
    *,
    limits: Limits,
    concurrency: int,
    resume: bool = False,
    progress: Progress | None = None,
    meter: Meter | None = None,
) -> list[Outcome]:
    """Make several runs at once. They share the limits, and those that ask the same server share its `concurrency`.

    Everything checkable is checked before a folder is made and before the first call. What a server does to one run
    leaves the others going; a limit that is reached stops all. `meter` counts the calls, where other processes make
    runs under the same limits.
    """
    import uvloop

    progress = progress or Progress()
    check_all(works, limits=limits, resume=resume)
    with contextlib.ExitStack() as stack:
        cells: list[tuple[Work, Cell]] = []
        for work in works:
            stack.enter_context(work.archive)
            work.begin(resume)
            own = work.open()
            work.open_cells = len(own)
            cells += [(work, cell) for cell in own]
        progress.prepared(len(cells))
        try:
            with rare_collection(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(
                    _work_through(works, cells, meter or Meter(limits), limits.wall_time_s, concurrency, progress)
                )
        except BaseException as error:
            stopped = isinstance(error, KeyboardInterrupt)
            reason = "interrupted" if stopped else str(error) or type(error).__name__
            for work in works:
                with contextlib.suppress(ArchiveError):  # a full disk: the first error says more
                    work.close(reason)
            raise
        for work in works:
            work.close(work.reason)
    return [Outcome(work.record, work.score(), work.archive.damaged, work.stop.error) for work in works]


def check_all(works: Sequence[Work], *, limits: Limits, resume: bool, calls_here: bool = True) -> None:
    """Check everything that can be checked before the first call, and prepare every run.

    `calls_here`: this process makes the calls, so that it needs the keys of the servers.
    """
    for work in works:
        check_folder(work.folder, work.record, resume)
    _check_prices(works, limits)
    for work in works:
        check = getattr(work.interpreter, "check", None)
        if check is not None and calls_here:
            check()
        work.prepare()


async def _work_through(
    works: Sequence[Work],
    cells: Sequence[tuple[Work, Cell]],
    meter: Meter,
    wall_time_s: float | None,
    concurrency: int,
    progress: Progress,
) -> None:
    """Work through the open cells of all runs, some at once."""
    endpoints: dict[str, Endpoint] = {}
    callers: dict[int, Caller] = {}
    workers: dict[int, Callable[[str, int], Awaitable[str]]] = {}

    def stop_all(reason: str) -> None:
        for work in works:
            work.stop.set(reason)

    for work in works:
        meter.past(work.archive.past, work.config.interpreter.prices)
        asked = work.record.interpreter
        endpoint = endpoints.setdefault(str(asked.get("base_url") or asked.get("name")), Endpoint(concurrency))
        callers[id(work)] = _caller(work, endpoint, meter, progress)
        workers[id(work)] = work.worker(callers[id(work)])
    open_at_once = asyncio.Semaphore(concurrency if concurrency == 1 else 2 * concurrency)

    async def one(work: Work, case: str, repeat: int) -> None:
        async with open_at_once:
            try:
                work.stop.check()
                fault = await workers[id(work)](case, repeat)
            except LimitReached as limit:
                stop_all(str(limit))
                return
            except Stopped:
                return
            except (BudgetError, ReplyError) as error:
                work.stop.set(redact(str(error), work.secrets), error)
                return
        work.open_cells -= 1
        if fault:
            work.faults.append(f"case {case}: {fault}")
            if not callers[id(work)].endpoint.reached:
                work.stop.set(f"{fault}; no connection was made at all: is the server up, and its address right?")
        progress.cell()

    timer = None
    if wall_time_s is not None:
        over = f"limits.wall_time_s: the run has gone on for {wall_time_s:g} s"
        timer = asyncio.get_running_loop().call_later(wall_time_s, stop_all, over)
    try:
        async with asyncio.TaskGroup() as group:
            for work, (case, repeat) in cells:
                group.create_task(one(work, case, repeat))
    except ExceptionGroup as errors:
        raise _first(errors) from errors
    finally:
        if timer is not None:
            timer.cancel()
        for caller in callers.values():
            await caller.finish()
        for work in works:
            close = getattr(work.interpreter, "aclose", None)
            if close is not None:
                await close()


def _caller(work: Work, endpoint: Endpoint, meter: Meter, progress: Progress) -> Caller:
    return Caller(
        work.interpreter,
        work.archive,
        work.config,
        StoredBlobs(work.folder),
        endpoint=endpoint,
        meter=meter,
        stop=work.stop,
        on_call=progress.call,
        redact=lambda text: redact(text, work.secrets),
    )


def _check_prices(works: Sequence[Work], limits: Limits) -> None:
    """A limit of cost needs the price of every model, in one currency."""
    if limits.cost is None:
        return
    metered = [work for work in works if getattr(work.interpreter, "metered", True)]
    prices = {work.config.name: work.config.interpreter.prices for work in metered}
    free = sorted(name for name, price in prices.items() if price is None)
    if free:
        raise ConfigError(
            "limits.cost needs interpreter.prices (prompt and completion, per million tokens) in " + ", ".join(free)
        )
    currencies = sorted({price.currency for price in prices.values() if price is not None})
    if len(currencies) > 1:
        raise ConfigError(f"limits.cost needs prices in one currency, got {', '.join(currencies)}")


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

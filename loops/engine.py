"""Make runs: open or resume their archives, have their cells worked through, and close them with their scores."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Sequence
from typing import Any, NamedTuple

from evidence.errors import ArchiveError, ConfigError, VcloopError, kind_of
from loops.archive import RunRecord
from loops.config import Limits
from loops.ledger import SharedMeter
from loops.limits import Meter
from loops.processes import check_processes, how_many, make_cells_in
from loops.records import check_folder
from loops.shift import Shift, make_cells
from loops.work import Progress, Work


class Outcome(NamedTuple):
    """How a run ended: its record, its summary, damaged lines found when it was resumed, and what stopped it."""

    record: RunRecord
    summary: dict[str, Any]
    damaged: list[str]
    error: VcloopError | None = None


def make(work: Work, *, resume: bool = False, progress: Progress | None = None) -> Outcome:
    """Make or resume one run within the limits of its own config.

    Raises ArchiveError where the folder exists and `resume` is not set, or was started with something else; BudgetError
    and ReplyError where the server ends the run. A limit that is reached is no error: the record says `incomplete`.
    """
    config = work.config
    (outcome,) = make_all(
        [work],
        limits=config.limits,
        concurrency=config.concurrency,
        processes=config.processes,
        resume=resume,
        progress=progress,
    )
    if outcome.error is not None:
        raise kind_of(outcome.error)(
            f"{outcome.record.reason}\nResume with --resume; the run is in {work.folder}"
        ) from None
    return outcome


def make_all(
    works: Sequence[Work],
    *,
    limits: Limits,
    concurrency: int,
    processes: int | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    meter: Meter | None = None,
) -> list[Outcome]:
    """Make several runs at once. They share the limits, and those that ask the same server share its `concurrency`.

    Everything checkable is checked before a folder is made and before the first call. What a server does to one run
    leaves the others going; a limit that is reached stops all. `processes`: how many work through the cells; as many
    as are of use, where it is None. `meter` counts the calls, where processes elsewhere make runs under the same
    limits; this one then does so alone.
    """
    progress = progress or Progress()
    processes = processes if meter is None else 1
    check_all(works, limits=limits, resume=resume)
    check_processes(processes, works)
    with contextlib.ExitStack() as stack:
        cells = []
        for work in works:
            stack.enter_context(work.archive)
            work.begin(resume)
            cells.append(work.open())
        n_cells = sum(map(len, cells))
        progress.prepared(n_cells)
        n = how_many(processes, works, n_cells, concurrency)
        if n > 1 and limits.counted:
            meter = stack.enter_context(SharedMeter(limits))
        meter = meter or Meter(limits)
        for work in works:
            meter.past(work.archive.past, work.config.interpreter.prices)
        reached = memoryview(bytearray(len(works)) if n == 1 else mmap.mmap(-1, len(works)))
        shift = Shift(works, cells, meter, limits.wall_time_s, concurrency, progress, reached)
        try:
            if n == 1:
                make_cells(shift)
            else:
                make_cells_in(n, shift)
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

"""Run configs: check everything, open or resume the archives, send every case through the graph, rescore."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from evidence.errors import ArchiveError, BudgetError, ConfigError, ReplyError, VcloopError
from evidence.values import canonical_json
from interpreters.secrets import collect_secrets, redact
from loops.archive import Archive, Opened, RunRecord, read_blob
from loops.caller import Caller
from loops.cells import group_events
from loops.config import Limits, Loaded, RunConfig
from loops.endpoints import Endpoint
from loops.limits import LimitReached, Meter, Stop, Stopped
from loops.nodes import Steps
from loops.prepare import Prepared, Ready, affordable, check_interpreter, prepare
from loops.records import check_folder, run_record
from loops.rescore import rescore


class Progress(NamedTuple):
    """Called as runs go on: `prepared` with the number of cells, `cell` after each, `call` after each attempt."""

    prepared: Callable[[int], None] = lambda total: None
    cell: Callable[[], None] = lambda: None
    call: Callable[[bool], None] = lambda live: None


class Job(NamedTuple):
    """One run to make: its config, loaded, and its folder."""

    loaded: Loaded
    folder: Path


class Outcome(NamedTuple):
    """How a run ended: its record, its summary, damaged lines found when it was resumed, and what stopped it."""

    record: RunRecord
    summary: dict[str, Any]
    damaged: list[str]
    error: VcloopError | None = None


def run(loaded: Loaded, folder: Path, *, resume: bool = False, progress: Progress | None = None) -> Outcome:
    """Run or resume one config. Everything checkable is checked before the folder is made and before the first call.

    Raises ArchiveError where the folder exists and `resume` is not set, or has another config, case file or data;
    BudgetError and ReplyError where the server ends the run. A limit of the config that is reached is no error: the
    record says `incomplete` and why.
    """
    config = loaded.config
    (outcome,) = run_all(
        [Job(loaded, folder)], limits=config.limits, concurrency=config.concurrency, resume=resume, progress=progress
    )
    if outcome.error is not None:
        raise type(outcome.error)(f"{outcome.record.reason}\nResume with --resume; the run is in {folder}") from None
    return outcome


def run_all(
    jobs: Sequence[Job],
    *,
    limits: Limits,
    concurrency: int,
    resume: bool = False,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Make several runs at once. They share the limits, and those that ask the same server share its `concurrency`.

    What a server does to one run leaves the others going; a limit that is reached stops all.
    """
    progress = progress or Progress()
    runs = [_Run(job, run_record(job.loaded, collect_secrets(job.loaded.interpreter))) for job in jobs]
    for run in runs:
        check_folder(run.folder, run.record, resume)
    _check_prices(runs, limits)
    ready: dict[str, Ready] = {}
    for run in runs:
        check_interpreter(run.loaded)
        key = _preparation(run.loaded)
        if key not in ready:
            ready[key] = prepare(run.loaded)
        run.ready = ready[key]
        _check_budget(run.ready, run.loaded)
    with contextlib.ExitStack() as stack:
        for run in runs:
            stack.enter_context(run.archive)
            before = check_folder(run.folder, run.record, resume)  # again: another start may have come first
            if before is not None:
                run.record = run.record.model_copy(update={"started_at": before.started_at})
            run.open()
        progress.prepared(sum(len(run.cells) for run in runs))
        try:
            asyncio.run(_run_cells(runs, limits, concurrency, progress))
        except BaseException as error:
            for run in runs:
                with contextlib.suppress(ArchiveError):  # a full disk: the first error says more
                    run.close(str(error) or type(error).__name__)
            raise
        for run in runs:
            run.close(run.reason)
    return [Outcome(run.record, rescore(run.folder), run.archive.damaged, run.stop.error) for run in runs]


@dataclass
class _Run:
    """One run while it goes on."""

    job: Job
    record: RunRecord
    ready: Ready | None = None
    cells: list[tuple[str, int]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    stop: Stop = field(default_factory=Stop)

    def __post_init__(self) -> None:
        self.loaded, self.folder = self.job
        self.archive = Archive(self.folder)
        self.secrets = collect_secrets(self.loaded.interpreter)

    def open(self) -> None:
        assert self.ready is not None  # noqa: S101 - prepared before anything is opened
        self.archive.write_run(self.record)
        for prepared in self.ready.cases:
            self.archive.add_event(_opened(prepared, self.archive))
        self.cells = _open_cells(self.folder, self.record, self.loaded.config)

    @property
    def reason(self) -> str:
        """Why the run is incomplete; empty where it is finished."""
        if self.stop.reason:
            return self.stop.reason
        if not self.faults:
            return ""
        return (
            f"{len(self.faults)} cases had no reply within attempts.max_attempts, first {sorted(self.faults)[0]}; "
            "resume to try again"
        )

    def close(self, reason: str) -> None:
        status = "incomplete" if reason else "finished"
        self.record = self.record.model_copy(update={"status": status, "reason": redact(reason, self.secrets)})
        self.archive.write_run(self.record)


async def _run_cells(runs: Sequence[_Run], limits: Limits, concurrency: int, progress: Progress) -> None:
    """Send the open cells of all runs through their graphs, some at once."""
    from loops.graph import initial_state  # langgraph is imported when a run needs it

    meter = Meter(limits)
    endpoints: dict[str, Endpoint] = {}
    callers = []
    cells = []

    def stop_all(reason: str) -> None:
        for run in runs:
            run.stop.set(reason)

    for run in runs:
        meter.past(run.archive.past, run.loaded.config.interpreter.prices)
        asked = run.record.interpreter
        endpoint = endpoints.setdefault(str(asked.get("base_url") or asked.get("name")), Endpoint(concurrency))
        caller = _caller(run, endpoint, meter, progress)
        callers.append(caller)
        graph = _graph(run, caller)
        cells += [(run, graph, case, repeat) for case, repeat in run.cells]
    open_at_once = asyncio.Semaphore(concurrency if concurrency == 1 else 2 * concurrency)

    async def one(run: _Run, graph: Any, case: str, repeat: int) -> None:
        async with open_at_once:
            try:
                run.stop.check()
                final = await graph.ainvoke(initial_state(case, repeat))
            except LimitReached as limit:
                stop_all(str(limit))
                return
            except Stopped:
                return
            except (BudgetError, ReplyError) as error:
                run.stop.set(redact(str(error), run.secrets), error)
                return
        fault = final.get("fault") or final.get("review_fault")
        if fault:
            run.faults.append(f"case {case}: {fault}")
        progress.cell()

    timer = None
    if limits.wall_time_s is not None:
        over = f"limits.wall_time_s: the run has gone on for {limits.wall_time_s:g} s"
        timer = asyncio.get_running_loop().call_later(limits.wall_time_s, stop_all, over)
    try:
        async with asyncio.TaskGroup() as group:
            for cell in cells:
                group.create_task(one(*cell))
    except ExceptionGroup as errors:
        raise _first(errors) from errors
    finally:
        if timer is not None:
            timer.cancel()
        for caller in callers:
            await caller.finish()
        for run in runs:
            close = getattr(run.loaded.interpreter, "aclose", None)
            if close is not None:
                await close()


def _caller(run: _Run, endpoint: Endpoint, meter: Meter, progress: Progress) -> Caller:
    return Caller(
        run.loaded.interpreter,
        run.archive,
        run.loaded.config,
        StoredBlobs(run.folder),
        endpoint=endpoint,
        meter=meter,
        stop=run.stop,
        on_call=progress.call,
        redact=lambda text: redact(text, run.secrets),
    )


def _graph(run: _Run, caller: Caller) -> Any:
    from loops.graph import build_graph

    assert run.ready is not None  # noqa: S101 - prepared before anything is opened
    config = run.loaded.config
    steps = Steps(
        config=config,
        setting=run.ready.setting,
        cases={p.case.id: p for p in run.ready.cases},
        adapter=run.loaded.adapter,
        policy=run.loaded.policy,
        caller=caller,
        archive=run.archive,
        modalities=[m for m in config.modalities if m in run.loaded.interpreter.modalities],
    )
    return build_graph(steps, review=config.review, measurements=config.budget.measurements)


def _preparation(loaded: Loaded) -> str:
    """Runs with the same text here are prepared once: cases, predictions and sealed outcomes do not depend on more."""
    c = loaded.config
    parts = (c.simulator, c.adapter, c.seed)
    return canonical_json(
        {
            "cases": loaded.case_sha256,
            "data": str(loaded.data),
            "rest": [None if p is None else p if isinstance(p, int) else p.model_dump(mode="json") for p in parts],
        }
    )


def _check_prices(runs: Sequence[_Run], limits: Limits) -> None:
    """A limit of cost needs the price of every model, in one currency."""
    if limits.cost is None:
        return
    prices = {run.loaded.config.name: run.loaded.config.interpreter.prices for run in runs}
    free = sorted(name for name, price in prices.items() if price is None)
    if free:
        raise ConfigError(
            f"limits.cost needs interpreter.prices (prompt and completion, per million tokens) in {free[0]!r}"
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


def _check_budget(ready: Ready, loaded: Loaded) -> None:
    for prepared in ready.cases:
        if not affordable([], prepared.case, loaded.config.budget.cost):
            cheapest = min(m.cost for m in prepared.case.menu)
            raise ConfigError(
                f"budget.cost {loaded.config.budget.cost:g} pays no measurement of case {prepared.case.id!r}; "
                f"the cheapest costs {cheapest:g}"
            )


def _opened(prepared: Prepared, archive: Archive) -> Opened:
    inputs = ""
    if prepared.inputs is not None:
        inputs = archive.add_blob(prepared.inputs.model_dump_json().encode())
    return Opened(
        case=prepared.case,
        truth=prepared.truth,
        sealed=tuple(prepared.sealed[m.id].observation for m in prepared.case.menu),
        baselines=dict(prepared.baselines),
        adapter_inputs=inputs,
    )


def _open_cells(folder: Path, record: RunRecord, config: RunConfig) -> list[tuple[str, int]]:
    parts = group_events(folder, record).parts
    cells = [(case, repeat) for case in record.cases for repeat in range(config.repeats)]
    return [cell for cell in cells if cell not in parts or not parts[cell].whole(config.review)]

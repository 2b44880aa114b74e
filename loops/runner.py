"""Run loop configs: prepare their cases, send every case through the graph, rescore."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evidence.errors import ConfigError
from evidence.values import canonical_json
from interpreters.secrets import collect_secrets
from loops.archive import Archive, Opened
from loops.caller import Caller
from loops.config import Limits, Loaded
from loops.engine import Outcome, make, make_all
from loops.limits import Meter
from loops.nodes import Steps
from loops.prepare import Prepared, Ready, affordable, prepare
from loops.records import run_record
from loops.rescore import rescore
from loops.run_events import open_cells
from loops.work import Cell, Progress, Work


class Job(NamedTuple):
    """One run to make: its config, loaded, and its folder."""

    loaded: Loaded
    folder: Path


def run(loaded: Loaded, folder: Path, *, resume: bool = False, progress: Progress | None = None) -> Outcome:
    """Run or resume one config; raises what `loops.engine.make` raises."""
    return make(_Loop(Job(loaded, folder), {}), resume=resume, progress=progress)


def run_all(
    jobs: Sequence[Job],
    *,
    limits: Limits,
    concurrency: int,
    processes: int | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    meter: Meter | None = None,
    patience_s: float = 0.0,
) -> list[Outcome]:
    """Make several runs at once, as `loops.engine.make_all` does; cases that are the same are prepared once.

    `patience_s`: how long to wait for another process that has a run open.
    """
    works = works_of(jobs)
    for work in works:
        work.archive.patience_s = patience_s
    return make_all(
        works,
        limits=limits,
        concurrency=concurrency,
        processes=processes,
        resume=resume,
        progress=progress,
        meter=meter,
    )


def works_of(jobs: Sequence[Job]) -> list[Work]:
    """The runs as the engine makes them; cases that are the same are prepared once."""
    ready: dict[str, Ready] = {}
    return [_Loop(job, ready) for job in jobs]


class _Loop(Work):
    """A run of the loop."""

    def __init__(self, job: Job, shared: dict[str, Ready]):
        loaded, folder = job
        record = run_record(loaded, collect_secrets(loaded.interpreter))
        super().__init__(loaded.config, loaded.interpreter, record, folder)
        self.loaded = loaded
        self._shared = shared

    @property
    def ready(self) -> Ready:
        """The prepared cases."""
        return self._shared[_preparation(self.loaded)]

    def prepare(self) -> None:
        import loops.graph  # noqa: F401 - langgraph is slow to import: only a run pays for it, not while calls wait

        key = _preparation(self.loaded)
        if key not in self._shared:
            self._shared[key] = prepare(self.loaded)
        _check_budget(self.ready, self.loaded)

    def open(self) -> list[Cell]:
        for prepared in self.ready.cases:
            self.archive.add_event(_opened(prepared, self.archive))
        return open_cells(self.folder, self.record, self.loaded.config)

    def worker(self, caller: Caller) -> Callable[[str, int], Awaitable[str]]:
        from loops.graph import build_graph, work_through

        config = self.loaded.config
        steps = Steps(
            config=config,
            setting=self.ready.setting,
            cases={p.case.id: p for p in self.ready.cases},
            adapter=self.loaded.adapter,
            policy=self.loaded.policy,
            caller=caller,
            archive=self.archive,
            modalities=[m for m in config.modalities if m in self.interpreter.modalities],
        )
        graph = build_graph(steps, review=config.review, measurements=config.budget.measurements)

        async def one(case: str, repeat: int) -> str:
            await work_through(graph, case, repeat)
            return steps.left_open.pop((case, repeat), "")

        return one

    def score(self) -> dict[str, Any]:
        return rescore(self.folder)


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


def _check_budget(ready: Ready, loaded: Loaded) -> None:
    for prepared in ready.cases:
        if not affordable([], prepared.case.menu, loaded.config.budget.cost):
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

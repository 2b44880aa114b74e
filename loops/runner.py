"""Run a config: check everything, open or resume the archive, send every case through the graph, rescore."""

from __future__ import annotations

import asyncio
import datetime
import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from evidence.errors import ArchiveError, BudgetError, ConfigError, ReplyError, VcloopError
from interpreters.secrets import collect_secrets, redact, redact_config
from loops.archive import Archive, Closed, Opened, RunRecord, read_events, read_run
from loops.caller import Caller
from loops.config import NOT_PART_OF_THE_RESULT, Loaded
from loops.nodes import Steps
from loops.prepare import Prepared, Ready, affordable, prepare
from loops.rescore import rescore

PACKAGES = ("vcloop", "langgraph", "matplotlib", "networkx", "numpy", "openai", "pydantic", "scipy")


class Progress(NamedTuple):
    """Called as a run goes on: `prepared` with the number of cells, `cell` after each, `call` after each attempt."""

    prepared: Callable[[int], None] = lambda total: None
    cell: Callable[[], None] = lambda: None
    call: Callable[[bool], None] = lambda live: None


class Outcome(NamedTuple):
    """How a run ended: its record, its summary, and damaged lines that were found when it was resumed."""

    record: RunRecord
    summary: dict[str, Any]
    damaged: list[str]


def run(loaded: Loaded, folder: Path, *, resume: bool = False, progress: Progress | None = None) -> Outcome:
    """Run or resume. Everything checkable is checked before the folder is made and before the first model call.

    Raises ArchiveError where the folder exists and `resume` is not set, or has another config, case file or data.
    """
    progress = progress or Progress()
    secrets = collect_secrets(loaded.interpreter)
    record = _record(loaded, secrets)
    before = _check_folder(folder, record, resume)
    ready = prepare(loaded)
    _check_budget(ready, loaded)
    folder.mkdir(parents=True, exist_ok=True)
    with Archive(folder, redact=lambda text: redact(text, secrets)) as archive:
        record = record if before is None else record.model_copy(update={"started_at": before.started_at})
        archive.write_run(record)
        for prepared in ready.cases:
            archive.add_event(_opened(prepared, archive))
        cells = _open_cells(folder, record, loaded.config.repeats)
        progress.prepared(len(cells))
        try:
            reason = asyncio.run(_run_cells(loaded, ready, archive, cells, progress))
        except BaseException as error:
            archive.write_run(record.model_copy(update={"status": "incomplete", "reason": redact(str(error), secrets)}))
            if isinstance(error, BudgetError | ReplyError):
                raise type(error)(
                    redact(str(error), secrets) + f"\nResume with --resume; the run is in {folder}"
                ) from None
            raise
        status = "incomplete" if reason else "finished"
        record = record.model_copy(update={"status": status, "reason": reason})
        archive.write_run(record)
        damaged = archive.damaged
    return Outcome(record, rescore(folder), damaged)


async def _run_cells(
    loaded: Loaded, ready: Ready, archive: Archive, cells: list[tuple[str, int]], progress: Progress
) -> str:
    """Send the open cells through the graph, some at once. Returns why the run is incomplete, if it is."""
    from loops.graph import build_graph, initial_state  # the one import of langgraph, when a run needs it

    config = loaded.config
    caller = Caller(
        loaded.interpreter, archive, config.attempts, StoredBlobs(archive.folder / "blobs"), on_call=progress.call
    )
    steps = Steps(
        config=config,
        setting=ready.setting,
        cases={p.case.id: p for p in ready.cases},
        adapter=loaded.adapter,
        policy=loaded.policy,
        caller=caller,
        archive=archive,
        modalities=[m for m in config.modalities if m in loaded.interpreter.modalities],
    )
    graph = build_graph(steps, review=config.review, measurements=config.budget.measurements)
    places = asyncio.Semaphore(config.concurrency)
    faults: list[str] = []

    async def one(case: str, repeat: int) -> None:
        async with places:
            final = await graph.ainvoke(initial_state(case, repeat))
        fault = final.get("fault") or final.get("review_fault")
        if fault:
            faults.append(f"case {case}: {fault}")
        progress.cell()

    try:
        async with asyncio.TaskGroup() as group:
            for case, repeat in cells:
                group.create_task(one(case, repeat))
    except ExceptionGroup as errors:
        raise _first(errors) from errors
    finally:
        close = getattr(loaded.interpreter, "aclose", None)
        if close is not None:
            await close()
    if not faults:
        return ""
    return (
        f"{len(faults)} cases had no reply within attempts.max_attempts, first {sorted(faults)[0]}; resume to try again"
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
    """Figures by sha256, read from the archive when an interpreter sends them."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __getitem__(self, sha256: str) -> bytes:
        return (self.folder / sha256).read_bytes()

    def __iter__(self) -> Iterator[str]:
        return (path.name for path in self.folder.iterdir())

    def __len__(self) -> int:
        return sum(1 for _ in self.folder.iterdir())


def _check_folder(folder: Path, record: RunRecord, resume: bool) -> RunRecord | None:
    """The record of the run that is there already, after checking that it may be resumed."""
    if not (folder / "run.json").exists():
        if folder.exists() and any(folder.iterdir()):
            raise ArchiveError(f"{folder} exists and is not a run; choose another --name")
        return None
    if not resume:
        raise ArchiveError(f"run {folder} exists: continue it with --resume, or choose another --name")
    before = read_run(folder)
    differences = list(_differences(_decisive(before), _decisive(record)))
    if differences:
        raise ArchiveError(
            f"{folder} was started with something else and cannot be resumed:\n  " + "\n  ".join(differences)
        )
    return before


def _decisive(record: RunRecord) -> dict[str, Any]:
    config = {k: v for k, v in record.config.items() if k not in NOT_PART_OF_THE_RESULT}
    return {
        "config": config,
        "case file": record.case_file_sha256,
        "data": record.data,
        "interpreter": record.interpreter,
        "simulator": record.simulator,
    }


def _differences(before: Any, now: Any, place: str = "") -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted({*before, *now}):
            yield from _differences(before.get(key), now.get(key), f"{place}.{key}".lstrip("."))
    elif before != now:
        yield f"{place}: was {json.dumps(before)}, now {json.dumps(now)}"


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


def _open_cells(folder: Path, record: RunRecord, repeats: int) -> list[tuple[str, int]]:
    closed = {(e.case, e.repeat) for e in read_events(folder)[0] if isinstance(e, Closed)}
    return [(case, repeat) for case in record.cases for repeat in range(repeats) if (case, repeat) not in closed]


def _record(loaded: Loaded, secrets: frozenset[str]) -> RunRecord:
    config = redact_config(loaded.config.model_dump(mode="json"), secrets)
    return RunRecord(
        status="started",
        name=loaded.config.name,
        setting=loaded.case_file.setting,
        title=loaded.case_file.title,
        synthetic=loaded.case_file.synthetic,
        case_file=Path(loaded.config.cases).name,
        case_file_sha256=loaded.case_sha256,
        data=loaded.case_file.data,
        cases=tuple(case.id for case in loaded.case_file.cases),
        config=config,
        interpreter=redact_config(loaded.interpreter.identity(), secrets),
        simulator=_identity(loaded.simulator),
        versions={"python": platform.python_version(), **{p: importlib.metadata.version(p) for p in PACKAGES}},
        commit=_commit(),
        started_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def _identity(simulator: Any) -> dict[str, Any]:
    """What a simulator says of itself, such as the hash of the table it answers from."""
    identity = getattr(simulator, "identity", None)
    return {} if identity is None else dict(identity())


def _commit() -> str | None:
    """The commit of the checkout that this code runs from; None where it runs from an installed package."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    asked = subprocess.run(  # noqa: S603 - a fixed command
        ["git", "-C", str(root), "rev-parse", "HEAD"],  # noqa: S607 - git is found on PATH like everywhere
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() or None if asked.returncode == 0 else None

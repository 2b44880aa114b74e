"""What a run is: its record, and whether a folder holds the same run already."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evidence.contracts import Interpreter
from evidence.errors import ArchiveError
from interpreters.secrets import redact_config
from loops.archive import RunRecord, read_run
from loops.config import NOT_PART_OF_THE_RESULT, CommonConfig, Loaded

PACKAGES = ("vcloop", "langgraph", "matplotlib", "networkx", "numpy", "openai", "pydantic", "scipy")


def started(config: CommonConfig, interpreter: Interpreter, secrets: frozenset[str], **facts: Any) -> RunRecord:
    """The record of a run that starts now; `facts` are what it runs on (title, cases, data ...)."""
    return RunRecord(
        status="started",
        name=config.name,
        config=redact_config(config.model_dump(mode="json"), secrets),
        interpreter=redact_config(interpreter.identity(), secrets),
        versions=package_versions(),
        commit=_commit(),
        started_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **facts,
    )


def package_versions() -> dict[str, str]:
    """The versions of Python and of the packages that scores depend on."""
    return {"python": platform.python_version(), **{p: importlib.metadata.version(p) for p in PACKAGES}}


def run_record(loaded: Loaded, secrets: frozenset[str]) -> RunRecord:
    """The record of a run of the loop."""
    return started(
        loaded.config,
        loaded.interpreter,
        secrets,
        setting=loaded.case_file.setting,
        title=loaded.case_file.title,
        synthetic=loaded.case_file.synthetic,
        case_file=Path(loaded.config.cases).name,
        case_file_sha256=loaded.case_sha256,
        data=loaded.case_file.data,
        cases=tuple(case.id for case in loaded.case_file.cases),
        simulator=_identity(loaded.simulator),
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
    try:
        asked = subprocess.run(  # noqa: S603 - a fixed command
            ["git", "-C", str(root), "rev-parse", "HEAD"],  # noqa: S607 - git is found on PATH like everywhere
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return asked.stdout.strip() or None if asked.returncode == 0 else None


def check_folder(folder: Path, record: RunRecord, resume: bool) -> RunRecord | None:
    """The record of the run that is there already, after checking that it may be resumed."""
    if not (folder / "run.json").exists():
        if folder.exists() and not folder.is_dir():
            raise ArchiveError(f"{folder} is a file; choose another --name")
        if folder.is_dir() and any(path.name not in (".lock", "blobs") for path in folder.iterdir()):
            raise ArchiveError(f"{folder} exists and is not a run; choose another --name")
        return None
    if not resume:
        raise ArchiveError(f"run {folder} exists: continue it with --resume, or choose another --name")
    before = read_run(folder, record.kind)
    differences = list(_differences(_decisive(before), _decisive(record)))
    if differences:
        raise ArchiveError(
            f"{folder} was started with something else and cannot be resumed:\n  " + "\n  ".join(differences)
        )
    return before


def _decisive(record: RunRecord) -> dict[str, Any]:
    config = {k: v for k, v in record.config.items() if k not in NOT_PART_OF_THE_RESULT}
    config["interpreter"] = {k: v for k, v in config["interpreter"].items() if k != "prices"}
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

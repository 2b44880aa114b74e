"""What a run is to the engine: something that opens cells, works through one, and is scored from its archive.

What happens in a cell is the run's own: `loops.runner` sends a case through the graph, `benchmarks` sends an item
through a prompting strategy or a response to a judge.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from evidence.contracts import Interpreter
from interpreters.secrets import collect_secrets, redact
from loops.archive import Archive, RunRecord
from loops.caller import Caller
from loops.config import CommonConfig
from loops.limits import Stop
from loops.records import check_folder

Cell = tuple[str, int]
"""A case and a repeat."""


class Progress(NamedTuple):
    """Called as runs go on: `prepared` with the number of cells, `cell` after each, `call` after each attempt."""

    prepared: Callable[[int], None] = lambda total: None
    cell: Callable[[], None] = lambda: None
    call: Callable[[bool], None] = lambda live: None


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

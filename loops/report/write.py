"""Write a report: one folder of pages, trace data in chunks and figures, which needs no network and no server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evidence.contracts import Figure
from evidence.errors import ArchiveError, ConfigError
from loops.archive import read_blob, read_run
from loops.beside import read_summary, static_beside_loop
from loops.report.collect import Run, Tally, collect, pilots
from loops.report.files import MARKER, check_out, marker, script, whole_folder
from loops.report.pages import Pages
from loops.report.traces import Messages, TraceReader

VERSION = 1
CHUNK = 200_000
"""Characters of trace data in one file, beyond its last case: quick to load, and few enough files."""
SUFFIXES = {"image/png": ".png", "image/jpeg": ".jpg"}
STARTS = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}


class Written(NamedTuple):
    """What was written: the folder, and how many cases (a case of two runs counts once) and figures it shows."""

    out: Path
    n_cases: int
    n_figures: int


def write_report(folders: Sequence[Path], out: Path) -> Written:
    """Write the report of these runs. The same archives give the same bytes.

    Runs of static benchmarks and of their judges are set beside the loop gains of the same models. Raises ArchiveError
    where a folder is no run, or where `out` is something else than a report; nothing is written then.
    """
    check_out(out, [folder.resolve() for folder in folders])
    static = [folder for folder in folders if read_run(folder, None).kind != "loop"]
    runs = collect([folder for folder in folders if folder not in static])
    target = check_out(out, [run.folder for run in runs])
    with whole_folder(target) as folder:
        figures = Figures(folder / "figures")
        cases = CaseIndex()
        (folder / "data").mkdir()
        for run in runs:
            _write_traces(run, folder / "data", figures, cases)
        shown = pilots(runs)
        numbers = {pilot.setting: n for n, pilot in enumerate(shown)}
        index = {
            "runs": [
                {
                    "label": run.label,
                    "model": run.model,
                    "title": run.record.title,
                    "pilot": numbers[run.record.setting],
                    "synthetic": run.record.synthetic,
                    "repeats": run.config.repeats,
                }
                for run in runs
            ],
            "pilots": [pilot.title for pilot in shown],
            "outcomes": cases.outcomes,
            "cases": cases.rows,
            "unreadable": sorted(figures.unreadable.items()),
        }
        (folder / "data" / "cases.js").write_bytes(script("index", index))
        pages = Pages()
        (folder / "index.html").write_text(pages.index(shown, len(cases.rows), _beside(static, runs)), encoding="utf-8")
        (folder / "traces.html").write_text(pages.traces(), encoding="utf-8")
        (folder / MARKER).write_bytes(marker(VERSION, [run.label for run in runs]))
    return Written(target, len(cases.rows), figures.count)


def _beside(static: Sequence[Path], runs: Sequence[Run]) -> Mapping[str, Any] | None:
    if not static:
        return None
    try:
        return static_beside_loop([read_summary(folder) for folder in static], [run.summary for run in runs])
    except ConfigError as error:  # two runs of one model, say: the rest of the report stands
        return {"rows": [], "reason": str(error)}


class CaseIndex:
    """The list of cases. A case of several runs is one row if the runs share the case file.

    A row is [id, title, [[run, chunk, outcomes, *tally], ...]]; the outcomes are bits of `self.outcomes`.
    """

    def __init__(self) -> None:
        self.rows: list[list[object]] = []
        self.outcomes: list[str] = []
        self._numbers: dict[tuple[str, str, str], int] = {}

    def number(self, run: Run, case: str, title: str) -> int:
        """The number of the case's row, new or known."""
        key = (run.record.setting, run.record.case_file_sha256, case)
        if key not in self._numbers:
            self._numbers[key] = len(self.rows)
            self.rows.append([case, title, []])
        return self._numbers[key]

    def add(self, number: int, run: Run, chunk: int, outcomes: Sequence[str], tally: Tally) -> None:
        """Add what a run made of the case."""
        self.outcomes += [name for name in dict.fromkeys(outcomes) if name not in self.outcomes]
        bits = sum(1 << self.outcomes.index(name) for name in set(outcomes))
        entries = self.rows[number][2]
        assert isinstance(entries, list)  # noqa: S101 - rows are made above
        entries.append([run.number, chunk, bits, *tally])


class Figures:
    """The figures of the report, each copied once. `unreadable` says why one could not be."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.unreadable: dict[str, str] = {}
        self.count = 0
        self._seen: set[str] = set()
        folder.mkdir()

    def copy(self, run: Path, figure: Figure) -> None:
        """Copy a figure out of a run, unless it is there already."""
        if figure.sha256 in self._seen:
            return
        try:
            data = read_blob(run, figure.sha256)
        except ArchiveError:
            self.unreadable[figure.sha256] = "missing or damaged in the archive"
            return
        if not data.startswith(STARTS[figure.media_type]):
            self.unreadable[figure.sha256] = f"not {figure.media_type}"
            return
        (self.folder / (figure.sha256 + SUFFIXES[figure.media_type])).write_bytes(data)
        self.unreadable.pop(figure.sha256, None)
        self._seen.add(figure.sha256)
        self.count += 1


def _write_traces(run: Run, folder: Path, figures: Figures, cases: CaseIndex) -> None:
    """Write the traces of a run in chunks of about CHUNK characters, and add its cases to the list."""
    reader = TraceReader(run.folder, run.record, run.config)
    messages, size, chunk = Messages(), 0, 0
    traces: list[list[object]] = []

    def write() -> None:
        for figure in messages.figures.values():
            figures.copy(run.folder, figure)
        content = {"messages": messages.items, "cases": traces}
        (folder / f"r{run.number}-{chunk}.js").write_bytes(script("chunk", run.number, chunk, content))

    for case in run.record.cases:
        trace = reader.read(case, messages)
        number = cases.number(run, case, trace.title)
        cases.add(number, run, chunk, trace.outcomes, run.tallies.get(case, Tally()))
        traces.append([number, trace.data])
        size += len(json.dumps(trace.data))
        if size + messages.size > CHUNK:
            write()
            messages, traces, size, chunk = Messages(), [], 0, chunk + 1
    if traces:
        write()

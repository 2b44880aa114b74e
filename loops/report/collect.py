"""What a report shows of its runs: scores recomputed from each archive, tallies by case, runs grouped by pilot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evidence.errors import ArchiveError
from loops.archive import RunRecord, read_run
from loops.cells import STAGES, archived_config
from loops.config import RunConfig
from loops.report.panels import Choices, count_choices
from loops.report.published import PUBLISHED, Published
from loops.rescore import compute_scores
from loops.table import interpreter_name


class Tally(NamedTuple):
    """One case of a run, all repeats together: readouts, right answers by stage, changes, answers without a label."""

    n: int = 0
    initial: int = 0
    reviewed: int = 0
    revised: int = 0
    corrections: int = 0
    regressions: int = 0
    missing: int = 0


class Run(NamedTuple):
    """One run of the report. `label` names it on the page: its name, with a number where two runs share it."""

    number: int
    label: str
    model: str
    folder: Path
    record: RunRecord
    config: RunConfig
    summary: dict[str, Any]
    tallies: Mapping[str, Tally]
    choices: Choices


class Pilot(NamedTuple):
    """The runs of one setting, and what is published of it."""

    setting: str
    title: str
    published: Published | None
    runs: tuple[Run, ...]


def collect(folders: Sequence[Path]) -> list[Run]:
    """Read and score every run. Raises ArchiveError for a folder that is no run, or is named twice."""
    resolved = [folder.resolve() for folder in folders]
    for number, folder in enumerate(resolved):
        if folder in resolved[:number]:
            raise ArchiveError(f"the run {folder} is named twice; name each run once")
    records = [read_run(folder) for folder in resolved]  # all of them, before the first is scored
    names = [record.name for record in records]
    runs = []
    for number, (folder, record) in enumerate(zip(resolved, records, strict=True)):
        same = names[: number + 1].count(record.name)
        scored = compute_scores(folder)
        runs.append(
            Run(
                number=number,
                label=record.name if names.count(record.name) == 1 else f"{record.name} ({same})",
                model=interpreter_name(record.interpreter),
                folder=folder,
                record=record,
                config=archived_config(record, folder),
                summary=scored.summary,
                tallies=tally(scored.readouts),
                choices=count_choices(scored.cases),
            )
        )
    return runs


def tally(readouts: Iterable[Mapping[str, Any]]) -> dict[str, Tally]:
    """Tallies by case from the rows of scores/readouts.jsonl."""
    tallies: dict[str, Tally] = {}
    for row in readouts:
        stages = [row.get(stage) for stage in STAGES]
        right = [int(s is not None and s["label"] == row["truth"]["label"]) for s in stages]
        answered = all(s is not None and s["label"] is not None for s in (stages[0], stages[-1]))
        missing = sum(s is not None and s["label"] is None for s in stages)
        corrected = int(answered and right[0] < right[-1])
        regressed = int(answered and right[0] > right[-1])
        counts = (1, *right, corrected, regressed, missing)
        before = tallies.get(row["case"], Tally())
        tallies[row["case"]] = Tally._make(a + b for a, b in zip(before, counts, strict=True))
    return tallies


def pilots(runs: Sequence[Run]) -> list[Pilot]:
    """The published pilots in their order, with our runs of each, then other settings by name."""
    by_setting: dict[str, list[Run]] = {p.setting: [] for p in PUBLISHED}
    for setting in sorted({run.record.setting for run in runs}):
        by_setting.setdefault(setting, [])
    for run in runs:
        by_setting[run.record.setting].append(run)
    published = {p.setting: p for p in PUBLISHED}
    return [
        Pilot(
            setting=setting,
            title=published[setting].title if setting in published else setting.replace("_", " ").capitalize(),
            published=published.get(setting),
            runs=tuple(found),
        )
        for setting, found in by_setting.items()
    ]

"""What a report shows of its runs: scores recomputed from each archive, tallies by case, runs grouped by pilot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evidence.errors import ArchiveError
from loops.archive import RunRecord, read_run
from loops.blocks import MISSING
from loops.cells import Cells, archived_config
from loops.columns import Columns
from loops.config import RunConfig
from loops.report.panels import Choices, count_choices
from loops.report.published import PUBLISHED, Published
from loops.rescore import Scoring
from loops.run_events import STAGES
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
        config = archived_config(record, folder)
        cells = Cells(folder, record, config)
        scoring = Scoring(record, config, cells)
        choices = count_choices(_rows(scoring, cells))
        scored = scoring.finish()
        runs.append(
            Run(
                number=number,
                label=record.name if names.count(record.name) == 1 else f"{record.name} ({same})",
                model=interpreter_name(record.interpreter),
                folder=folder,
                record=record,
                config=config,
                summary=scored.summary,
                tallies=tally(scored.columns),
                choices=choices,
            )
        )
    return runs


def _rows(scoring: Scoring, cells: Cells) -> Iterator[Mapping[str, Any]]:
    """Score the cells of a run. How the first measurement of each was chosen, where there is a simulator."""
    for batch in cells:
        chosen = scoring.add(batch)
        if chosen is not None:
            rows = [choice.row for choice in chosen]
            yield from (rows[way] for way in batch.way.tolist())


def tally(columns: Columns) -> dict[str, Tally]:
    """Tallies by case."""
    case, truth = columns.case, columns.truth
    labels = {stage: columns.rows[stage].label for stage in STAGES if stage in columns.rows}
    nothing = np.full(len(truth), MISSING)
    first, last = (labels.get(stage, nothing) for stage in ("initial", "revised"))
    answered = (first != MISSING) & (last != MISSING)
    missing = np.zeros(len(truth))
    for stage, label in labels.items():
        missing += (label == MISSING) & columns.given[stage]
    entries = (
        np.ones(len(truth)),
        *(labels.get(stage, nothing) == truth for stage in STAGES),
        answered & (first != truth) & (last == truth),
        answered & (first == truth) & (last != truth),
        missing,
    )
    counts = np.stack([np.bincount(case, weights=entry, minlength=len(columns.cases)) for entry in entries], axis=1)
    there = np.flatnonzero(counts[:, 0])
    return {columns.cases[number]: Tally._make(int(n) for n in counts[number]) for number in there}


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

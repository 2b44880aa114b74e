"""Scores from the archive alone: no model, no network, no data files, no randomness but the run's own seed.

Rescoring is the only writer of `scores/`. The same archive gives the same bytes. Cells are read, scored and written
some at a time: of each, only its entries in columns stay in memory.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evidence.errors import ArchiveError
from evidence.files import forget_unfinished, stream_atomic, write_atomic
from evidence.values import derive_seed
from loops.answers import joined
from loops.archive import RunRecord, read_run
from loops.calibration import calibration_block
from loops.cells import Batch, Cells, archived_config
from loops.choice import Choices
from loops.choice_rows import Chosen, write_rows
from loops.collection import rare_collection
from loops.columns import Columns
from loops.config import RunConfig
from loops.gain import gain_block
from loops.lines import ReadoutLines
from loops.usage import CALLS_OF, Totals, open_usage
from scoring.intervals import Draws, score
from scoring.metrics import Marks


class Scored(NamedTuple):
    """The summary of a run, as it is written, and the columns it was made from."""

    summary: dict[str, Any]
    columns: Columns


def rescore(folder: Path, *, reparse: bool = False) -> dict[str, Any]:
    """Rewrite `scores/` from the archive and return the summary. `reparse` reads the raw replies again."""
    run = read_run(folder)
    config = archived_config(run, folder)
    cells = Cells(folder, run, config, reparse=reparse)
    scoring, lines = Scoring(run, config, cells), ReadoutLines(cells.answers)
    scores = folder / "scores"
    forget_unfinished(scores)
    with (
        rare_collection(),
        stream_atomic(scores / "readouts.jsonl", error=ArchiveError) as readouts,
        stream_atomic(scores / "cases.jsonl", error=ArchiveError) as cases,
    ):
        for batch in cells:
            chosen = scoring.add(batch)
            readouts.write(lines.of(batch))
            if chosen is not None:
                write_rows(chosen)
                pairs = zip(batch.way.tolist(), batch.repeat.tolist(), strict=True)
                cases.write("".join([chosen[way].line % repeat for way, repeat in pairs]))
    summary = scoring.finish().summary
    text = json.dumps(summary, indent=1, sort_keys=True, ensure_ascii=True, allow_nan=False)
    write_atomic(scores / "summary.json", (text + "\n").encode(), error=ArchiveError)
    return summary


def compute_scores(folder: Path) -> Scored:
    """The scores of a run. Raises ArchiveError where the archive cannot be read."""
    run = read_run(folder)
    config = archived_config(run, folder)
    cells = Cells(folder, run, config)
    return score_cells(Scoring(run, config, cells), cells)


def score_cells(scoring: Scoring, cells: Iterable[Batch]) -> Scored:
    """The scores of batches of cells in the order of the case file."""
    with rare_collection():
        for batch in cells:
            scoring.add(batch)
    return scoring.finish()


class Scoring:
    """The scores of a run whose batches of cells are added in their order. `cells` says what of it is damaged."""

    def __init__(self, run: RunRecord, config: RunConfig, cells: Cells):
        self.run = run
        self.config = config
        self.cells = cells
        self.columns = Columns(run.cases, cells.answers)
        self._choices = Choices(cells.adapter, config.adapter.name, config.budget.cost)
        self._outcomes: Counter[str] = Counter()
        self._totals: dict[str, Totals] = {}
        self._steps: list[NDArray[np.intp]] = []
        self._refused = 0
        self._done: set[tuple[str, int | None]] = set()

    def add(self, batch: Batch) -> list[Chosen] | None:
        """Add some cells. How their first measurement was chosen, by their ways, where there is a simulator."""
        self.columns.add(batch)
        ids = [way.case.id for way in batch.ways]
        self._done.update(zip([ids[way] for way in batch.way.tolist()], batch.repeat.tolist(), strict=True))
        self._outcomes.update(batch.outcomes)
        self._refused += batch.refused
        self._steps.append(batch.steps)
        return self._choices.add(batch)

    def _count_steps(self) -> None:
        """Count the steps of all cells added, by the step's name."""
        steps, numbers = self.cells.index.steps, joined(self._steps)
        name = np.asarray(steps.name)[numbers]
        for number, step in enumerate(steps.names.things):
            self._totals[step] = Totals()
            self._totals[step].add_columns(steps, numbers[name == number])

    def finish(self) -> Scored:
        """The scores, when all cells were added."""
        run, config, columns = self.run, self.config, self.columns
        columns.finish()
        self._count_steps()
        expected = len(run.cases) * config.repeats
        summary: dict[str, Any] = {
            "format": 1,
            "run": run.name,
            "setting": run.setting,
            "title": run.title,
            "synthetic": run.synthetic,
            "interpreter": run.interpreter,
            "simulator": None if config.simulator is None else config.simulator.name,
            "adapter": config.adapter.name,
            "policy": config.policy.name,
            "measurements": config.budget.measurements,
            "repeats": config.repeats,
            "n_cases": len(run.cases),
            "n_cells": expected,
            "n_cells_scored": len(self._done),
            "n_cells_open": expected - len(self._done),
            "damaged_lines": self.cells.damaged,
            "damaged_call_lines": self.cells.damaged_calls,
            "outcomes": dict(sorted(self._outcomes.items())),
            "calls": {
                **self._sum(tuple(self._totals)).calls(config.interpreter.prices),
                "refused_selections": self._refused,
                "in_open_cells": self._open_usage(expected),
            },
            "rows": [],
            "changes": {},
            "gain": {},
            "calibration": {},
            "class_balance": {},
        }
        if self._done:
            queried = columns.queried
            groups = {"all": np.ones_like(queried), "queried": queried, "unqueried": ~queried}
            by_group = {group: columns.marks(where) for group, where in groups.items()}
            marks = {name: {group: by_group[group][name] for group in groups} for name in columns.rows}
            draws, n_labels = Draws(len(run.cases), derive_seed(config.seed, "bootstrap")), len(columns.labels)
            scores = {n: {g: score(row[g], n_labels, draws) for g in groups} for n, row in marks.items()}
            gain = gain_block(marks, draws)
            summary["rows"] = [
                {"name": name, **{group: result() for group, result in row.items()}, "usage": self._usage(name)}
                for name, row in scores.items()
            ]
            summary["gain"] = gain()
            summary["calibration"] = calibration_block(columns)
            summary["changes"] = {group: _changes(marks, group) for group in groups}
            summary["class_balance"] = {label: columns.balance[label] for label in columns.labels}
        summary["choice"] = self._choices.summary()
        return Scored(summary, columns)

    def _open_usage(self, expected: int) -> dict[str, Any] | None:
        """What was spent on cells that are not finished; None where all are."""
        if len(self._done) == expected:
            return None
        return open_usage(self.cells.folder / "calls.jsonl", self._done, self.config.interpreter.prices)

    def _sum(self, steps: Iterable[str]) -> Totals:
        total = Totals()
        for step in steps:
            if step in self._totals:
                total += self._totals[step]
        return total

    def _usage(self, row: str) -> dict[str, Any] | None:
        """What the calls of a stage used; None for rows that no model made."""
        return self._sum(CALLS_OF[row]).usage(self.config.interpreter.prices) if row in CALLS_OF else None


def _changes(marks: Mapping[str, Mapping[str, Marks]], group: str) -> dict[str, Any]:
    """Wrong to right and right to wrong between the initial and the other stages, where both were answered."""
    result: dict[str, Any] = {}
    for stage in ("reviewed", "revised"):
        if stage in marks and "initial" in marks:
            before, after = marks["initial"][group], marks[stage][group]
            both = (before.label >= 0) & (after.label >= 0)
            was, now = (row.label[both] == row.truth[both] for row in (before, after))
            result[stage] = {
                "corrections": int((~was & now).sum()),
                "regressions": int((was & ~now).sum()),
                "n_both_answered": int(both.sum()),
            }
    return result

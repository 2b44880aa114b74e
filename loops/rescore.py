"""Scores from the archive alone: no model, no network, no data files, no randomness but the run's own seed.

Rescoring is the only writer of `scores/`. The same archive gives the same bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evidence.contracts import Answer, Prediction
from evidence.errors import ArchiveError
from evidence.files import write_atomic
from evidence.values import canonical_json, derive_seed
from loops.archive import RunRecord, read_run
from loops.calibration import calibration_block
from loops.cells import STAGES, Cell, Read, archived_config, missing_answers, read_cells
from loops.choice import choice_rows, summarise
from loops.config import Prices, RunConfig
from loops.gain import gain_block
from loops.usage import CALLS_OF, calls_of, usage_of
from scoring.intervals import draw_cases, score
from scoring.metrics import Marks, rounded

GROUPS = ("all", "queried", "unqueried")


class Scored(NamedTuple):
    """The score files of a run, ready to be written or shown."""

    summary: dict[str, Any]
    readouts: list[dict[str, Any]]
    cases: list[dict[str, Any]]


def rescore(folder: Path, *, reparse: bool = False) -> dict[str, Any]:
    """Rewrite `scores/` from the archive and return the summary. `reparse` reads the raw replies again."""
    scored = compute_scores(folder, reparse=reparse)
    text = json.dumps(scored.summary, indent=1, sort_keys=True, ensure_ascii=True, allow_nan=False)
    write_atomic(folder / "scores" / "summary.json", (text + "\n").encode(), error=ArchiveError)
    for name, rows in (("readouts", scored.readouts), ("cases", scored.cases)):
        lines = "".join(canonical_json(row) + "\n" for row in rows)
        write_atomic(folder / "scores" / f"{name}.jsonl", lines.encode(), error=ArchiveError)
    return scored.summary


def compute_scores(folder: Path, *, reparse: bool = False) -> Scored:
    """The scores of a run. Raises ArchiveError where the archive cannot be read."""
    run = read_run(folder)
    config = archived_config(run, folder)
    return score_cells(run, config, read_cells(folder, run, config, reparse))


def score_cells(run: RunRecord, config: RunConfig, read: Read) -> Scored:
    """The scores of cells that were read, in the order of the case file."""
    order = {case: i for i, case in enumerate(run.cases)}
    cells = sorted(read.cells, key=lambda cell: (order[cell.case.id], cell.repeat))
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
        "n_cells_scored": len(cells),
        "n_cells_open": expected - len(cells),
        "damaged_lines": read.damaged,
        "damaged_call_lines": read.damaged_calls,
        "outcomes": dict(sorted(Counter(cell.outcome for cell in cells).items())),
        "calls": _calls(cells, config.interpreter.prices),
        "rows": [],
        "changes": {},
        "gain": {},
        "calibration": {},
        "class_balance": {},
    }
    if cells:
        labels = _labels(cells)
        weights = draw_cases(len(run.cases), derive_seed(config.seed, "bootstrap"))
        queried = np.array([_queried(cell, r.id) for cell in cells for r in cell.case.readouts], dtype=bool)
        marks = {
            name: _by_group(_marks(answers, cells, order, labels), queried) for name, answers in _rows(cells).items()
        }
        summary["rows"] = [
            {
                "name": name,
                **{group: score(by_group[group], len(labels), weights) for group in GROUPS},
                "usage": _usage(name, cells, config),
            }
            for name, by_group in marks.items()
        ]
        summary["gain"] = gain_block(marks, weights)
        summary["calibration"] = calibration_block(cells)
        summary["changes"] = {group: _changes(cells, group) for group in GROUPS}
        summary["class_balance"] = _balance(cells)
    choices = choice_rows(cells, read.adapter, config.adapter.name, config.budget.cost)
    summary["choice"] = summarise(choices)
    return Scored(summary, [row for cell in cells for row in _readout_rows(cell)], choices)


Answers = Callable[[Cell], Sequence[Answer | Prediction]]


def _rows(cells: Sequence[Cell]) -> dict[str, Answers]:
    """The rows of the table by name: the three stages, then what stands beside the model."""
    rows: dict[str, Answers] = {
        stage: partial(_stage, stage) for stage in STAGES if any(stage in cell.answers for cell in cells)
    }
    if any(cell.simulated for cell in cells):
        rows["simulator alone"] = lambda cell: cell.simulated
        rows["simulator + adapter"] = lambda cell: cell.adapted
    for name in sorted({name for cell in cells for name in cell.baselines}):
        rows[name] = partial(_baseline, name)
    if all(r.numeric for cell in cells for r in cell.case.readouts):
        rows["constant (near zero)"] = lambda cell: [
            Prediction(readout=r.id, mean=0.0, sd=0.0) for r in cell.case.readouts
        ]
    return rows


def _stage(stage: str, cell: Cell) -> Sequence[Answer]:
    return cell.answers.get(stage) or missing_answers(cell.case, "not reached")


def _baseline(name: str, cell: Cell) -> Sequence[Prediction]:
    return cell.baselines.get(name, ())


def _labels(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Every label of the run, in the order first shown."""
    return tuple(dict.fromkeys(label for cell in cells for r in cell.case.readouts for label in r.labels))


def _marks(answers: Answers, cells: Sequence[Cell], order: Mapping[str, int], labels: tuple[str, ...]) -> Marks:
    rows = []
    for cell in cells:
        given = {a.readout: a for a in answers(cell)}
        for readout, truth in zip(cell.case.readouts, cell.truth, strict=True):
            label, value = _label_value(readout, given.get(readout.id))
            error = float("nan") if value is None or truth.value is None else abs(value - truth.value)
            rows.append(
                (
                    order[cell.case.id],
                    labels.index(truth.label),
                    -1 if label is None else labels.index(label),
                    error,
                )
            )
    columns = np.array(rows, dtype=float).reshape(len(rows), 4)
    whole = columns[:, :3].astype(np.intp)
    return Marks(whole[:, 0], whole[:, 1], whole[:, 2], columns[:, 3])


def _by_group(marks: Marks, queried: NDArray[np.bool_]) -> dict[str, Marks]:
    """The marks of all readouts, and of those that were measured and were not."""
    return {
        "all": marks,
        "queried": marks.where(queried),
        "unqueried": marks.where(~queried),
    }


def _queried(cell: Cell, readout: str) -> bool:
    return any(cell.case.measurement(m).readout == readout for m in cell.measured)


def _in_group(cell: Cell, readout: str, group: str) -> bool:
    return group == "all" or (group == "queried") == _queried(cell, readout)


def _label_value(readout: Any, given: Answer | Prediction | None) -> tuple[str | None, float | None]:
    if given is None:
        return None, None
    if isinstance(given, Prediction):
        return readout.decide(given), given.mean
    return given.label, given.value


def _changes(cells: Sequence[Cell], group: str) -> dict[str, Any]:
    """Wrong to right and right to wrong between the initial and the other stages, where both were answered."""
    result: dict[str, Any] = {}
    for stage in ("reviewed", "revised"):
        if not any(stage in cell.answers for cell in cells):
            continue
        counts = Counter(
            (before == true, after == true)
            for cell in cells
            for readout, true, before, after in _pairs(cell, stage)
            if _in_group(cell, readout, group)
        )
        result[stage] = {
            "corrections": counts[False, True],
            "regressions": counts[True, False],
            "n_both_answered": sum(counts.values()),
        }
    return result


def _pairs(cell: Cell, stage: str) -> Iterable[tuple[str, str, str, str]]:
    for truth, before, after in zip(
        cell.truth, cell.answers.get("initial", ()), cell.answers.get(stage, ()), strict=False
    ):
        if before.label is not None and after.label is not None:
            yield truth.readout, truth.label, before.label, after.label


def _balance(cells: Sequence[Cell]) -> dict[str, int]:
    first = {cell.case.id: cell for cell in cells}
    counts = Counter(t.label for cell in first.values() for t in cell.truth)
    return {label: counts[label] for label in _labels(cells)}


def _calls(cells: Sequence[Cell], prices: Prices | None) -> dict[str, Any]:
    """How calls ended, attempt by attempt, and what they used."""
    steps = [step for cell in cells for step in cell.steps]
    return {**calls_of(steps, prices), "refused_selections": sum(cell.refused for cell in cells)}


def _usage(row: str, cells: Sequence[Cell], config: RunConfig) -> dict[str, Any] | None:
    """What the calls of a stage used; None for rows that no model made."""
    if row not in CALLS_OF:
        return None
    return usage_of((s for c in cells for s in c.steps if s.step in CALLS_OF[row]), config.interpreter.prices)


def _readout_rows(cell: Cell) -> Iterable[dict[str, Any]]:
    predicted = {p.readout: p for p in cell.simulated}
    adapted = {p.readout: p for p in cell.adapted}
    for number, (readout, truth) in enumerate(zip(cell.case.readouts, cell.truth, strict=True)):
        row: dict[str, Any] = {
            "case": cell.case.id,
            "repeat": cell.repeat,
            "readout": readout.id,
            "queried": _queried(cell, readout.id),
            "truth": {"label": truth.label, "value": rounded(truth.value)},
            "threshold": readout.threshold,
        }
        for stage, answers in cell.answers.items():
            answer = answers[number]
            row[stage] = {"status": answer.status, "label": answer.label, "value": rounded(answer.value)}
            if answer.reason:
                row[stage]["reason"] = answer.reason
        for name, by_readout in (("simulator", predicted), ("adapted", adapted)):
            if readout.id in by_readout:
                p = by_readout[readout.id]
                row[name] = {"mean": rounded(p.mean), "sd": rounded(p.sd), "label": _label_value(readout, p)[0]}
        yield row

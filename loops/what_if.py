"""What if: the rows of a finished run that another adapter or threshold changes, without a model call.

The archive holds what every adapter needs, so "simulator + adapter" is computed afresh. A model's answers are what they
are: revised answers had seen the other adapter's predictions, and a label without a value cannot be given another
threshold. Such answers are "not replayable", and counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from evidence.contracts import Readout
from evidence.errors import ConfigError
from evidence.registry import ADAPTERS
from loops.archive import read_run
from loops.cell_events import NOWHERE
from loops.cells import Batch, Cells, archived_config
from loops.config import Component, build
from loops.lean import Answer
from loops.opened import Asked, Case, Truth
from loops.rescore import Scoring, score_cells
from loops.ways import Way

NOT_REPLAYABLE = "not replayable: a label without a value says nothing of another threshold"


def what_if(folder: Path, *, adapter: Component | None = None, threshold: float | None = None) -> dict[str, Any]:
    """The summary of a run under another adapter, another threshold (in the readouts' unit), or both. Writes nothing.

    `what_if` in the summary names what was changed and counts, by stage, the answers that are not replayable. Raises
    ConfigError where the run has no simulator, a readout no threshold, or an option is wrong.
    """
    run = read_run(folder)
    config = archived_config(run, folder)
    if adapter is not None:
        if config.simulator is None:
            raise ConfigError(f"--adapter: {folder} has no simulator, so there is nothing for an adapter to calibrate")
        build(ADAPTERS, adapter, "--adapter")
        config = config.model_copy(update={"adapter": adapter})
    if threshold is not None and not (math.isfinite(threshold) and threshold > 0):
        raise ConfigError(f"--threshold: expected a positive number in the readouts' unit, got {threshold:g}")
    lost = Counter[str]()
    if adapter is not None:
        lost["revised"] = 0
    cells = Cells(folder, run, config)
    changed = _changed(cells, adapter is not None, threshold, lost)
    summary = score_cells(Scoring(run, config, cells), changed).summary
    summary["what_if"] = {
        "adapter": None if adapter is None else adapter.model_dump(mode="json"),
        "threshold": threshold,
        "not_replayable": dict(sorted((lost if threshold is None else +lost).items())),
    }
    return summary


def _changed(cells: Cells, adapter: bool, threshold: float | None, lost: Counter[str]) -> Iterator[Batch]:
    """The cells under another adapter or threshold; answers that are not replayable are counted in `lost` by stage."""
    other: _Relabelled | None = None
    for batch in cells:
        if adapter:
            lost["revised"] += sum(len(batch.ways[way].truth) for way in batch.way.tolist())
            batch = batch._replace(first={stage: first for stage, first in batch.first.items() if stage != "revised"})
        if threshold is not None:
            changed = list[_Relabelled]()
            for way in batch.ways:
                if other is None or other.before is not way.case:
                    other = _relabel(way, threshold, other)
                changed.append(other)
            answers = {}
            for stage, first in batch.first.items():
                answers[stage] = first.copy()
                for n in np.flatnonzero(first != NOWHERE).tolist():
                    to = changed[batch.way[n]]
                    given = [_answer(to.case.asked, a) for a in cells.answers.of(int(first[n]), len(to.truth))]
                    lost[stage] += sum(a.reason == NOT_REPLAYABLE for a in given)
                    answers[stage][n] = cells.answers.add(given)
            ways = [w._replace(case=to.case, truth=to.truth) for w, to in zip(batch.ways, changed, strict=True)]
            batch = batch._replace(ways=ways, first=answers)
        yield batch


class _Relabelled(NamedTuple):
    """A case before and after, and its truth after."""

    before: Case
    case: Case
    truth: tuple[Truth, ...]


def _relabel(way: Way, threshold: float, last: _Relabelled | None) -> _Relabelled:
    """A case with all labels by the new threshold. Raises ConfigError for a categorical readout."""
    given = way.case.asked
    if last is not None and last.before.asked is given:
        asked = last.case.asked
    else:
        fixed = [r.id for r in given.readouts if not r.numeric]
        if fixed:
            raise ConfigError(f"--threshold: readout {fixed[0]!r} of case {way.case.id!r} is categorical: it has none")
        asked = Asked(tuple(r.model_copy(update={"threshold": threshold}) for r in given.readouts), given.menu)
    return _Relabelled(
        way.case,
        Case(way.case.id, asked),
        tuple(_relabelled(*pair) for pair in zip(asked.readouts, way.truth, strict=True)),
    )


def _relabelled(readout: Readout, truth: Truth) -> Truth:
    assert truth.value is not None  # noqa: S101 - check_truth: a numeric truth has a value
    return msgspec.structs.replace(truth, label=readout.classify(truth.value))


def _answer(asked: Asked, answer: Answer) -> Answer:
    if answer.label is None:
        return answer
    if answer.value is None:
        return Answer(readout=answer.readout, status="missing", reason=NOT_REPLAYABLE)
    # its confidence was in the label under the run's own threshold
    label = asked.readouts[asked.names.index(answer.readout)].classify(answer.value)
    return msgspec.structs.replace(answer, label=label, confidence=None)


def what_if_lines(changed: Mapping[str, Any]) -> Iterator[str]:
    """What was changed and what is missing for it, for a terminal."""
    named = [f"adapter {changed['adapter']['name']}"] if changed["adapter"] else []
    named += [f"threshold {changed['threshold']:g}"] if changed["threshold"] is not None else []
    lost = ", ".join(f"{stage} {n}" for stage, n in changed["not_replayable"].items() if n)
    yield f"WHAT IF, nothing written: {', '.join(named)}; answers not replayable: {lost or 'none'}"

"""The archive read back: one cell for every finished case and repeat."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evidence.contracts import AdapterInputs, Answer, Case, Observation, Prediction, Request, Truth
from evidence.errors import ArchiveError
from evidence.registry import ADAPTERS
from interpreters.reply import parse_reply
from loops.archive import (
    Closed,
    Observed,
    Opened,
    RunRecord,
    Selected,
    Stepped,
    read_blob,
    read_calls,
    read_events,
)
from loops.config import RunConfig, build

STAGES = {"initial": "predict", "reviewed": "review", "revised": "revise"}
"""The scored stages and the step that gives each."""


class Cell(NamedTuple):
    """One case in one repeat, as archived: what was answered at each stage, what was measured, how it ended."""

    case: Case
    repeat: int
    truth: tuple[Truth, ...]
    answers: Mapping[str, tuple[Answer, ...]]
    measured: tuple[str, ...]
    outcome: str
    adapted: tuple[Prediction, ...]
    simulated: tuple[Prediction, ...]
    baselines: Mapping[str, tuple[Prediction, ...]]
    steps: tuple[Stepped, ...]
    refused: int


def archived_config(run: RunRecord, folder: Path) -> RunConfig:
    """The resolved config of a run. Raises ArchiveError where this version cannot read it."""
    try:
        return RunConfig.model_validate_json(json.dumps(run.config))
    except ValueError as error:
        raise ArchiveError(f"{folder / 'run.json'}: the archived config cannot be read: {error}") from error


def read_cells(folder: Path, run: RunRecord, config: RunConfig, reparse: bool) -> tuple[list[Cell], list[int]]:
    """The finished cells, in no order, and the numbers of damaged event lines. Raises ArchiveError."""
    events, damaged = read_events(folder)
    opened: dict[str, Opened] = {}
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for event in events:
        if isinstance(event, Opened):
            opened[event.case.id] = event
            continue
        parts = found.setdefault(
            (event.case, event.repeat), {"steps": {}, "selected": {}, "observed": {}, "closed": None}
        )
        match event:
            case Stepped():
                parts["steps"][event.step, event.turn] = event
            case Selected():
                parts["selected"][event.turn] = event
            case Observed():
                parts["observed"][event.turn] = event
            case Closed():
                parts["closed"] = event
    unknown = sorted({case for case, _ in found} - set(opened)) + sorted(set(opened) - set(run.cases))
    if unknown:
        raise ArchiveError(
            f"{folder}: events of case {unknown[0]!r}, which run.json or an 'opened' event does not have"
        )
    if reparse:
        _reparse(folder, found)
    adapter = build(ADAPTERS, config.adapter, f"{folder / 'run.json'}: adapter")
    inputs = {case: _inputs(folder, event) for case, event in opened.items()}
    cells = [
        _cell(opened[case], repeat, parts, inputs[case], adapter)
        for (case, repeat), parts in found.items()
        if parts["closed"] is not None
    ]
    return cells, damaged


def _inputs(folder: Path, opened: Opened) -> AdapterInputs | None:
    if not opened.adapter_inputs:
        return None
    return AdapterInputs.model_validate_json(read_blob(folder, opened.adapter_inputs))


def _cell(opened: Opened, repeat: int, parts: Mapping[str, Any], inputs: AdapterInputs | None, adapter: Any) -> Cell:
    observations = [parts["observed"][turn].observation for turn in sorted(parts["observed"])]
    _check_sealed(opened, observations)
    steps = tuple(parts["steps"][key] for key in sorted(parts["steps"], key=lambda k: (k[1], k[0])))
    return Cell(
        case=opened.case,
        repeat=repeat,
        truth=opened.truth,
        answers=_stage_answers(opened.case, steps),
        measured=tuple(o.measurement for o in observations),
        outcome=parts["closed"].outcome,
        adapted=() if inputs is None else adapter.calibrate(inputs, observations),
        simulated=() if inputs is None else inputs.predictions,
        baselines=opened.baselines,
        steps=steps,
        refused=sum(len(s.refused) for s in parts["selected"].values()),
    )


def _check_sealed(opened: Opened, observations: Iterable[Observation]) -> None:
    sealed = {o.measurement: o for o in opened.sealed}
    for observation in observations:
        if sealed.get(observation.measurement) != observation:
            raise ArchiveError(
                f"case {opened.case.id!r}: the observation {observation.measurement!r} differs from the sealed one"
            )


def _stage_answers(case: Case, steps: Sequence[Stepped]) -> dict[str, tuple[Answer, ...]]:
    """Answers by stage. Where no revision was asked for, the initial answers stand as the final ones."""
    answers: dict[str, tuple[Answer, ...]] = {}
    for stage, step in STAGES.items():
        made = [s for s in steps if s.step == step]
        if made:
            answers[stage] = made[-1].answers or missing_answers(case, made[-1].status)
    if "revised" not in answers:
        answers["revised"] = answers.get("initial", missing_answers(case, "not reached"))
    return answers


def missing_answers(case: Case, reason: str) -> tuple[Answer, ...]:
    """An answer with status "missing" for every readout."""
    return tuple(Answer(readout=r.id, status="missing", reason=reason) for r in case.readouts)


def _reparse(folder: Path, found: Mapping[tuple[str, int], dict[str, Any]]) -> None:
    """Replace the archived reading of each step by a new reading of its last raw reply."""
    for call in read_calls(folder):
        stepped = found.get((call.case, call.repeat), {"steps": {}})["steps"].get((call.step, call.turn))
        if stepped is None or call.step == "select":
            continue
        request = Request.model_validate_json(json.dumps({k: v for k, v in call.request.items() if k != "identity"}))
        parsed = parse_reply(request, call.reply)
        found[call.case, call.repeat]["steps"][call.step, call.turn] = stepped.model_copy(
            update={"answers": parsed.answers, "status": parsed.status}
        )

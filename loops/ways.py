"""A case as it was opened, and the ways in which its cells measured: settled once for all its repeats."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from evidence.checks import check_predicted, check_truth
from evidence.contracts import Adapter, AdapterInputs, Observation, Prediction
from evidence.errors import ArchiveError, ContractError
from loops import lean
from loops.answer_checks import Questions
from loops.archive import read_blob
from loops.config import RunConfig
from loops.opened import Case, OpenedCase, Truth


class Way(NamedTuple):
    """What all cells of a case that measured the same, in the same order, have in common.

    `queried` are the readouts that were measured; `adapted` is what the adapter predicts after it. What all ways of a
    case have in common is the same object in all of them.
    """

    case: Case
    truth: tuple[Truth, ...]
    measured: tuple[str, ...]
    queried: frozenset[str]
    sealed: tuple[Observation, ...]
    inputs: AdapterInputs | None
    adapted: tuple[Prediction, ...]
    simulated: tuple[Prediction, ...]
    baselines: Mapping[str, tuple[lean.Prediction, ...]]


class CaseWays:
    """A case, checked, and its ways.

    Raises ContractError where the truth does not answer the readouts, a categorical one has a prediction, or there is
    not an observation for every menu entry.
    """

    def __init__(self, opened: OpenedCase, inputs: AdapterInputs | None, adapter: Adapter, questions: Questions):
        asked = opened.case.asked
        check_truth(asked.readouts, opened.truth)
        if not asked.numeric:
            made = [p.readout for predictions in opened.baselines.values() for p in predictions]
            made += [] if inputs is None else [p.readout for p in inputs.predictions]
            check_predicted(asked.readouts, made)
        self.questions = questions
        self._opened = opened
        self._inputs = inputs
        self._adapter = adapter
        self._sealed = {o.measurement: o for o in opened.sealed}
        self._ways: dict[tuple[str, ...], Way] = {}
        if self._sealed.keys() != asked.entries.keys():
            raise ContractError(f"sealed: expected observations of {sorted(asked.entries)}, got {sorted(self._sealed)}")

    def check_observation(self, observation: lean.Observation) -> None:
        """Raise ArchiveError where an observation is not the one that was sealed when the case was opened."""
        sealed = self._sealed.get(observation.measurement)
        if sealed is None or lean.observation(sealed) != observation:
            raise ArchiveError(f"the observation {observation.measurement!r} differs from the sealed one")

    def way(self, measured: tuple[str, ...]) -> Way:
        """What measuring these, in this order, gives in every repeat."""
        if measured not in self._ways:
            opened, inputs = self._opened, self._inputs
            found = (opened.case.asked.entries[m].readout for m in measured)
            adapted = None
            if inputs is not None:
                adapted = self._adapter.calibrate(inputs, [self._sealed[m] for m in measured])
            self._ways[measured] = Way(
                case=opened.case,
                truth=opened.truth,
                measured=measured,
                queried=frozenset(r for r in found if r is not None),
                sealed=opened.sealed,
                inputs=inputs,
                adapted=adapted or (),
                simulated=() if inputs is None else inputs.predictions,
                baselines=opened.baselines,
            )
        return self._ways[measured]


def archived_inputs(folder: Path, opened: OpenedCase, config: RunConfig) -> AdapterInputs | None:
    """The adapter inputs of a case; None where the run has no simulator. Raises ArchiveError."""
    if (config.simulator is None) != (opened.adapter_inputs == ""):
        raise ArchiveError(
            f"{folder}: case {opened.case.id!r} has adapter inputs if and only if the run has a simulator"
        )
    if not opened.adapter_inputs:
        return None
    try:
        return AdapterInputs.model_validate_json(read_blob(folder, opened.adapter_inputs))
    except ValidationError as error:
        raise ArchiveError(f"{folder}: blob {opened.adapter_inputs} holds no adapter inputs") from error

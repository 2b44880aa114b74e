"""What an adapter learns from: known responses of training perturbations beside their predictions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from evidence.checks import check_predictions
from evidence.contracts import (
    AdapterInputs,
    Case,
    EvidenceSetting,
    Perturbation,
    Prediction,
    Response,
    Simulator,
    TrainingResidual,
)
from evidence.errors import ContractError


class Predictor:
    """Predictions by perturbation and readouts, each asked for once."""

    def __init__(self, simulator: Simulator):
        self.simulator = simulator
        self._made: dict[tuple[str, tuple[str, ...]], tuple[Prediction, ...]] = {}

    def __call__(self, perturbation: Perturbation, readouts: Sequence[str]) -> tuple[Prediction, ...]:
        """One prediction a readout, in their order. Raises ContractError for anything else."""
        key = (perturbation.id, tuple(readouts))
        if key not in self._made:
            made = self.simulator.predict(perturbation, key[1])
            check_predictions(f"simulator, perturbation {perturbation.id!r}", key[1], made)
            self._made[key] = made
        return self._made[key]


def adapter_inputs(setting: EvidenceSetting, predict: Predictor, case: Case) -> AdapterInputs:
    """The case's predictions, and the residuals of training perturbations that share no target with it."""
    ids = tuple(r.id for r in case.readouts)
    return AdapterInputs(
        readouts=ids,
        predictions=predict(case.perturbation, ids),
        training=_residuals(predict, case, setting.responses(case)),
    )


def _residuals(predict: Predictor, case: Case, responses: Sequence[Response]) -> tuple[TrainingResidual, ...]:
    """Training responses beside their predictions. Raises ContractError where one shares a target with the case."""
    grouped: dict[str, list[Response]] = defaultdict(list)
    for response in responses:
        shared = sorted(set(response.perturbation.targets) & set(case.perturbation.targets))
        if shared or response.perturbation.id == case.perturbation.id:
            raise ContractError(
                f"training perturbation {response.perturbation.id!r} shares {shared} with the case: its residuals "
                "would leak the answer"
            )
        grouped[response.perturbation.id].append(response)
    rows = []
    for group in grouped.values():
        perturbation = group[0].perturbation
        for response, predicted in zip(group, predict(perturbation, [r.readout for r in group]), strict=True):
            rows.append(
                TrainingResidual(
                    perturbation=perturbation.id,
                    targets=perturbation.targets,
                    readout=response.readout,
                    predicted=predicted.mean,
                    sd=predicted.sd,
                    value=response.value,
                    se=response.se,
                )
            )
    return tuple(rows)

"""Everything that can be settled before the first model call: cases, predictions, sealed outcomes, and their checks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from evidence.checks import check_observation, check_predicted, check_truth
from evidence.contracts import (
    AdapterInputs,
    Case,
    EvidenceSetting,
    Measurement,
    Observed,
    Prediction,
    Simulator,
    Truth,
)
from evidence.errors import ConfigError, ContractError, VcloopError
from evidence.registry import SETTINGS
from evidence.residuals import Predictor, adapter_inputs
from evidence.values import derive_seed
from loops.config import Loaded
from loops.refits import refit_menu


class Prepared(NamedTuple):
    """One case, ready to run. `sealed` maps every menu entry to what measuring it would give; truth is sealed too."""

    case: Case
    truth: tuple[Truth, ...]
    sealed: Mapping[str, Observed]
    baselines: Mapping[str, tuple[Prediction, ...]]
    inputs: AdapterInputs | None


class Ready(NamedTuple):
    """An opened setting and its prepared cases, in the order of the case file."""

    setting: EvidenceSetting
    cases: tuple[Prepared, ...]


def prepare(loaded: Loaded) -> Ready:
    """Open the setting, fit the simulator, and prepare every case. Raises ConfigError, DataError or ContractError."""
    try:
        setting: EvidenceSetting = SETTINGS.get(loaded.case_file.setting).open(loaded.case_file, loaded.data)
    except VcloopError as error:
        error.add_note(f"while opening case file {loaded.case_path}")
        raise
    simulator = _fitted(setting, loaded)
    predictor = None if simulator is None else Predictor(simulator)
    cases = setting.cases()
    check_policy(loaded, cases)
    if [c.id for c in cases] != [c.id for c in loaded.case_file.cases]:
        raise ContractError(f"setting {loaded.case_file.setting!r} changed the cases or their order")
    return Ready(setting, tuple(_prepare_case(setting, predictor, case, loaded) for case in cases))


def check_policy(loaded: Loaded, cases: Sequence[Case]) -> None:
    """Raise ConfigError where the policy cannot choose with this adapter, or from these menus."""
    if getattr(loaded.policy, "needs_joint", False) and not hasattr(loaded.adapter, "joint"):
        raise ConfigError(
            f"policy {loaded.config.policy.name!r} chooses by the joint posterior of all readouts, which adapter "
            f"{loaded.config.adapter.name!r} does not give; use adapter 'gaussian'"
        )
    check = getattr(loaded.policy, "check", None)
    if check is not None:
        check(cases, loaded.config.budget.measurements)


def _fitted(setting: EvidenceSetting, loaded: Loaded) -> Simulator | None:
    training = setting.training()
    simulator: Any = loaded.simulator
    name = loaded.config.simulator.name if loaded.config.simulator else ""
    if simulator is None:
        if loaded.config.adapter.name != "none":
            raise ConfigError(
                f"adapter {loaded.config.adapter.name!r} calibrates a simulator, and the config names none"
            )
        return None
    if training is None or training.kind != simulator.accepts:
        offers = "no training data" if training is None else f"{training.kind!r}"
        raise ConfigError(
            f"simulator {name!r} learns from {simulator.accepts!r}; "
            f"setting {loaded.case_file.setting!r} offers {offers}"
        )
    simulator.fit(training, seed=derive_seed(loaded.config.seed, "simulator"))
    fitted: Simulator = simulator
    return fitted


def _prepare_case(setting: EvidenceSetting, predict: Predictor | None, case: Case, loaded: Loaded) -> Prepared:
    try:
        truth = setting.truth(case)
        check_truth(case.readouts, truth)
        sealed = {m.id: setting.observe(case, m, derive_seed(loaded.config.seed, case.id, m.id)) for m in case.menu}
        for measurement, seen in sealed.items():
            check_observation(case, measurement, seen.observation)
        inputs = None
        if predict is not None:
            inputs = adapter_inputs(setting, predict, case)
            if getattr(loaded.adapter, "needs_refits", False):
                refits = refit_menu(
                    predict.simulator, case, [s.observation for s in sealed.values()], loaded.config.budget
                )
                inputs = inputs.model_copy(update={"refits": refits})
            loaded.adapter.calibrate(inputs, ())
        baselines = setting.baselines(case)
        made = itertools.chain(() if inputs is None else inputs.predictions, *baselines.values())
        check_predicted(case.readouts, (p.readout for p in made))
        return Prepared(case, truth, sealed, baselines, inputs)
    except Exception as error:
        error.add_note(f"while preparing case {case.id!r} of setting {loaded.case_file.setting!r}")
        raise


def affordable(measured: Sequence[str], menu: Sequence[Measurement], cost: float | None) -> tuple[str, ...]:
    """The ids of the menu that are neither measured nor beyond what is left of the cost, in menu order."""
    spent = math.fsum(m.cost for m in menu if m.id in measured)
    return tuple(m.id for m in menu if m.id not in measured and (cost is None or spent + m.cost <= cost))

"""The study's own arithmetic, on made-up strains."""

import json

import numpy as np
import pytest
from vcloop_heat_shock.setting import HeatShock
from vcloop_heat_shock.simulator import MeanResponse

from adapters.gaussian import DOF, GaussianOptions, GaussianResiduals
from adapters.local import Local
from benchmarks.adapters import case_trials, measure, reach, result, summary, training_trials
from evidence.contracts import NoOptions
from evidence.residuals import Predictor, adapter_inputs


@pytest.fixture
def study(heat_shock_cases):
    setting = HeatShock.open(heat_shock_cases, None)
    simulator = MeanResponse(NoOptions())
    simulator.fit(setting.training(), seed=0)
    return setting, Predictor(simulator)


def test_unmeasured_readouts_by_hand(study):
    setting, predict = study
    case = setting.cases()[0]
    inputs = adapter_inputs(setting, predict, case)
    trials = list(case_trials(setting, case, inputs))
    assert [t.observation.measurement for t in trials] == [m.id for m in case.menu]
    got = result(Local(NoOptions()), trials)
    errors = [abs(p.mean - t.value) for p, t in zip(inputs.predictions, setting.truth(case), strict=True)]
    assert got.n == 6
    assert got.raw_error == got.error == got.before_error == pytest.approx(2 * sum(errors))
    adapted = result(GaussianResiduals(GaussianOptions()), trials)
    by_hand = 0.0
    for trial in trials:
        for p, t in zip(
            GaussianResiduals(GaussianOptions()).calibrate(inputs, [trial.observation]), trial.truth, strict=True
        ):
            by_hand += abs(p.mean - t.value) if t.readout != trial.observation.readout else 0.0
    assert adapted.error == pytest.approx(by_hand)


def test_a_left_out_perturbation_is_not_learned_from(study):
    setting, predict = study
    case = setting.cases()[0]
    inputs = adapter_inputs(setting, predict, case)
    trials = list(training_trials(case, inputs))
    assert len(trials) == 9
    for trial in trials:
        values = {t.value for t in trial.truth}
        assert not [
            row
            for row in trial.inputs.training
            if row.value in values and row.predicted in {p.mean for p in trial.inputs.predictions}
        ]
        assert len({row.perturbation for row in trial.inputs.training}) == 2


def test_intervals_are_those_of_the_distribution():
    assert reach(0.95, None) == pytest.approx(1.959964, abs=1e-5)
    draws = np.random.default_rng(0).standard_t(DOF, 400_000) * ((DOF - 2) / DOF) ** 0.5
    for level in (0.5, 0.8, 0.95):
        assert (np.abs(draws) <= reach(level, DOF)).mean() == pytest.approx(level, abs=0.003)


def test_the_report_is_json_and_counts_every_readout(study):
    report = measure(*study)
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert report["n_cases"] == 4
    assert {name: s["n"] for name, s in report["cases"].items()} == dict.fromkeys(
        ("local", "affine", "gaussian", "refit"), 24
    )
    assert report["cases"]["local"]["mae_change_percent"] == {"value": 0.0, "low": 0.0, "high": 0.0}


def test_nothing_to_average_is_none():
    assert summary([result(Local(NoOptions()), [])]) is None

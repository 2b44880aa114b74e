"""Expected worth of a measurement, against determinants, simulation and by hand; and the policies that choose by it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.contracts import Joint, Measurement, NoOptions, Readout, SelectionView
from evidence.errors import ConfigError, ContractError
from loops.information import expected_accuracy_gain, expected_information_gain, worth
from loops.policies import (
    ExpectedAccuracyGain,
    ExpectedInformationGain,
    FixedOptions,
    FixedOrder,
    best_for_cost,
)

NAMES = ("r1", "r2", "r3")
READOUTS = tuple(Readout(id=r, name=r, threshold=0.5) for r in NAMES)
MEAN = (0.1, -0.4, 0.9)
COV = ((1.0, 0.6, 0.0), (0.6, 0.8, 0.2), (0.0, 0.2, 0.5))
JOINT = Joint(readouts=NAMES, mean=MEAN, cov=COV)
NOISE = {"r1": 0.5, "r2": 0.3, "r3": 0.8}


@pytest.mark.parametrize("at", range(3))
def test_information_is_half_the_log_ratio_of_determinants(at):
    cov, noise = np.array(COV), NOISE[NAMES[at]] ** 2
    gain = cov[:, at] / (cov[at, at] + noise)
    after = cov - np.outer(gain, cov[at])
    expected = 0.5 * (np.linalg.slogdet(cov)[1] - np.linalg.slogdet(after)[1])
    assert expected_information_gain(JOINT, NAMES[at], NOISE) == pytest.approx(expected)


@pytest.mark.parametrize("at", range(3))
def test_accuracy_gain_is_what_simulation_gives(at):
    """Draw truths and noisy measurements, decide by the posterior, and count right answers."""
    rng = np.random.default_rng(at)
    mean, cov, noise = np.array(MEAN), np.array(COV), NOISE[NAMES[at]]
    truth = rng.multivariate_normal(mean, cov, size=200_000)
    seen = truth[:, at] + rng.normal(scale=noise, size=len(truth))
    gain = cov[:, at] / (cov[at, at] + noise**2)
    after = mean + np.outer(seen - mean[at], gain)
    right = _decide(after, np.sqrt(np.diag(cov - np.outer(gain, cov[at])))) == _classes(truth)
    before = _decide(mean[None], np.sqrt(np.diag(cov))) == _classes(truth)
    simulated = (right.mean(axis=0) - before.mean(axis=0)).sum()
    assert expected_accuracy_gain(JOINT, READOUTS, NAMES[at], NOISE) == pytest.approx(simulated, abs=0.006)


def _classes(change):
    return (change > 0.5).astype(int) - (change < -0.5)


def _decide(mean, sd):
    from scipy.stats import norm

    chances = np.stack([norm.cdf(-0.5, mean, sd), norm.cdf(0.5, mean, sd), norm.sf(0.5, mean, sd)])
    chances[1] -= chances[0]
    return chances.argmax(axis=0) - 1


@settings(deadline=None)  # the first example imports scipy
@given(st.integers(0, 1000), st.floats(0, 2))
def test_gains_are_never_negative_and_noise_takes_from_them(seed, noise):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(3, 3))
    joint = Joint(
        readouts=NAMES, mean=tuple(rng.normal(size=3).tolist()), cov=tuple(map(tuple, (root @ root.T).tolist()))
    )
    quiet, loud = (worth(joint, READOUTS, "r1", {"r1": n}) for n in (noise, noise + 1))
    assert quiet.information >= loud.information >= 0
    assert quiet.accuracy >= loud.accuracy - 0.02
    assert loud.accuracy >= 0


def test_a_certain_readout_and_an_unrelated_one_are_worth_nothing():
    joint = Joint(readouts=("r1", "r2"), mean=(0.0, 0.0), cov=((0.0, 0.0), (0.0, 1.0)))
    assert worth(joint, READOUTS, "r1", {"r1": 0.1}) == (0.0, 0.0)
    assert worth(joint, READOUTS, "other", {}) == (0.0, 0.0)
    assert worth(joint, READOUTS, None, {}) == (0.0, 0.0)


def view(costs=(1.0, 1.0, 1.0), **more):
    menu = tuple(Measurement(id=f"m{r[1]}", name=r, readout=r, cost=c) for r, c in zip(NAMES, costs, strict=True))
    shown = {"case": "case", "open_menu": menu, "readouts": READOUTS, "joint": JOINT, "noise": NOISE}
    return SelectionView(**{**shown, **more})


def test_policies_take_the_best_for_its_cost():
    eig, eag = ExpectedInformationGain(NoOptions()), ExpectedAccuracyGain(NoOptions())
    information = {r: worth(JOINT, READOUTS, r, NOISE).information for r in NAMES}
    accuracy = {r: worth(JOINT, READOUTS, r, NOISE).accuracy for r in NAMES}
    assert max(information, key=information.get) == "r2"
    assert eig.select(view(), seed=0) == "m2"
    assert eag.select(view(), seed=0) == "m" + max(accuracy, key=accuracy.get)[1]
    assert eig.select(view((1.0, 10.0, 1.0)), seed=0) == "m1"
    assert eig.select(view((1.0, 1.0, 0.0)), seed=0) == "m3"


def test_ties_go_to_the_first_id_and_nothing_free_beats_something():
    menu = [Measurement(id=i, name=i, cost=c) for i, c in (("b", 1.0), ("a", 1.0), ("free", 0.0))]
    assert best_for_cost(menu, {"b": 0.5, "a": 0.5, "free": 0.0}) == "a"
    assert best_for_cost(menu, {"b": 0.0, "a": 0.0, "free": 0.0}) == "a"
    assert best_for_cost([], {}) is None


@pytest.mark.parametrize("policy", [ExpectedInformationGain, ExpectedAccuracyGain])
def test_without_a_joint_posterior_they_refuse(policy):
    with pytest.raises(ContractError, match="joint posterior"):
        policy(NoOptions()).select(view(joint=None), seed=0)


def test_fixed_order_takes_the_first_that_is_open():
    policy = FixedOrder(FixedOptions(order=("m3", "m1")))
    assert policy.select(view(), seed=0) == "m3"
    assert policy.select(view(open_menu=view().open_menu[:2]), seed=0) == "m1"
    assert policy.select(view(open_menu=view().open_menu[1:2]), seed=0) is None


def test_fixed_order_is_checked_against_the_menus(heat_shock_cases):
    cases = heat_shock_cases.cases
    FixedOrder(FixedOptions(order=("HSP90", "HSP70"))).check(cases, 2)
    with pytest.raises(ConfigError, match="no case can measure 'HSP71'.*HSP70"):
        FixedOrder(FixedOptions(order=("HSP71",))).check(cases, 1)
    with pytest.raises(ConfigError, match="at least 2 .* 'wildtype', got HSP70"):
        FixedOrder(FixedOptions(order=("HSP70",))).check(cases, 2)

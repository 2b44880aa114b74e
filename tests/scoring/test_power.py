import numpy as np
import pytest

from evidence.errors import ConfigError
from scoring.paired import sign_flip
from scoring.power import cases_needed, independent_discordance, intraclass_correlation


def test_the_formula_by_hand():
    """Connor 1987: psi 0.3, delta 0.1, two-sided 5 %, 80 %: (1.95996 x 0.54772 + 0.84162 x 0.53852)^2 / 0.01."""
    got = cases_needed(gain=0.1, discordance=0.3, readouts_per_case=1, icc=0.0)
    assert (got.pairs, got.cases, got.readouts, got.design_effect) == (234, 234, 234, 1.0)
    clustered = cases_needed(gain=0.1, discordance=0.3, readouts_per_case=4, icc=0.2)
    assert clustered.design_effect == pytest.approx(1.6)
    assert clustered.cases == 94  # 233.1 x 1.6 / 4 = 93.2
    assert cases_needed(gain=0.1, discordance=0.3, readouts_per_case=4, icc=1.0).cases == 234
    assert independent_discordance(0.66, 0.1) == pytest.approx(0.66 * 0.24 + 0.76 * 0.34)


def test_more_is_needed_for_less():
    base = {"gain": 0.1, "discordance": 0.4, "readouts_per_case": 4.0, "icc": 0.2}
    cases = cases_needed(**base).cases
    for change in ({"gain": 0.05}, {"discordance": 0.6}, {"icc": 0.5}, {"power": 0.9}, {"alpha": 0.01}):
        assert cases_needed(**{**base, **change}).cases > cases
    large = cases_needed(gain=0.9, discordance=0.9, readouts_per_case=6, icc=0.0)
    assert (large.cases, large.fewest) == (6, 6), "five clusters cannot give p < 0.05 by flipping signs"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gain": 1e-300}, "gain: 1e-300 needs more than 1e\\+12 independent pairs"),
        ({"readouts_per_case": 1e308}, "readouts per case: expected at least 1 and at most"),
        ({"readouts_per_case": float("inf")}, "readouts per case: expected at least 1 and at most"),
        ({"power": 0.01}, "power: expected more than alpha \\(0.05\\)"),
    ],
)
def test_numbers_out_of_any_range_are_refused_in_words(changes, message):
    with pytest.raises(ConfigError, match=message):
        cases_needed(**{"gain": 0.1, "discordance": 0.4, "readouts_per_case": 4.0, "icc": 0.2, **changes})


def test_a_level_too_small_to_be_taken_from_one():
    """1 - alpha / 2 is 1.0 in floats; (38.287 x 0.54772 + 0.84162 x 0.53852)^2 / 0.01 pairs."""
    got = cases_needed(gain=0.1, discordance=0.3, readouts_per_case=1, icc=0.0, alpha=1e-320)
    assert got.pairs == 45_899


def differences(rng, cases: int, m: int, *, gain: float, discordance: float, icc: float):
    """Differences -1, 0, 1 in cases. A readout copies its case with probability sqrt(icc): any two correlate by icc."""
    p = [(discordance - gain) / 2, 1 - discordance, (discordance + gain) / 2]
    own, shared = rng.choice([-1, 0, 1], size=(cases, m), p=p), rng.choice([-1, 0, 1], size=(cases, 1), p=p)
    return np.where(rng.random((cases, m)) < np.sqrt(icc), shared, own).ravel()


@pytest.mark.parametrize(
    ("gain", "discordance", "m", "icc"), [(0.15, 0.35, 4, 0.2), (0.2, 0.4, 6, 0.5), (0.2, 0.3, 1, 0.0)]
)
def test_simulated_experiments_of_that_size_find_the_gain_as_often_as_wanted(gain, discordance, m, icc):
    cases = cases_needed(gain=gain, discordance=discordance, readouts_per_case=m, icc=icc).cases
    clusters = np.repeat(np.arange(cases), m)
    rng, found = np.random.default_rng(6), []
    for run in range(400):
        d = differences(rng, cases, m, gain=gain, discordance=discordance, icc=icc)
        found.append(sign_flip(np.zeros(len(d)), d, clusters, seed=run, draws=499).p < 0.05)
    assert np.mean(found) == pytest.approx(0.8, abs=0.06)


def test_intraclass_correlation_is_found_again():
    rng = np.random.default_rng(2)
    clusters = np.repeat(np.arange(1500), 5)
    for icc in (0.0, 0.2, 0.6):
        d = differences(rng, 1500, 5, gain=0.1, discordance=0.4, icc=icc)
        assert intraclass_correlation(d, clusters) == pytest.approx(icc, abs=0.04)
    assert intraclass_correlation([0, 0, 1, 1], ["a", "a", "b", "b"]) == pytest.approx(1.0)
    assert intraclass_correlation([0, 1, 0, 1], ["a", "a", "b", "b"]) == 0.0
    for nothing in (([1.0, 2.0], ["a", "b"]), ([1.0, 2.0], ["a", "a"]), ([1, 1, 1, 1], ["a", "a", "b", "b"])):
        assert intraclass_correlation(*nothing) is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"gain": 0.0}, "gain: expected a number between 0 and 1"),
        ({"discordance": 0.05}, r"discordance: expected a share from the gain \(0.1\)"),
        ({"icc": 1.5}, "icc: expected"),
        ({"readouts_per_case": 0.5}, "at least 1"),
        ({"power": 1.0}, "power: expected"),
        ({"alpha": float("nan")}, "alpha: expected"),
    ],
)
def test_impossible_numbers_are_refused(change, why):
    with pytest.raises(ConfigError, match=why):
        cases_needed(**{"gain": 0.1, "discordance": 0.3, "readouts_per_case": 4.0, "icc": 0.2, **change})


def test_no_accuracy_above_one():
    with pytest.raises(ConfigError, match="got 0.95 and 1.05 with the gain"):
        independent_discordance(0.95, 0.1)

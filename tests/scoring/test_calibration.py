import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import brier_score_loss

from evidence.errors import ContractError
from scoring.calibration import calibration, confidence_calibration, interval_coverage, normal_class_probabilities


def test_brier_ece_and_curve_by_hand():
    p = [[0.9, 0.1, 0.0], [0.85, 0.15, 0.0], [0.2, 0.4, 0.4], [0.0, 0.0, 1.0]]
    got = calibration(p, [0, 1, 2, 2])
    assert got.brier == pytest.approx((0.02 + 1.445 + 0.56 + 0.0) / 4)
    assert got.ece == pytest.approx((2 * abs(0.5 - 0.875) + abs(0.0 - 0.4) + 0.0) / 4)
    filled = {(b.low, b.high): (b.n, b.accuracy) for b in got.bins if b.n}
    assert filled == {(0.3, 0.4): (1, 0.0), (0.8, 0.9): (2, 0.5), (0.9, 1.0): (1, 1.0)}


def test_brier_is_scikit_learns():
    rng = np.random.default_rng(0)
    p = rng.dirichlet((1, 2, 3), 50)
    truth = rng.integers(0, 3, 50)
    assert calibration(p, truth).brier == pytest.approx(brier_score_loss(truth, p, scale_by_half=False))


def test_honest_probabilities_have_a_small_error_and_sharp_ones_a_large_one():
    rng = np.random.default_rng(1)
    p = rng.dirichlet((1, 1, 1), 20_000)
    truth = (rng.random((20_000, 1)) > np.cumsum(p, axis=1)).sum(axis=1)
    assert calibration(p, truth).ece < 0.01
    sharp = p**4 / (p**4).sum(axis=1, keepdims=True)
    assert calibration(sharp, truth).ece > 0.1


def test_nothing_answered_and_what_is_no_distribution():
    nothing = calibration([], [])
    assert (nothing.n, nothing.brier, nothing.ece, nothing.bins[0].accuracy) == (0, None, None, None)
    with pytest.raises(ContractError, match="sum to 1"):
        calibration([[0.5, 0.6]], [0])
    with pytest.raises(ContractError, match="true classes"):
        calibration([[0.5, 0.5]], [2])


def test_class_probabilities_of_a_normal_change():
    got = normal_class_probabilities([0.1, 0.0, 0.3, -0.2, 0.2], [0.2, 1.0, 0.0, 0.0, 0.0], 0.2)
    assert got[0] == pytest.approx([norm.cdf(-1.5), norm.cdf(0.5) - norm.cdf(-1.5), 1 - norm.cdf(0.5)])
    assert got.sum(axis=1) == pytest.approx(np.ones(5))
    assert got[2:].argmax(axis=1).tolist() == [2, 1, 1], "a change at the threshold is near zero"


def test_coverage_of_right_and_of_too_narrow_intervals():
    rng = np.random.default_rng(2)
    value = rng.normal(0, 1, 4000)
    honest = interval_coverage(np.zeros(4000), np.ones(4000), value)
    assert [c.covered / c.n for c in honest] == pytest.approx([0.5, 0.8, 0.95], abs=0.02)
    narrow = interval_coverage(np.zeros(4000), np.full(4000, 0.5), value)
    assert narrow[2].covered / 4000 == pytest.approx(2 * norm.cdf(1.959964 / 2) - 1, abs=0.02)
    assert [c.covered for c in interval_coverage([1.0, 1.0], [0.0, 0.0], [1.0, 1.1])] == [1, 1, 1]


def test_confidence_in_the_answer_given():
    got = confidence_calibration([0.9, 0.9, 0.6], [True, False, True])
    assert got.brier == pytest.approx((0.01 + 0.81 + 0.16) / 3)
    assert got.ece == pytest.approx((2 * 0.4 + 0.4) / 3)
    two = calibration([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4]], [0, 1, 0])
    assert two.brier == pytest.approx(2 * got.brier)
    with pytest.raises(ContractError, match="from 0 to 1"):
        confidence_calibration([1.2], [True])

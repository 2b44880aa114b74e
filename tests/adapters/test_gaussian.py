"""The gaussian adapter: hand-computed numbers, what must hold for any data, and data that is hardly there."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.conditioning import Gaussian, Measured, condition, measured
from adapters.gaussian import (
    DOF,
    GaussianOptions,
    GaussianResiduals,
    Residuals,
    learned_slope,
    learned_slopes,
    shrunk_covariance,
)
from evidence.contracts import AdapterInputs, Observation, Prediction, TrainingResidual
from evidence.errors import ConfigError

READOUTS = ("a", "b", "c")
ADAPTER = GaussianResiduals(GaussianOptions())


def row(perturbation, readout, predicted, value, se=0.05):
    return TrainingResidual(
        perturbation=perturbation,
        targets=(perturbation,),
        readout=readout,
        predicted=predicted,
        sd=0.1,
        value=value,
        se=se,
    )


def inputs(training, means=(0.1, -0.2, 0.3), readouts=READOUTS):
    predictions = tuple(Prediction(readout=r, mean=m, sd=0.05) for r, m in zip(readouts, means, strict=True))
    return AdapterInputs(readouts=tuple(readouts), predictions=predictions, training=tuple(training))


def simulated(n=12, seed=0, slope=0.5, shift=0.3):
    rng = np.random.default_rng(seed)
    for p in range(n):
        common = rng.normal(scale=shift)
        for readout in READOUTS:
            x = float(rng.normal())
            yield row(f"p{p}", readout, x, slope * x + common + float(rng.normal(scale=0.1)))


def seen(readout="b", value=0.9, se=0.1, **more):
    return Observation(measurement=readout, readout=readout, value=value, se=se, **more)


def numbers(predictions):
    return np.array([[p.mean, p.sd] for p in predictions])


def test_two_readouts_by_hand():
    """Prior mean (1, 2), variances 4 and 9, covariance 3; the first is measured as 3 with noise 1."""
    prior = Gaussian(np.array([1.0, 2.0]), np.array([[4.0, 3.0], [3.0, 9.0]]))
    after = condition(prior, Measured(np.array([0]), np.array([3.0]), np.array([1.0])))
    assert after.mean == pytest.approx([1 + 4 / 5 * 2, 2 + 3 / 5 * 2])
    assert after.cov == pytest.approx(np.array([[4 - 16 / 5, 3 - 12 / 5], [3 - 12 / 5, 9 - 9 / 5]]))


def test_measurements_of_one_readout_are_pooled():
    """1 with variance 1 and 4 with variance 2: 2 with variance 2/3. Exact ones leave nothing to the others."""
    given_inputs = inputs([])
    both = measured(given_inputs, [seen("b", 4.0, 2**0.5), seen("c", 0.5, 0.1), seen("b", 1.0, 1.0)])
    assert (both.where.tolist(), both.value.tolist()) == ([1, 2], [pytest.approx(2.0), 0.5])
    assert both.noise.tolist() == pytest.approx([2 / 3, 0.01])
    exact = measured(given_inputs, [seen("b", 4.0, 0.0), seen("b", 1.0, None), seen("b", 9.0, 0.1)])
    assert (exact.value.tolist(), exact.noise.tolist()) == ([2.5], [0.0])


def test_covariance_by_hand():
    """Two perturbations, no noise, shrinkage 2: variances 1 and 4 go half way to 2.5, the covariance 2 to 1."""
    residual = np.array([[1.0, 2.0], [-1.0, -2.0]])
    cov = shrunk_covariance(residual, np.zeros((2, 2)), np.ones((2, 2)), 2.0)
    assert cov == pytest.approx(np.array([[1.75, 1.0], [1.0, 3.25]]))


def test_the_prior_scales_with_the_prediction():
    fitted = Residuals(np.array([0.5, 1.0]), 4.0, np.array([[1.0, 0.5], [0.5, 1.0]]))
    prior = fitted.prior(np.array([0.0, 2.0]))
    assert prior.mean == pytest.approx([0.0, 2.0])
    assert prior.cov == pytest.approx(np.array([[0.5, 0.5 * 0.5**0.5], [0.5 * 0.5**0.5, 1.0]]))


def test_slope_by_hand():
    """Two perturbations with slopes 0.4 and 0.6: least squares 0.5, jackknife variance 0.01, so 1 - 0.5 x 0.96."""
    assert learned_slope(np.array([1.0, 1.0]), np.array([0.4, 0.6])) == pytest.approx(1 - 0.5 * (1 - 0.01 / 0.25))


@pytest.mark.parametrize(
    ("xx", "xy"), [([0.0, 0.0], [0.0, 0.0]), ([5.0, 0.0], [1.0, 0.0]), ([1.0], [0.2]), ([1.0, 1.0], [-2.0, 4.0])]
)
def test_slope_stays_one_where_nothing_can_be_learned(xx, xy):
    """No prediction at all, one perturbation that decides, perturbations that disagree."""
    assert learned_slope(np.array(xx), np.array(xy)) == 1.0


def test_slopes_recover_what_made_the_data():
    training = list(simulated(n=300, slope=0.4))
    x = np.array([r.predicted for r in training]).reshape(-1, 3)
    y = np.array([r.value for r in training]).reshape(-1, 3)
    assert learned_slopes(x * x, x * y, 20.0) == pytest.approx([0.4] * 3, abs=0.06)


def test_a_surprise_moves_what_varies_with_it():
    before, after = ADAPTER.calibrate(inputs(simulated(40)), []), ADAPTER.calibrate(inputs(simulated(40)), [seen()])
    for n in (0, 2):
        assert after[n].mean > before[n].mean + 0.1
        assert after[n].sd < before[n].sd


def test_no_observation_is_the_prior_and_a_missing_one_is_none():
    given_missing = [Observation(measurement="b", readout="b", status="missing")]
    assert ADAPTER.calibrate(inputs(simulated()), given_missing) == ADAPTER.calibrate(inputs(simulated()), [])
    joint = ADAPTER.joint(inputs(simulated()), [])
    assert numbers(ADAPTER.calibrate(inputs(simulated()), []))[:, 0] == pytest.approx(joint.mean)


@given(
    st.lists(st.tuples(st.sampled_from(READOUTS), st.floats(-3, 3), st.floats(0, 2)), min_size=1, max_size=4),
    st.integers(0, 5),
    st.floats(0, 100),
)
def test_a_deviation_never_grows_with_an_observation(observed, seed, shrinkage):
    adapter = GaussianResiduals(GaussianOptions(shrinkage=shrinkage))
    given_inputs = inputs(simulated(6, seed=seed))
    before = numbers(adapter.calibrate(given_inputs, []))[:, 1]
    for n in range(1, len(observed) + 1):
        after = numbers(adapter.calibrate(given_inputs, [seen(*o) for o in observed[:n]]))[:, 1]
        assert (after <= before + 1e-6).all()
        before = after


@given(st.permutations(range(36)), st.permutations(range(3)))
def test_order_of_training_rows_and_readouts_does_not_matter(rows, order):
    training = list(simulated())
    straight = numbers(ADAPTER.calibrate(inputs(training), [seen()]))
    means = [(0.1, -0.2, 0.3)[n] for n in order]
    turned = inputs([training[n] for n in rows], means, [READOUTS[n] for n in order])
    assert numbers(ADAPTER.calibrate(turned, [seen()])) == pytest.approx(straight[list(order)], abs=1e-9)


@pytest.mark.parametrize("training", [[], [row("p", r, 0.1, 0.2) for r in READOUTS]])
def test_fewer_than_two_training_perturbations_are_refused(training):
    with pytest.raises(ConfigError, match=f"at least 2, got {len(training) and 1}"):
        ADAPTER.calibrate(inputs(training), [])


@pytest.mark.parametrize("se", [0.0, None])
def test_no_variance_at_all(se):
    """Training residuals of zero: the prior is certain, and a measurement still replaces what it measured."""
    training = [row(p, r, 0.2, 0.2, se=0.0) for p in ("p", "q", "r") for r in READOUTS]
    made = ADAPTER.calibrate(inputs(training), [seen("b", 0.9, se)])
    assert [p.mean for p in made] == pytest.approx([0.1, 0.9, 0.3], abs=1e-6)
    assert all(p.sd < 1e-3 for p in made)


@pytest.mark.parametrize("se", [0.0, None])
def test_an_exact_measurement_is_taken_as_it_is(se):
    taken = ADAPTER.calibrate(inputs(simulated()), [seen("b", 0.9, se)])[1]
    assert taken.mean == pytest.approx(0.9)
    assert taken.sd == pytest.approx(0.0, abs=1e-6)


def test_a_readout_without_training_keeps_its_prediction_and_a_typical_deviation():
    training = [r for r in simulated() if r.readout != "c"]
    before, after = ADAPTER.calibrate(inputs(training), []), ADAPTER.calibrate(inputs(training), [seen()])
    assert before[2] == after[2]
    assert before[2].sd == pytest.approx(np.mean([before[0].sd, before[1].sd]), rel=0.5)


def test_the_decision_is_an_option():
    by_mean = ADAPTER.calibrate(inputs(simulated()), [seen()])
    adapter = GaussianResiduals(GaussianOptions(decision="posterior"))
    by_class = adapter.calibrate(inputs(simulated()), [seen()])
    assert {p.dof for p in by_mean} == {None}
    assert {p.dof for p in by_class} == {DOF}
    assert numbers(by_mean) == pytest.approx(numbers(by_class))

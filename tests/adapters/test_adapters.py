import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.affine import Affine, fit_affine
from adapters.conditioning import Gaussian, Measured, condition
from adapters.local import Local
from adapters.none import Uncalibrated
from evidence.contracts import AdapterInputs, NoOptions, Observation, Prediction, TrainingResidual
from evidence.errors import ConfigError

READOUTS = ("a", "b", "c")


def inputs(training=(), means=(0.1, 0.2, 0.3)):
    predictions = tuple(Prediction(readout=r, mean=m, sd=0.05) for r, m in zip(READOUTS, means, strict=True))
    return AdapterInputs(readouts=READOUTS, predictions=predictions, training=tuple(training))


def seen(readout="b", value=0.9, se=0.1):
    return Observation(measurement=readout, readout=readout, value=value, se=se)


def simulated(a, b, tau, sigma, perturbations=400, seed=0):
    rng = np.random.default_rng(seed)
    for p in range(perturbations):
        shift = rng.normal(scale=tau)
        for readout in READOUTS:
            x = rng.normal()
            y = a + b * x + shift + rng.normal(scale=sigma)
            yield TrainingResidual(
                perturbation=str(p), targets=(str(p),), readout=readout, predicted=x, sd=0.0, value=y, se=0.0
            )


def test_none_keeps_every_prediction():
    assert Uncalibrated(NoOptions()).calibrate(inputs(), [seen()]) == inputs().predictions


def test_local_replaces_only_what_was_measured():
    a, b, c = Local(NoOptions()).calibrate(inputs(), [seen()])
    assert (a, c) == (inputs().predictions[0], inputs().predictions[2])
    assert (b.mean, b.sd) == (0.9, 0.1)


def test_affine_recovers_the_model_that_made_the_data():
    fitted = fit_affine(list(simulated(a=0.2, b=0.5, tau=0.3, sigma=0.1)))
    assert fitted.a == pytest.approx(0.2, abs=0.05)
    assert fitted.b == pytest.approx(0.5, abs=0.02)
    assert fitted.tau2**0.5 == pytest.approx(0.3, abs=0.03)
    assert fitted.sigma2**0.5 == pytest.approx(0.1, abs=0.01)


def test_affine_carries_a_surprise_over_by_the_share_of_the_common_shift():
    training = list(simulated(a=0.0, b=1.0, tau=0.3, sigma=0.1))
    fitted = fit_affine(training)
    before = Affine(NoOptions()).calibrate(inputs(training), [])
    after = Affine(NoOptions()).calibrate(inputs(training), [seen("b", 0.9, 0.1)])
    surprise = 0.9 - before[1].mean
    share = fitted.tau2 / (fitted.tau2 + fitted.sigma2 + 0.01)
    for n in (0, 2):
        assert after[n].mean - before[n].mean == pytest.approx(share * surprise)
        assert after[n].sd < before[n].sd


@pytest.mark.parametrize("count", [0, 1])
def test_affine_says_what_it_needs(count):
    training = list(simulated(0, 1, 0.1, 0.1, perturbations=count))
    with pytest.raises(ConfigError, match="at least 2"):
        Affine(NoOptions()).calibrate(inputs(training), [])


@given(
    st.lists(st.floats(-2, 2), min_size=3, max_size=3),
    st.floats(0.01, 2),
    st.floats(0.0, 1.5),
    st.integers(0, 2),
    st.floats(-3, 3),
)
def test_conditioning_is_the_textbook_formula(mean, noise, shared, where, value):
    """Against the precision form, computed another way: posterior precision = prior precision + one measurement's."""
    cov = np.full((3, 3), shared) + np.diag([0.4, 0.5, 0.6])
    got = condition(Gaussian(np.array(mean), cov), Measured(np.array([where]), np.array([value]), np.array([noise])))
    pick = np.eye(3)[where]
    precision = np.linalg.inv(cov) + np.outer(pick, pick) / noise
    expected = np.linalg.solve(precision, np.linalg.inv(cov) @ np.array(mean) + pick * value / noise)
    assert got.mean == pytest.approx(expected, abs=1e-8)
    assert got.cov == pytest.approx(np.linalg.inv(precision), abs=1e-8)

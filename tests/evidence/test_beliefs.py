import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evidence.beliefs import class_probabilities
from evidence.contracts import Prediction, Readout

READOUT = Readout(id="r", name="r", threshold=0.1)


@settings(deadline=None)  # the first example imports scipy.special
@given(st.floats(-2, 2), st.floats(1e-3, 3), st.floats(1e-3, 2), st.sampled_from([None, 3.0, 4.0, 30.0]))
def test_against_scipy(mean, sd, threshold, dof):
    spread = stats.norm(mean, sd) if dof is None else stats.t(dof, mean, sd * ((dof - 2) / dof) ** 0.5)
    got = class_probabilities(mean, sd, threshold, dof)
    assert got == pytest.approx(
        (spread.cdf(-threshold), spread.cdf(threshold) - spread.cdf(-threshold), spread.sf(threshold)), abs=1e-9
    )
    assert sum(got) == pytest.approx(1)


@pytest.mark.parametrize("mean", [-0.2, -0.1, 0.0, 0.1, 0.2])
def test_without_deviation_it_is_the_class_of_the_mean(mean):
    chances = class_probabilities(mean, 0.0, 0.1)
    assert ("down", "near zero", "up")[chances.index(1.0)] == READOUT.classify(mean)


def test_the_most_probable_class_need_not_be_that_of_the_mean():
    wide = Prediction(readout="r", mean=0.05, sd=1.0, dof=4.0)
    assert READOUT.classify(wide.mean) == "near zero"
    assert READOUT.decide(wide) == "up"
    assert READOUT.decide(wide, threshold=5.0) == "near zero"
    assert READOUT.decide(wide.model_copy(update={"dof": None})) == "near zero"


def test_a_tie_is_near_zero():
    assert READOUT.decide(Prediction(readout="r", mean=0.1, sd=0.0, dof=4.0)) == "near zero"

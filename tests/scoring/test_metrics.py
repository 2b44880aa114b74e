import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score

from scoring.clusters import cluster_accuracy, cluster_mean
from scoring.intervals import Draws, draw_cases, score
from scoring.metrics import Marks, rounded


def marks(truth, label, error=None, cluster=None):
    n = len(truth)
    return Marks(
        np.array(cluster if cluster is not None else range(n), dtype=np.intp),
        np.array(truth, dtype=np.intp),
        np.array(label, dtype=np.intp),
        np.array(error if error is not None else [math.nan] * n, dtype=float),
    )


def test_e06_nothing_one_all_wrong_and_missing():
    nothing = cluster_mean([], [], seed=0)
    assert (nothing.value, nothing.n, nothing.reason) == (None, 0, "nothing to average")
    one = cluster_accuracy([1], ["a"], seed=0)
    assert one.value == 1
    assert (round(one.low, 4), one.high) == (0.2065, 1.0)
    wrong = cluster_accuracy([0] * 25, range(25), seed=0)
    assert (wrong.value, wrong.low, round(wrong.high, 4)) == (0, 0.0, 0.1332)
    some = cluster_mean([0.2, None, 0.4], "abc", seed=0)
    assert (round(some.value, 9), some.n, some.n_missing) == (0.3, 2, 1)
    single = cluster_mean([0.4], ["a"], seed=0)
    assert (single.low, single.high) == (None, None)
    assert "no variation" in single.reason
    json.loads(json.dumps([e._asdict() for e in (nothing, one, wrong, some, single)], allow_nan=False))


def test_scores_that_are_not_finite_are_never_written():
    with pytest.raises(ValueError, match="finite"):
        rounded(math.nan)


labels = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=40)


@given(labels)
def test_accuracy_and_macro_f1_are_those_of_scikit_learn(pairs):
    truth, label = zip(*pairs, strict=True)
    got = score(marks(truth, label), 3, Draws(len(pairs), 0, draws=10))()
    assert got["accuracy"]["value"] == round(accuracy_score(truth, label), 6)
    assert got["macro_f1"]["value"] == pytest.approx(f1_score(truth, label, average="macro"), abs=1e-6)


def test_a_missing_answer_is_counted_and_not_right():
    got = score(marks([0, 1, 2], [0, -1, 1], [0.1, math.nan, 0.3]), 3, Draws(3, 0))()
    assert (got["n"], got["n_answered"], got["n_missing"], got["n_right"]) == (3, 2, 1, 1)
    assert got["accuracy"]["value"] == round(1 / 3, 6)
    assert got["accuracy_of_answered"]["value"] == 0.5
    assert (got["mae"]["value"], got["n_values"]) == (0.2, 2)


def test_nothing_answered_has_no_score_of_answered():
    got = score(marks([0, 1], [-1, -1]), 3, Draws(2, 0))()
    assert got["accuracy"]["value"] == 0
    assert got["accuracy_of_answered"] == {"value": None, "low": None, "high": None}
    assert got["mae"]["value"] is None


def test_an_empty_group_has_no_scores():
    got = score(marks([], []), 3, Draws(2, 0))()
    assert got["n"] == 0
    assert got["accuracy"]["value"] is None


def test_cases_are_drawn_whole():
    """Two cases, one all right and one all wrong: every draw is 0, one half or 1, so the interval is [0, 1]."""
    got = score(marks([0] * 20, [0] * 10 + [1] * 10, cluster=[0] * 10 + [1] * 10), 3, Draws(2, 0))()
    assert (got["accuracy"]["low"], got["accuracy"]["value"], got["accuracy"]["high"]) == (0.0, 0.5, 1.0)


def test_the_case_bootstrap_agrees_with_drawing_one_by_one():
    rng = np.random.default_rng(1)
    truth, label, cluster = rng.integers(0, 3, 60), rng.integers(0, 3, 60), np.repeat(range(12), 5)
    picks = np.random.default_rng(9).integers(0, 12, size=(2000, 12))
    slow = [np.mean(np.concatenate([truth[cluster == c] == label[cluster == c] for c in draw])) for draw in picks]
    got = score(marks(truth, label, cluster=cluster), 3, Draws(12, 9))()
    assert [got["accuracy"]["low"], got["accuracy"]["high"]] == pytest.approx(
        np.percentile(slow, [2.5, 97.5]), abs=1e-6
    )


def test_e06_all_wrong_has_an_interval_of_its_own():
    """25 cases, one readout each, all wrong: 0 to 0.133, not 0 to 0."""
    got = score(marks([0] * 25, [1] * 25), 3, Draws(25, 0))()
    assert (got["accuracy"]["value"], got["accuracy"]["low"], round(got["accuracy"]["high"], 4)) == (0.0, 0.0, 0.1332)
    assert got["mae"] == {"value": None, "low": None, "high": None}


def test_one_case_has_no_interval():
    got = score(marks([0, 1], [0, 0], [0.1, 0.2], cluster=[0, 0]), 3, Draws(1, 0))()
    assert got["accuracy"] == {"value": 0.5, "low": None, "high": None}
    assert got["mae"] == {"value": 0.15, "low": None, "high": None}


def test_sums_are_those_of_the_matrix_of_draws():
    columns = np.random.default_rng(3).integers(0, 9, size=(37, 2))
    draws = Draws(37, 5, draws=123)
    first, second, again = (draws.add(columns[:, c]) for c in (0, 1, 0))
    assert again == first, "the same numbers are drawn once"
    assert (draws.sums(second, first) == draw_cases(37, 5, draws=123) @ columns[:, ::-1]).all()
    with pytest.raises(RuntimeError, match="before the first sum"):
        draws.add(columns[:, 0])

import json

import numpy as np
import pytest

from evidence.errors import ContractError
from scoring.clusters import cluster_accuracy, cluster_mean, cluster_sums, cluster_weighted_mean, grouped
from scoring.intervals import draw_cases, drawn_ratios
from scoring.perception import by_perception


def test_draws_are_those_of_the_case_bootstrap():
    """One random stream, whatever way it is used, and whatever the block."""
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 4, 37).astype(float)
    sums = counts * rng.random(37)
    weights = draw_cases(37, 5, draws=123)
    np.testing.assert_allclose(drawn_ratios(sums, counts, 5, draws=123), (weights @ sums) / (weights @ counts))
    assert (weights.sum(axis=1) == 37).all()
    picks = np.random.default_rng(5).integers(0, 37, size=(123, 37))
    np.testing.assert_array_equal(weights[122], np.bincount(picks[122], minlength=37))


def test_the_interval_is_that_of_drawing_papers_one_by_one():
    rng = np.random.default_rng(2)
    papers = np.repeat([f"p{n}" for n in range(30)], rng.integers(1, 9, 30))
    right = rng.random(len(papers)) < 0.4
    got = cluster_accuracy(right, papers, seed=3)
    picks = np.random.default_rng(3).integers(0, 30, size=(2000, 30))
    slow = [np.concatenate([right[papers == f"p{p}"] for p in draw]).mean() for draw in picks]
    assert (got.low, got.high) == pytest.approx(tuple(np.percentile(slow, [2.5, 97.5])))
    assert (got.value, got.n, got.n_clusters) == (pytest.approx(right.mean()), len(papers), 30)


def test_whole_clusters_make_a_wider_interval_than_items_alone():
    right, papers = [True] * 50 + [False] * 50, [n // 10 for n in range(100)]
    by_paper = cluster_accuracy(right, papers, seed=1)
    by_item = cluster_accuracy(right, range(100), seed=1)
    assert by_paper.high - by_paper.low > 2 * (by_item.high - by_item.low)


def test_every_paper_counts_alike_in_the_weighted_mean():
    values, papers = [1.0, 1.0, 1.0, 4.0], ["a", "a", "a", "b"]
    assert cluster_mean(values, papers, seed=0).value == 1.75
    weighted = cluster_weighted_mean(values, papers, seed=0)
    assert (weighted.value, weighted.low, weighted.high, weighted.n) == (2.5, 1.0, 4.0, 4)


def test_missing_values_are_counted_and_left_out():
    got = cluster_mean([0.2, None, 0.4, float("nan")], ["a", "b", "c", "c"], seed=0)
    assert (got.value, got.n, got.n_missing, got.n_clusters) == (pytest.approx(0.3), 2, 2, 2)
    assert cluster_sums([None, 1.0], ["a", "b"]).names == ("b",)


def test_e06_nothing_one_and_all_wrong():
    nothing = cluster_mean([], [], seed=0)
    assert (nothing.value, nothing.n, nothing.reason) == (None, 0, "nothing to average")
    wrong = cluster_accuracy([False] * 25, range(25), seed=0)
    assert (wrong.value, wrong.low, round(wrong.high, 4)) == (0.0, 0.0, 0.1332)
    one = cluster_accuracy([True], ["a"], seed=0)
    assert (one.value, round(one.low, 4), one.high) == (1.0, 0.2065, 1.0)
    grade = cluster_mean([1.0, 1.0], ["a", "b"], seed=0)
    assert (grade.value, grade.low, grade.high) == (1.0, None, None), "a grade is no proportion"
    json.dumps([nothing._asdict(), wrong._asdict(), grade._asdict()], allow_nan=False)


def test_wrong_input_is_refused():
    with pytest.raises(ContractError, match="one cluster a value"):
        cluster_mean([1.0, 2.0], ["a"], seed=0)
    with pytest.raises(ContractError, match="value 1 is infinite"):
        cluster_mean([1.0, float("inf")], ["a", "b"], seed=0)
    with pytest.raises(ContractError, match="a missing answer is False"):
        cluster_accuracy([True, None], ["a", "b"], seed=0)


# SPUR: items a task (Table 2, with Qual and Quant as Table 1 has them) and accuracies of Table 3, percent
COUNTS = {"NP": 636, "MP": 634, "IL": 621, "TA": 1357, "HI": 130, "Qual": 319, "Quant": 567}
STAGES = {"perception": ("NP", "MP", "IL"), "understanding": ("TA", "HI"), "reasoning": ("Qual", "Quant")}
SPUR = {
    "Gemini 3 Pro": ((61.26, 67.74, 59.67, 51.04, 59.23, 90.31, 58.90), (62.92, 51.77, 70.29, 60.57)),
    "Ministral 3 14B": ((50.88, 61.40, 56.56, 57.79, 70.00, 72.50, 56.81), (56.25, 58.86, 62.49, 58.48)),
    "Gemini 2.5 Pro": ((56.47, 62.97, 56.47, 53.30, 61.54, 86.54, 57.94), (58.65, 54.02, 68.24, 59.00)),
}


@pytest.mark.parametrize("name", SPUR)
def test_spur_micro_averages(name):
    """The counts of right answers behind the printed task accuracies give the printed averages of the stages."""
    tasks, printed = SPUR[name]
    right, groups = [], []
    for (task, n), accuracy in zip(COUNTS.items(), tasks, strict=True):
        hits = round(n * accuracy / 100)
        right += [True] * hits + [False] * (n - hits)
        groups += [task] * n
    got = grouped(right, groups, [n // 4 for n in range(len(right))], micro=STAGES, seed=0, draws=100)
    assert list(got) == [*sorted(COUNTS), *STAGES, "overall"]
    found = [100 * got[average].value for average in (*STAGES, "overall")]
    assert found == pytest.approx(printed, abs=0.16)
    assert got["overall"].n == 4264


def test_groups_of_grades_and_names_that_clash():
    got = grouped([1, 5, None], ["L1", "L2", "L2"], "abc", micro={}, seed=0, of=cluster_mean)
    assert (got["L2"].value, got["L2"].n_missing, got["overall"].value) == (5.0, 1, 3.0)
    with pytest.raises(ContractError, match="'L1' is the name of a group and of an average"):
        grouped([True], ["L1"], ["a"], micro={"L1": ("L1",)}, seed=0)


def test_reasoning_by_perception():
    got = by_perception(
        reasoning_right=[True, False, True, True, False],
        reasoning_images=["i1", "i2", "i2", "i3", "i4"],
        perception_right=[True, True, True, False, True],
        perception_images=["i1", "i1", "i2", "i2", "i3"],
        seed=0,
    )
    assert (got.perceived.value, got.perceived.n) == (1.0, 2)
    assert (got.not_perceived.value, got.not_perceived.n) == (0.5, 2)
    assert got.n_without_perception == 1


def test_published_split_of_reasoning_by_perception():
    """SPUR Table 5, Direct: 71.66 and 32.40 of 423 questions are 177 of 247 and 57 of 176."""
    right = [True] * 177 + [False] * 70 + [True] * 57 + [False] * 119
    got = by_perception(
        reasoning_right=right,
        reasoning_images=list(range(423)),
        perception_right=[n < 247 for n in range(423)],
        perception_images=list(range(423)),
        seed=0,
        draws=100,
    )
    assert [round(100 * side.value, 2) for side in got[:2]] == [71.66, 32.39]

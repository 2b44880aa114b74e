import itertools

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from evidence.errors import ContractError
from scoring.correlation import correlate, leave_one_family_out

# OmniVCBench, Table 34: MCQ accuracy in percent and AIVC-Judge mean, item-level and paper-weighted
TABLE34 = {
    "GPT-5.6-sol": ("GPT", 55.093, 3.285, 56.033, 3.286),
    "Grok-4.6": ("Grok", 50.304, 3.100, 51.492, 3.111),
    "Claude-Sonnet-4-5": ("Claude", 49.366, 2.681, 50.123, 2.702),
    "GPT-5.6-luna": ("GPT", 43.739, 3.161, 44.478, 3.140),
    "Qwen3-VL-8B-SFT": ("Qwen3-VL", 34.277, 2.379, 34.111, 2.387),
    "Qwen3-VL-8B": ("Qwen3-VL", 33.816, 2.333, 34.233, 2.342),
    "Qwen3-VL-4B": ("Qwen3-VL", 30.476, 2.226, 31.259, 2.206),
    "InternVL3.5-8B": ("InternVL", 30.278, 2.320, 30.557, 2.316),
    "Qwen2.5-VL-7B": ("Qwen2.5-VL", 26.625, 2.108, 26.971, 2.077),
    "LLaVA-OneVision-7B": ("LLaVA", 25.539, 2.003, 25.564, 1.984),
    "LLaVA-Med-Mistral-7B": ("LLaVA", 15.863, 1.861, 16.538, 1.861),
}
FAMILIES, MCQ, JUDGE, MCQ_PAPER, JUDGE_PAPER = (list(column) for column in zip(*TABLE34.values(), strict=True))
PROPRIETARY = ("GPT", "Grok", "Claude")


def test_table_34():
    got = correlate(MCQ, JUDGE, seed=0)
    assert round(got.pearson.value, 3) == 0.938
    assert round(got.spearman.value, 3) == 0.964
    assert (got.pearson.low, got.pearson.high) == pytest.approx((0.843, 0.993), abs=0.01)
    assert (got.spearman.low, got.spearman.high) == pytest.approx((0.767, 1.0), abs=0.02)
    assert got.pearson.p < 0.001
    weighted = correlate(MCQ_PAPER, JUDGE_PAPER, seed=0, draws=100)
    assert (round(weighted.pearson.value, 4), round(weighted.spearman.value, 4)) == (0.9454, 0.9545)


def test_table_34_open_and_proprietary_models():
    open_weight = [family not in PROPRIETARY for family in FAMILIES]
    for chosen, n, pearson in ((open_weight, 7, 0.955), ([not o for o in open_weight], 4, 0.208)):
        x, y = np.array(MCQ)[chosen], np.array(JUDGE)[chosen]
        got = correlate(x, y, seed=0, draws=200)
        assert (got.pearson.n, round(got.pearson.value, 3)) == (n, pearson)


def test_leave_one_family_out():
    """The paper prints 0.922-0.971 and 0.917-0.967 on the common item set; Table 34 is close to it."""
    got = leave_one_family_out(MCQ_PAPER, JUDGE_PAPER, FAMILIES)
    assert [left.family for left in got] == ["GPT", "Grok", "Claude", "Qwen3-VL", "InternVL", "Qwen2.5-VL", "LLaVA"]
    assert [left.n for left in got] == [9, 10, 10, 8, 10, 10, 9]
    pearson = [left.pearson for left in got]
    assert (min(pearson), max(pearson)) == pytest.approx((0.922, 0.971), abs=0.01)
    spearman = [left.spearman for left in got]
    assert (min(spearman), max(spearman)) == pytest.approx((0.917, 0.967), abs=0.01)


def test_coefficients_and_bootstrap_ranks_are_scipys():
    rng = np.random.default_rng(3)
    x, y = rng.integers(0, 5, 12), rng.integers(0, 5, 12)
    got = correlate(x, y, seed=8, draws=300)
    assert got.pearson.value == pytest.approx(pearsonr(x, y).statistic)
    assert got.spearman.value == pytest.approx(spearmanr(x, y).statistic)
    picks = np.random.default_rng(8).integers(0, 12, size=(300, 12))
    slow = [spearmanr(x[p], y[p]).statistic for p in picks]
    assert (got.spearman.low, got.spearman.high) == pytest.approx(tuple(np.percentile(slow, [2.5, 97.5])))


def test_few_models_get_the_exact_permutation_p():
    x, y = [1.0, 2.0, 4.0, 8.0, 9.0], [2.0, 1.0, 5.0, 6.0, 9.0]
    found = [abs(pearsonr(x, [y[i] for i in order]).statistic) for order in itertools.permutations(range(5))]
    got = correlate(x, y, seed=0, draws=50)
    assert got.pearson.p == pytest.approx(np.mean(np.array(found) >= pearsonr(x, y).statistic - 1e-9))


def test_what_has_no_correlation_says_so():
    two = correlate([1, 2], [1, 2], seed=0)
    assert (two.pearson.value, two.pearson.reason) == (None, "fewer than three models")
    flat = correlate([1, 1, 1, 1], [1, 2, 3, 4], seed=0)
    assert flat.spearman.value is None
    assert "same for every model" in flat.spearman.reason
    with pytest.raises(ContractError, match="missing or not finite"):
        correlate([1, None, 3], [1, 2, 3], seed=0)
    assert leave_one_family_out([1, 2, 3], [3, 1, 2], ["a", "b", "c"])[0].pearson is None

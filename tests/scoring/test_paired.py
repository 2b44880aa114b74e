import itertools

import numpy as np
import pytest
from scipy.stats import binomtest

from evidence.errors import ContractError
from scoring.paired import holm, mcnemar_exact, paired_difference, sign_flip


def table(both, only_first, only_second, neither):
    first = [True] * (both + only_first) + [False] * (only_second + neither)
    second = [True] * both + [False] * only_first + [True] * only_second + [False] * neither
    return first, second


def test_mcnemar_right_values():
    got = mcnemar_exact(*table(30, 12, 3, 55))
    assert got[:5] == (100, 30, 12, 3, 55)
    assert got.p == pytest.approx(0.03515625)
    assert got.p == pytest.approx(binomtest(3, 15).pvalue)
    assert mcnemar_exact(*table(30, 0, 0, 55)).p == 1.0
    assert mcnemar_exact([], []).p is None
    with pytest.raises(ContractError, match="the same items twice"):
        mcnemar_exact([True], [True, False])


def test_holm_right_values():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.01, None, 0.04]) == [pytest.approx(0.02), None, pytest.approx(0.04)]
    assert holm([None, 0.03]) == [None, 0.03]


def test_sign_flip_counts_every_pattern_of_few_clusters():
    first, second = [0, 0, 1, 0, 1, 0], [1, 1, 1, 0, 0, 1]
    clusters = ["a", "a", "b", "c", "d", "e"]
    differences = [2, 0, 0, -1, 1]
    patterns = [
        abs(sum(s * d for s, d in zip(p, differences, strict=True))) for p in itertools.product((1, -1), repeat=5)
    ]
    got = sign_flip(first, second, clusters, seed=0)
    assert got.p == pytest.approx(np.mean([x >= 2 for x in patterns]))
    assert (got.n_clusters, got.n_differing, got.exact) == (5, 3, True)


def test_sign_flip_of_single_items_is_mcnemar():
    """With one item a cluster the exact sign test on the discordant pairs is McNemar's."""
    first, second = table(30, 12, 3, 55)
    got = sign_flip(first, second, range(100), seed=0)
    assert got.exact
    assert got.p == pytest.approx(0.03515625)


def test_sign_flip_draws_agree_with_the_exact_value_and_are_never_zero():
    first, second = table(10, 15, 4, 5)
    got = sign_flip(first, second, range(34), seed=4)
    assert (got.exact, got.n_differing) == (False, 19)
    assert got.p == pytest.approx(binomtest(4, 19).pvalue, abs=0.006)
    assert got == sign_flip(first, second, range(34), seed=4)
    sure = sign_flip([0] * 60, [1] * 60, range(60), seed=0, draws=999)
    assert sure.p == 1 / 1000


def test_sign_flip_sees_clusters():
    """Forty items that all change in the same two papers are two facts, not forty."""
    got = sign_flip([0] * 40, [1] * 40, [0] * 20 + [1] * 20, seed=0)
    assert got.p == 0.5
    assert mcnemar_exact([0] * 40, [1] * 40).p < 1e-10


def test_nothing_differs_or_nothing_is_there():
    assert sign_flip([1, 0], [1, 0], ["a", "b"], seed=0).p == 1.0
    assert sign_flip([], [], [], seed=0).p is None
    with pytest.raises(ContractError, match="1 differences are missing"):
        sign_flip([1, None], [1, 0], ["a", "b"], seed=0)


def test_paired_difference_keeps_pairs_together():
    """Both answers of a paper are drawn together: what both find hard does not widen the interval."""
    rng = np.random.default_rng(0)
    hard = rng.random(80) < 0.5
    first, second = hard.astype(float), hard.astype(float)
    second[:8] = 1 - second[:8]
    got = paired_difference(first, second, range(80), seed=1)
    assert got.value == pytest.approx(second.mean() - first.mean())
    assert got.high - got.low < 0.2
    alike = paired_difference([0, 0], [1, 1], ["a", "b"], seed=0)
    assert (alike.value, alike.low) == (1.0, None)


def test_false_alarms_of_the_cluster_test_stay_at_the_level():
    """Two answerers alike, readouts of a case strongly alike: McNemar rejects too often, the sign flip does not."""
    rng = np.random.default_rng(11)
    rejected = np.zeros(2)
    for run in range(300):
        mood = rng.random((2, 40)) < 0.5
        first, second = (np.repeat(m, 5) ^ (rng.random(200) < 0.1) for m in mood)
        clusters = np.repeat(np.arange(40), 5)
        rejected += [
            sign_flip(first, second, clusters, seed=run, draws=400).p < 0.05,
            mcnemar_exact(first, second).p < 0.05,
        ]
    assert rejected[0] / 300 < 0.09
    assert rejected[1] / 300 > 0.2

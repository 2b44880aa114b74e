import numpy as np
import pytest

from evidence.errors import ContractError
from scoring.agreement import fleiss, krippendorff, quadratic_kappa

# Krippendorff's example of 3 coders and 15 units; right values from the package krippendorff 0.9.0
N = None
CODERS = [
    [N, N, N, N, N, 3, 4, 1, 2, 1, 1, 3, 3, N, 3],
    [1, N, 2, 1, 3, 3, 4, 3, N, N, N, N, N, N, N],
    [N, N, 2, 1, 3, 4, 4, N, 2, 1, 1, 3, 3, N, 4],
]
# Fleiss 1971: 10 subjects, 5 categories, 14 raters
FLEISS = [
    [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
]  # fmt: skip


@pytest.mark.parametrize(
    ("level", "alpha"),
    [("nominal", 0.691358024691358), ("ordinal", 0.8067214199413153), ("interval", 0.8108448928121059)],
)
def test_krippendorff_right_values(level, alpha):
    got = krippendorff(CODERS, level)
    assert got.value == pytest.approx(alpha, abs=1e-12)
    assert got.n == 12


def test_krippendorff_without_pairs_or_variation():
    assert krippendorff([[1, None], [None, 2]], "nominal") == (None, 0, "no unit was rated twice")
    assert krippendorff([[2, 2], [2, 2]], "interval").value is None
    assert krippendorff([[1, 2, 3], [1, 2, 3]], "ordinal").value == pytest.approx(1.0)


def test_krippendorff_does_not_care_who_is_first():
    shuffled = [[CODERS[r][u] for u in np.random.default_rng(1).permutation(15)] for r in (2, 0, 1)]
    assert krippendorff(shuffled, "ordinal").value == pytest.approx(krippendorff(CODERS, "ordinal").value)


def test_fleiss_right_value():
    assert fleiss(FLEISS).value == pytest.approx(0.20993070442195522)
    assert fleiss([[3, 0], [3, 0]]).value is None
    with pytest.raises(ContractError, match=r"same number of raters.*\[2, 3\]"):
        fleiss([[2, 0], [1, 2]])


def test_quadratic_kappa_right_values():
    got = quadratic_kappa([1, 2, 3, 4, 5, 1, 2, 3], [1, 2, 2, 4, 5, 3, 2, 3])
    assert got.value == pytest.approx(0.803921568627451)
    same = quadratic_kappa([3, 3, 3], [3, 3, 3])
    assert (same.value, same.n) == (None, 3)
    assert "not defined" in same.reason
    assert quadratic_kappa([1, 1], [1, 2]).value == 0.0
    with pytest.raises(ContractError, match="grade 6 is none of"):
        quadratic_kappa([6], [5])

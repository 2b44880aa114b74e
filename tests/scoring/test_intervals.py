"""Percentiles as numpy gives them, to the last digit."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scoring.intervals import percentiles

SHARES = st.sampled_from([(0.025, 0.975), (0.0, 1.0), (0.5, 0.25)])


@given(st.lists(st.floats(-1e6, 1e6) | st.sampled_from([0.0, 0.5]), min_size=1, max_size=60), SHARES)
def test_percentiles_are_those_of_numpy(values: list[float], shares: tuple[float, ...]) -> None:
    assert percentiles(np.array(values), shares) == np.percentile(values, [100 * share for share in shares]).tolist()


def test_percentiles_of_all_draws() -> None:
    for draws in np.random.default_rng(1).normal(size=(200, 2000)):
        assert percentiles(draws, (0.025, 0.975)) == np.percentile(draws, [2.5, 97.5]).tolist()

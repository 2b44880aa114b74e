"""Texts and numbers of score files are canonical JSON, whatever is in them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evidence.values import canonical_json
from loops.lines import END, head_text, number_texts, text_json
from scoring.metrics import rounded


@pytest.mark.parametrize("text", [None, "x", "", "100 % %s", END, 'é"\\', "\x7f", "a/b\n", "\U0001f600"])
def test_a_text(text: str | None) -> None:
    assert text_json(text) == canonical_json(text)


@pytest.mark.parametrize("value", [None, 0.0, -0.0, 1e-9, 0.1234567, -3.0, 1e20, 123456.7890123])
@pytest.mark.parametrize(("status", "label", "reason"), [("answered", "up", ""), ("missing", None, "no % label")])
def test_an_answer(value, status: str, label, reason: str) -> None:
    row = {"status": status, "label": label, "value": rounded(value), **({"reason": reason} if reason else {})}
    (text,) = number_texts(np.array([math.nan if value is None else value]))
    assert head_text(status=status, label=label, reason=reason) + text + "}" == canonical_json(row)


TIES = st.builds(lambda k, n: (k + 0.5) / 10**n, st.integers(-(10**9), 10**9), st.integers(0, 8))
SHORT = st.builds(lambda k, n: k / 10**n, st.integers(-(10**6), 10**6), st.integers(0, 9))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.floats(-2, 2) | TIES | SHORT | st.just(math.nan)))
def test_many_numbers_are_written_as_one_is(values: list[float]) -> None:
    assert number_texts(np.array(values, dtype=float)) == [
        canonical_json(rounded(None if math.isnan(value) else value)) for value in values
    ]

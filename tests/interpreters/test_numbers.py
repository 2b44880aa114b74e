"""Report E09: one table decides every number."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interpreters.numbers import read_number

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [(0.85, 0.85), ("0.85", 0.85), (" 0.85 ", 0.85), (0, 0.0), (1, 1.0), ("1e-3", 0.001), (".5", 0.5)],
)
def test_e09_confidence_read(given, expected):
    assert read_number(given, 0, 1) == (expected, "")


@pytest.mark.parametrize(
    "given",
    [
        "85%",
        85,
        "85",
        "high",
        "0.7-0.8",
        None,
        math.nan,
        math.inf,
        True,
        False,
        "NaN",
        "Infinity",
        "1e999",
        10**400,
        "9/10",
        "",
        "0x1",
        "1_0",
        "\u0663",
        "1.0.0",
        [0.5],
        {"p": 0.5},
        -0.01,
        1.01,
        "0." + "1" * 100,
    ],
)
def test_e09_confidence_failures_have_a_reason_and_no_value(given):
    reading = read_number(given, 0, 1)
    assert reading.value is None
    assert "expected a plain number from 0 to 1, got" in reading.problem


@pytest.mark.parametrize(
    ("given", "expected"), [("\u22120.42", -0.42), ("+1.5", 1.5), ("-2", -2.0), ("1e\u22122", 0.01)]
)
def test_e09_change_read(given, expected):
    assert read_number(given).value == expected


@pytest.mark.parametrize("given", ["-0,42", "+1.5 \u00b1 0.2", "1.5 +- 0.2", "\u2013 0.42", "0.42 log2fc"])
def test_e09_change_failures(given):
    assert read_number(given).value is None


def test_out_of_range_says_so():
    assert read_number(85, 0, 1).problem == "expected a plain number from 0 to 1, got 85, which is out of range"


@settings(deadline=None)
@given(JSON, st.none() | st.floats(-2, 0), st.none() | st.floats(0, 2))
def test_total_and_never_out_of_range(value, low, high):
    reading = read_number(value, low, high)
    assert (reading.value is None) == bool(reading.problem)
    if reading.value is not None:
        assert math.isfinite(reading.value)
        assert low is None or reading.value >= low
        assert high is None or reading.value <= high
    assert read_number(value, low, high) == reading

"""Lines made from templates are the canonical JSON of their rows, whatever is in them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evidence.values import canonical_json
from loops.lines import SLOT, head_text, number_text, number_texts, template
from scoring.metrics import rounded

ODD = [
    "x",
    "100 % %s",
    SLOT,
    f"a{SLOT}b",
    'é"\\',
    "\x7f",
    "a/b",
    None,
    0.1,
    0.0,
    5.4e-05,
    1e-06,
    -9e-06,
    1e16,
    1e300,
    5,
]


@pytest.mark.parametrize("odd", ODD)
def test_a_template_gives_canonical_json(odd) -> None:
    data = odd if odd is None or isinstance(odd, float | int) else "".join(list(odd))  # as read: never the SLOT itself
    line = template({"b": SLOT, "a": data, "z%": SLOT, "m": {"inner": data}}) % ('{"x":1}', "null")
    assert line == canonical_json({"b": {"x": 1}, "a": data, "z%": None, "m": {"inner": data}})


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
        number_text(None if math.isnan(value) else value) for value in values
    ]

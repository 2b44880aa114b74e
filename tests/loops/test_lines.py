"""Lines made from templates are the canonical JSON of their rows, whatever is in them."""

import pytest

from evidence.values import canonical_json
from loops.lines import SLOT, answer_text, template
from scoring.metrics import rounded


@pytest.mark.parametrize("odd", ["x", "100 % %s", SLOT, f"a{SLOT}b", 'é"\\', None, 0.1])
def test_a_template_gives_canonical_json(odd) -> None:
    data = odd if odd is None or isinstance(odd, float) else "".join(list(odd))  # as read: never the SLOT itself
    line = template({"b": SLOT, "a": data, "z%": SLOT, "m": {"inner": data}}) % ('{"x":1}', "null")
    assert line == canonical_json({"b": {"x": 1}, "a": data, "z%": None, "m": {"inner": data}})


@pytest.mark.parametrize("value", [None, 0.0, -0.0, 1e-9, 0.1234567, -3.0, 1e20, 123456.7890123])
@pytest.mark.parametrize(("status", "label", "reason"), [("answered", "up", ""), ("missing", None, "no % label")])
def test_an_answer(value, status: str, label, reason: str) -> None:
    row = {"status": status, "label": label, "value": rounded(value), **({"reason": reason} if reason else {})}
    assert answer_text(status, label, value, reason) == canonical_json(row)

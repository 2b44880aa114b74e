"""The one reader of numbers in replies.

What is decided, for every number a model is asked for (docs/replies.md shows the same table):

    given                              read as
    ---------------------------------  ------------------------------------------------------------------
    0.85, 1, -2e-3                     the number
    "0.85", " +1.5 ", ".5", "1e-3"     the number: a text that is one plain decimal number and nothing else
    "\\u22120.42" (Unicode minus)       -0.42
    "85%"                              failure: no units; a fraction of 1 is asked for, so write 0.85
    85 where 0 to 1 is asked           failure: out of range, never moved to the nearest limit
    true, false                        failure: true is not 1
    "high", "0.7-0.8", "9/10"          failure: a word, a range, a fraction
    "-0,42"                            failure: a decimal comma
    "+1.5 \\u00b1 0.2"                  failure: a number with its error
    NaN, Infinity, 1e999               failure: not finite
    null                               failure; where a number may be left out, the reply parser asks first

A failure has a reason and no value: 0, 0.5 or a limit never stands in for a number that could not be read.
"""

from __future__ import annotations

import json
import math
import re
from typing import NamedTuple

from interpreters.extract import shown

_PLAIN = re.compile(r"[+\-\u2212]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+\-\u2212]?[0-9]+)?")
_LONGEST = 64


class NumberReading(NamedTuple):
    """A number, or the reason why there is none. Exactly one of the two is given."""

    value: float | None
    problem: str = ""


def read_number(value: object, low: float | None = None, high: float | None = None) -> NumberReading:
    """Read one number as the table above says; `low` and `high` are the limits, themselves allowed."""
    number = _finite(value)
    if number is None:
        return NumberReading(None, f"expected {_asked(low, high)}, got {_given(value)}")
    if (low is not None and number < low) or (high is not None and number > high):
        return NumberReading(None, f"expected {_asked(low, high)}, got {number:g}, which is out of range")
    return NumberReading(number)


def _finite(value: object) -> float | None:
    if type(value) is float:  # most are
        return value + 0.0 if math.isfinite(value) else None  # + 0.0 turns -0.0 into 0.0
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        text = value.strip()
        if len(text) > _LONGEST or not _PLAIN.fullmatch(text):
            return None
        return _finite(float(text.replace("\u2212", "-")))
    if not isinstance(value, int | float):
        return None
    try:
        return _finite(float(value))
    except OverflowError:
        return None


def _asked(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f"a plain number from {low:g} to {high:g}"
    if low is not None:
        return f"a plain number of at least {low:g}"
    return "a plain number" if high is None else f"a plain number of at most {high:g}"


def _given(value: object) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, int | float):
        return "a number that is not finite or too large"
    return "a list" if isinstance(value, list) else "an object"

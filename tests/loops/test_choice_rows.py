"""Rows of choices are canonical JSON with the numbers of the summary, whatever the case and its menu are called."""

import json
import math

import pytest

from evidence.contracts import Measurement, Readout
from evidence.values import canonical_json
from loops.choice_rows import COLUMNS, Chosen, Tried, write_rows
from loops.information import Worth
from loops.opened import Asked, Case
from scoring.metrics import rounded

ODD = ["x", "100 % %s", 'é"\\', "\x7f", "a/b"]
READOUTS = tuple(Readout(id=name, name=name, threshold=0.2) for name in "pqr")


def tried(entries: tuple[str, ...], *, worths: bool, oracle: str | None) -> Tried:
    return Tried(
        entries=entries,
        right=[1, 2, 3][: len(entries) + 1],
        mae=[0.25, 1 / 3, 5.4e-06][: len(entries) + 1],
        worths=[Worth(0.1234567, 2 / 3), Worth(0.0, 1e-7)][: len(entries)] if worths else [],
        joint="gaussian" if worths else None,
        picks={"oracle": oracle, "eig": entries[0] if worths else None, "eag": entries[0] if worths else None},
    )


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("worths", [True, False])
def test_a_row_is_canonical_json(odd: str, worths: bool) -> None:
    case = Case(odd, Asked(READOUTS, tuple(Measurement(id=m, name=m) for m in (odd, "a"))))
    rows = [
        Chosen(case, chosen, tried((odd, "a"), worths=worths, oracle="a")) for chosen in (odd, "a", None, "not there")
    ]
    write_rows(rows)
    lines = [row.line % 7 for row in rows]
    assert lines == [canonical_json(json.loads(line)) + "\n" for line in lines]
    assert [Chosen(case, None, rows[0].tried).line % 7] == lines[2:3]  # alone it is written as with others
    assert lines[2] == lines[3]
    row = json.loads(lines[0])
    assert (row["case"], row["repeat"], row["n_readouts"], row["joint"]) == (
        odd,
        7,
        3,
        "gaussian" if worths else None,
    )
    assert row["before"] == {"mae": 0.25, "right": 1}
    assert row["chosen"] == {
        "expected_gain": rounded(2 / 3) if worths else None,
        "gain": 1,
        "mae": rounded(1 / 3),
        "measurement": odd,
        "right": 2,
    }
    assert row["menu"]["a"] == {
        "accuracy": 0.0 if worths else None,
        "information": 0.0 if worths else None,
        "mae": 5e-06,
        "right": 3,
    }
    assert (row["oracle"]["measurement"], row["random"]) == ("a", {"mae": rounded((1 / 3 + 5.4e-06) / 2), "right": 2.5})
    assert row["regret"] == {"mae": rounded(1 / 3 - 5.4e-06), "right": 1}


def test_the_numbers_of_a_row_are_those_of_its_line() -> None:
    case = Case("c", Asked(READOUTS, ()))
    for chosen, entries in (("m", ("m", "a")), ("a", ("m", "a")), (None, ("m",)), ("m", ())):
        made = Chosen(case, chosen, tried(entries, worths=bool(entries), oracle=entries[-1] if entries else None))
        for (name, *key), number in zip(COLUMNS, made.numbers, strict=True):
            value = made.row[name]
            stated = value if not key else None if value is None else value[key[0]]
            assert rounded(None if math.isnan(number) else number) == stated

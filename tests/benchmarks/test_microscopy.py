"""The measurement on the twin, whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("skimage", reason="needs the images extra: pip install -e '.[images]'")

from benchmarks.microscopy import (
    Tally,
    compound_of,
    gains,
    held_out_scores,
    read_cells,
    second_field_tallies,
    summary,
    tally,
)
from evidence.bbbc021 import open_source
from evidence.cell_features import NAMES, feature_names


def test_on_the_twin_actin_helps_where_it_must():
    cells = read_cells(open_source("twin", None))
    start, whole = held_out_scores(cells, feature_names("DT")), held_out_scores(cells, NAMES)
    before, after = second_field_tallies(cells, start, whole)
    rows = gains(before, after, cells.classes)
    both = [rows["actin"][label]["gain"]["value"] for label in ("mechanism D", "mechanism E")]
    assert max(both) > 0
    assert rows["actin"]["all"]["after"] > rows["actin"]["all"]["before"]
    found = summary(tally(cells, whole, compound_of))
    assert (found["n"], found["not_evaluable"]) == (19, 0)
    assert found["right"] >= 18


def test_units_without_a_legal_reference_are_counted_not_scored_wrong():
    cells = read_cells(open_source("twin", None))
    scores = held_out_scores(cells, NAMES)
    scores[cells.truth == 0] = np.nan
    found = tally(cells, scores, compound_of)
    assert found.not_evaluable == 4
    assert len(found.right) == 15


def test_intervals_are_over_compounds():
    one = Tally(np.array([1.0, 0.0]), np.array([0, 0]), np.array(["a", "a"]), 0)
    assert summary(one)["accuracy"] == {"value": 0.5, "low": None, "high": None}
    two = one._replace(compound=np.array(["a", "b"]))
    assert summary(two)["accuracy"] == {"value": 0.5, "low": 0.0, "high": 1.0}

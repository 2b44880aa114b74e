"""Static scores beside loop gains: one point a model, and an honest interval."""

from __future__ import annotations

import pytest

from evidence.errors import ConfigError
from loops.beside import loop_gain, read_summary, static_beside_loop

GENES = ("HSP70", "HSP90", "CDC6")


def loop(model: str, first: float | None, last: float | None, title: str = "signaling") -> dict:
    rows = [{"name": n, "all": {"accuracy": {"value": v}}} for n, v in (("initial", first), ("revised", last))]
    return {"interpreter": {"name": "openai", "model": model}, "title": title, "rows": rows}


def static(model: str, value: float | None, items: str = "x") -> dict:
    accuracy = {"value": value, "low": None, "high": None, "n": 8, "n_clusters": 4, "n_missing": 0, "reason": ""}
    asked = {"name": "openai", "model": model}
    return {
        "kind": "bench",
        "track": "mcq",
        "items_sha256": items,
        "run": model,
        "interpreter": asked,
        "accuracy": accuracy,
    }


def test_one_point_a_model_over_the_settings_that_all_have():
    names = ("m1", "m2", "m3", "m4")
    statics = [static(name, 0.3 + 0.1 * n) for n, name in enumerate(names)] + [static("alone", 0.9)]
    loops = [loop(name, 0.5, 0.5 + 0.05 * n) for n, name in enumerate(names)]
    loops += [loop("m1", 0.1, 0.9, "microscopy"), loop("other", 0.1, 0.2)]
    found = static_beside_loop(statics, loops)
    assert [(row["model"], row["gain"]) for row in found["rows"]] == [
        ("m1", 0.0),
        ("m2", 0.05),
        ("m3", 0.1),
        ("m4", 0.15),
    ]
    assert found["rows"][0]["gains"] == {"microscopy": 0.8, "signaling": 0.0}
    assert found["settings"] == ["signaling"]
    assert found["unpaired"] == ["alone", "other"]
    assert found["pearson"]["value"] == pytest.approx(1.0)
    assert found["pearson"]["p"] == pytest.approx(2 / 24, abs=1e-6)  # both ends of all orders of four
    assert found["pearson"]["n_models"] == 4


def test_two_models_have_no_correlation():
    found = static_beside_loop([static("a", 0.3), static("b", 0.4)], [loop("a", 0.1, 0.2), loop("b", 0.1, 0.3)])
    assert found["pearson"]["value"] is None
    assert "fewer than three models" in found["pearson"]["reason"]
    assert len(found["rows"]) == 2


def test_a_model_without_a_score_or_a_gain_is_shown_without_a_point():
    found = static_beside_loop([static("a", None), static("b", 0.4)], [loop("a", 0.1, 0.2), loop("b", None, 0.3)])
    assert [row["model"] for row in found["rows"]] == ["a"]
    assert found["pearson"]["n_models"] == 0


def test_static_runs_of_two_item_sets_are_not_mixed():
    with pytest.raises(ConfigError, match="one kind and track on one item set"):
        static_beside_loop([static("a", 0.3), static("b", 0.4, items="y")], [])


def test_the_gain_of_the_committed_reference_run(root):
    summary = read_summary(root / "results" / "signaling-reference")
    assert loop_gain(summary) == pytest.approx(14 / 30 - 10 / 30, abs=1e-6)

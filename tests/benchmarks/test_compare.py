"""Runs side by side, published averages, and static scores beside loop gains."""

from __future__ import annotations

import json

import pytest

from benchmarks.answers import Answering
from benchmarks.compare import compare
from benchmarks.config import load_bench
from benchmarks.scores import choice_summary
from evidence.errors import ConfigError
from loops.beside import loop_gain, read_summary, static_beside_loop
from loops.engine import make
from tests.benchmarks.conftest import Choosing
from tests.benchmarks.test_runs import right_letter


def answered(make_bench, tmp_path, name, wrong=(), **keys):
    def choose(text: str, repeat: int) -> str:
        number = next(n for n in range(8) if f"in panel {n}?" in text)
        return "no idea" if number in wrong else right_letter(text, repeat)

    loaded = load_bench(str(make_bench(name=name, **keys)))
    make(Answering(loaded._replace(interpreter=Choosing(choose, name=name)), tmp_path / name))
    return tmp_path / name


def test_pairs_with_holm(make_bench, tmp_path):
    runs = [
        answered(make_bench, tmp_path, "all"),
        answered(make_bench, tmp_path, "some", wrong=(0, 1, 2, 3, 4, 5)),
        answered(make_bench, tmp_path, "most", wrong=(7,), options="shuffled"),
    ]
    found = compare(runs)
    first = found["pairs"][0]
    assert (first["first"], first["second"], first["n"]) == ("all", "some", 8)
    assert (first["only_first"], first["only_second"]) == (6, 0)
    assert first["p_mcnemar"] == pytest.approx(2 / 64)
    assert first["p_mcnemar_holm"] == pytest.approx(6 / 64)
    assert first["p_sign_flip"] == pytest.approx(2 / 8)  # three sources of two items differ, all alike
    assert first["difference"]["value"] == pytest.approx(-0.75)
    assert first["rates"]["some"] == {"n": 8, "not_read": 6, "refused": 0}


def test_what_is_not_comparable_is_refused(make_bench, tmp_path):
    one = answered(make_bench, tmp_path, "one")
    two = answered(make_bench, tmp_path, "two", track="no_image")
    with pytest.raises(ConfigError, match="the same items and track"):
        compare([one, two])
    with pytest.raises(ConfigError, match="two or more runs"):
        compare([one])


def test_spurs_published_micro_averages_come_out_of_our_summary(static_data):
    tables = json.loads((static_data / "paper_tables" / "spur_paper_tables.json").read_text())
    counts = tables["counts_consistent_with_micro"]
    stages = {"NP": "perception", "MP": "perception", "IL": "perception", "TA": "understanding", "HI": "understanding"}
    row = next(r for r in tables["table3"] if r["name"] == "GLM-4.5V")
    rows = [
        {
            "right": n < round(row[task] * counts[task] / 100),
            "strict": True,
            "status": "letter",
            "source": f"image {n % 97}",
            "image": f"image {n % 97}",
            "repeat": 0,
            "level": None,
            "task": task,
            "stage": stages.get(task, "reasoning"),
            "n_options": 4,
        }
        for task in ("NP", "MP", "IL", "TA", "HI", "Qual", "Quant")
        for n in range(counts[task])
    ]
    found = choice_summary(rows, seed=1)
    for stage in ("perception", "understanding", "reasoning"):
        assert 100 * found["groups"]["stage"][stage]["value"] == pytest.approx(row[f"{stage}_micro"], abs=0.011)
    assert 100 * found["accuracy"]["value"] == pytest.approx(row["overall"], abs=0.011)
    assert found["chance"] == 0.25
    assert found["accuracy"]["n_clusters"] == 97


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

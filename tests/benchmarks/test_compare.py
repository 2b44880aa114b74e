"""Runs side by side, and published averages."""

from __future__ import annotations

import json

import pytest

from benchmarks.answers import Answering
from benchmarks.compare import compare
from benchmarks.config import load_bench
from benchmarks.scores import choice_summary
from evidence.errors import ConfigError
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

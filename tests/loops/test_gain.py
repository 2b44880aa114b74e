"""Who made it help, and whether stated probabilities mean what they say."""

import json
from pathlib import Path

import numpy as np
import pytest

from evidence.journal import read_journal
from interpreters.scripted import ScriptedInterpreter
from loops.config import load_config
from loops.gain import gain_block, gain_lines
from loops.rescore import compute_scores
from loops.runner import run
from scoring.intervals import Draws
from scoring.metrics import Marks

SHIPPED = Path(__file__).resolve().parents[2] / "cases"
GENES = ("HSP70", "HSP90", "CDC6")


def _readouts(folder: Path) -> list[dict]:
    return [row for _, row in read_journal(folder / "scores/readouts.jsonl").records]


def marks(label, error):
    n = len(label)
    return Marks(np.arange(n) // 2, np.zeros(n, dtype=np.intp), np.array(label), np.array(error, dtype=float))


def test_the_parts_add_up_and_are_counted():
    rows = {
        "simulator alone": {"all": marks([1, 1, 0, 1], [0.4, 0.4, 0.1, 0.5])},
        "simulator + adapter": {"all": marks([0, 1, 0, 1], [0.1, 0.4, 0.1, 0.5])},
        "initial": {"all": marks([1, 1, 1, -1], [0.4, 0.4, 0.3, np.nan])},
        "revised": {"all": marks([0, 0, 1, -1], [0.1, 0.2, 0.3, np.nan])},
    }
    block = gain_block(rows, Draws(2, 0))()
    assert list(block) == ["adapter only", "model only", "adapter and model", "evidence"], "no review was made"
    gains = {part: found["all"]["accuracy"]["value"] for part, found in block.items()}
    assert gains == {"adapter only": 0.25, "model only": 0.0, "adapter and model": 0.25, "evidence": 0.5}
    assert gains["adapter only"] + gains["model only"] == gains["adapter and model"]
    model = block["model only"]["all"]
    assert (model["corrections"], model["regressions"], model["n"], model["n_values"]) == (1, 1, 4, 3)
    assert model["mae"]["value"] == pytest.approx((0.0 - 0.2 + 0.2) / 3)
    evidence = block["evidence"]["all"]["accuracy"]
    assert (evidence["low"], evidence["high"]) == (0.0, 1.0), "cases are drawn whole"


def test_a_run_reports_its_gain_and_its_calibration(make_config, tmp_path: Path) -> None:
    outcome = run(load_config(str(make_config()), shipped=SHIPPED), tmp_path / "run")
    rows = {row["name"]: row for row in outcome.summary["rows"]}
    gain = outcome.summary["gain"]
    for group in ("all", "queried", "unqueried"):
        for part in gain.values():
            expected = rows[part["to"]][group]["accuracy"]["value"] - rows[part["from"]][group]["accuracy"]["value"]
            assert part[group]["accuracy"]["value"] == pytest.approx(expected, abs=2e-6)
    assert [line.split(",")[0] for line in gain_lines(gain)] == [
        "gain of adapter only",
        "gain of model only",
        "gain of adapter and model",
    ]
    calibration = outcome.summary["calibration"]
    assert set(calibration) == {"initial", "reviewed", "revised", "simulator alone", "simulator + adapter"}
    assert calibration["initial"]["confidence"]["n"] == 12
    assert calibration["simulator + adapter"]["probabilities"]["n"] == 12
    coverage = calibration["simulator + adapter"]["coverage"]
    assert coverage["n"] + coverage["n_without_sd"] == 12
    assert coverage["covered"]["0.5"] <= coverage["covered"]["0.8"] <= coverage["covered"]["0.95"]


def test_brier_and_error_of_stated_confidences(make_config, tmp_path: Path) -> None:
    """The readouts of the four strains are answered "near zero": right where the truth is, at 0.9 each."""
    answers = {g: {"label": "near zero", "value": 0.0, "confidence": 0.9} for g in GENES}
    reply = json.dumps({"answers": answers, "explanation": "x", "measurement": None})
    loaded = load_config(str(make_config(review=False)), shipped=SHIPPED)
    run(loaded._replace(interpreter=ScriptedInterpreter(replies=[reply] * 4)), tmp_path / "run")
    scored = compute_scores(tmp_path / "run")
    share = sum(row["truth"]["label"] == "near zero" for row in _readouts(tmp_path / "run")) / 12
    found = scored.summary["calibration"]["initial"]["confidence"]
    assert found["ece"] == pytest.approx(abs(0.9 - share), abs=1e-6)
    assert found["brier"] == pytest.approx(share * 0.01 + (1 - share) * 0.81, abs=1e-6)
    assert [b["n"] for b in found["curve"]] == [12]
    assert "reviewed" not in scored.summary["changes"]

"""Replays: another adapter or threshold on a finished run, without a model call and without touching its scores."""

import json
from pathlib import Path

import pytest

from evidence.errors import ConfigError
from evidence.journal import read_journal
from interpreters.scripted import ScriptedInterpreter
from loops.config import Component, load_config
from loops.rescore import compute_scores
from loops.runner import run
from loops.what_if import what_if, what_if_lines

SHIPPED = Path(__file__).resolve().parents[2] / "cases"
GENES = ("HSP70", "HSP90", "CDC6")


def _readouts(folder: Path) -> list[dict]:
    return [row for _, row in read_journal(folder / "scores/readouts.jsonl").records]


def rows(summary):
    return {row["name"]: row for row in summary["rows"]}


def frozen(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_another_adapter_gives_the_row_of_a_run_made_with_it(make_config, tmp_path: Path) -> None:
    for adapter in ("local", "affine"):
        run(load_config(str(make_config(adapter=adapter)), shipped=SHIPPED), tmp_path / adapter)
    before = frozen(tmp_path / "local")
    found = what_if(tmp_path / "local", adapter=Component(name="affine"))
    assert frozen(tmp_path / "local") == before, "nothing is written"
    made = compute_scores(tmp_path / "affine").summary
    assert rows(found)["simulator + adapter"] == rows(made)["simulator + adapter"]
    assert rows(found)["simulator + adapter"] != rows(compute_scores(tmp_path / "local").summary)["simulator + adapter"]
    assert rows(found)["initial"] == rows(made)["initial"]
    assert "revised" not in rows(found)
    assert set(found["changes"]["all"]) == {"reviewed"}
    assert found["what_if"]["not_replayable"] == {"revised": 12}
    assert found["adapter"] == "affine"


def test_another_threshold_classes_every_value_again(make_config, tmp_path: Path) -> None:
    run(load_config(str(make_config()), shipped=SHIPPED), tmp_path / "run")
    own = compute_scores(tmp_path / "run")
    found = what_if(tmp_path / "run", threshold=0.5)
    truths = [row["truth"]["value"] for row in _readouts(tmp_path / "run")]
    assert found["class_balance"] == {
        "down": sum(t < -0.5 for t in truths),
        "near zero": sum(-0.5 <= t <= 0.5 for t in truths),
        "up": sum(t > 0.5 for t in truths),
    }
    right = sum(_class(row["adapted"]["mean"]) == _class(row["truth"]["value"]) for row in _readouts(tmp_path / "run"))
    assert rows(found)["simulator + adapter"]["all"]["n_right"] == right
    assert rows(found)["revised"]["all"]["mae"] == rows(own.summary)["revised"]["all"]["mae"]
    assert "initial" not in found["calibration"], "its confidence was in a label of the old threshold"


def _class(value: float) -> int:
    return (value > 0.5) - (value < -0.5)


def test_a_label_without_a_value_is_not_replayable_and_counted(make_config, tmp_path: Path) -> None:
    answers = {g: {"label": "near zero", "value": None if g == "CDC6" else 0.6} for g in GENES}
    reply = json.dumps({"answers": answers, "explanation": "x", "measurement": None})
    loaded = load_config(str(make_config(review=False)), shipped=SHIPPED)
    run(loaded._replace(interpreter=ScriptedInterpreter(replies=[reply] * 4)), tmp_path / "run")
    found = what_if(tmp_path / "run", threshold=0.5)
    assert found["what_if"]["not_replayable"] == {"initial": 4, "revised": 4}
    assert (rows(found)["initial"]["all"]["n_missing"], rows(found)["initial"]["all"]["n_values"]) == (4, 8)
    (line,) = what_if_lines(found["what_if"])
    assert line == "WHAT IF, nothing written: threshold 0.5; answers not replayable: initial 4, revised 4"


def test_what_cannot_be_asked(make_config, tmp_path: Path) -> None:
    replies = {"predict": [json.dumps({"answers": {}, "explanation": "", "measurement": None})] * 12}
    run(load_config(str(make_config()), shipped=SHIPPED), tmp_path / "run")
    with pytest.raises(ConfigError, match="--adapter: no adapter named 'afine'. Did you mean 'affine'"):
        what_if(tmp_path / "run", adapter=Component(name="afine"))
    with pytest.raises(ConfigError, match="unknown key 'x'"):
        what_if(tmp_path / "run", adapter=Component(name="affine", options={"x": 1}))
    for threshold in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="--threshold: expected a positive number"):
            what_if(tmp_path / "run", threshold=threshold)
    loaded = load_config(str(make_config(simulator=None, adapter=None, review=False)), shipped=SHIPPED)
    run(loaded._replace(interpreter=ScriptedInterpreter(replies=replies)), tmp_path / "bare")
    with pytest.raises(ConfigError, match="has no simulator"):
        what_if(tmp_path / "bare", adapter=Component(name="local"))

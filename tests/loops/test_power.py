"""`vcloop power`: stated numbers, and numbers that archived runs showed."""

import json
from pathlib import Path

import pytest

from evidence.errors import ConfigError
from evidence.journal import read_journal
from interpreters.scripted import ScriptedInterpreter
from loops.config import load_config
from loops.power import Plan, plan, plan_lines
from loops.runner import run
from scoring.power import cases_needed, independent_discordance

SHIPPED = Path(__file__).resolve().parents[2] / "cases"
GENES = ("HSP70", "HSP90", "CDC6")


def _readouts(folder: Path) -> list[dict]:
    return [row for _, row in read_journal(folder / "scores/readouts.jsonl").records]


def made(make_config, tmp_path: Path, name: str, first: str, last: str) -> Path:
    def says(label: str, measurement: str | None) -> str:
        answers = {g: {"label": label} for g in GENES}
        return json.dumps({"answers": answers, "explanation": "x", "measurement": measurement})

    replies = {"predict": [says(first, "HSP70")] * 4, "revise": [says(last, None)] * 4}
    loaded = load_config(str(make_config(name=name, review=False, modalities=["table"])), shipped=SHIPPED)
    run(loaded._replace(interpreter=ScriptedInterpreter(replies=replies)), tmp_path / name)
    return tmp_path / name


def test_stated_numbers() -> None:
    found = plan(Plan(gain=0.1, baseline=0.66))
    expected = cases_needed(
        gain=0.1, discordance=independent_discordance(0.66, 0.1), readouts_per_case=4, icc=0.2, alpha=0.05, power=0.8
    )
    assert (found["cases"], found["pairs"], found["seen"]) == (expected.cases, expected.pairs, None)
    first, second = plan_lines(found)
    assert first.startswith(f"{expected.cases} cases (")
    assert "design effect 1.60 = 1 + (4 - 1) x ICC 0.2" in second
    with pytest.raises(ConfigError, match="say --baseline or --discordance, or name a run"):
        plan(Plan(gain=0.1))


def test_what_one_run_showed(make_config, tmp_path: Path) -> None:
    folder = made(make_config, tmp_path, "a", "near zero", "up")
    rows = _readouts(folder)
    changed = sum(
        (row["initial"]["label"] == row["truth"]["label"]) != (row["revised"]["label"] == row["truth"]["label"])
        for row in rows
    )
    found = plan(Plan(gain=0.1), [folder])
    assert found["seen"]["discordance"] == pytest.approx(changed / 12, abs=1e-6)
    assert (found["seen"]["n_cases"], found["readouts_per_case"]) == (4, 3.0)
    assert found["discordance"] == found["seen"]["discordance"]
    assert plan(Plan(gain=0.1, icc=0.4), [folder])["icc"] == 0.4, "what is said counts"
    assert next(plan_lines(found)).startswith("seen in 4 cases: accuracy")


def test_what_two_models_showed(make_config, tmp_path: Path) -> None:
    a = made(make_config, tmp_path, "a", "near zero", "near zero")
    b = made(make_config, tmp_path, "b", "near zero", "up")
    found = plan(Plan(gain=0.1), [a, b])
    one = plan(Plan(gain=0.1), [b])
    assert found["seen"] == one["seen"], "the first model's revised answers are the second's initial ones"
    with pytest.raises(ConfigError, match="one run or two, got 3"):
        plan(Plan(gain=0.1), [a, b, a])

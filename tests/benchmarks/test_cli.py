"""`vcloop bench` from the command line, on the shipped example set."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.cli import app
from benchmarks.example import EXPERIMENTS, figure, items
from benchmarks.items import load_item_set
from evidence.errors import ConfigError, DataError
from tests.benchmarks.conftest import plain_item

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "cases" / "bench"


def bench(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_vcloop_lists_bench_and_runs_it(tmp_path):
    command = [sys.executable, "-m", "loops.cli"]
    shown = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "bench     Static figure benchmarks" in shown.stdout
    options = ["bench", "run", "synthetic-rules", "--results", str(tmp_path)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "SYNTHETIC items" in done.stdout
    assert "chance" in done.stdout
    again = subprocess.run([*command, *options], capture_output=True, text=True, check=False, cwd=ROOT)
    assert again.returncode == 2
    assert "exists: continue it with --resume" in again.stderr
    assert "Traceback" not in again.stderr


def test_the_shipped_example_is_what_its_module_makes():
    shipped = load_item_set(EXAMPLE / "synthetic.jsonl")
    assert shipped.items == tuple(items())
    assert all(item.synthetic for item in shipped.items)
    assert {item.answer for item in shipped.items} > {"A", "B"}
    assert len(shipped.images) == len(EXPERIMENTS)
    assert figure(EXPERIMENTS[0]) == figure(EXPERIMENTS[0])


def test_the_answers_of_the_example_follow_from_what_is_drawn():
    for experiment in EXPERIMENTS:
        read, reason = (i for i in items() if i.source == f"synthetic/{experiment.name}")
        conditions = ("control", "drug", "knock-out", "knock-out + drug")
        highest = conditions[experiment.values.index(max(experiment.values))]
        assert read.options[read.key] == highest
        changed = abs(experiment.values[3] - experiment.values[2]) >= 10
        assert ("acts without" in reason.options[reason.key]) == changed


def test_check(tmp_path, write_items):
    facts = json.loads(bench("check", EXAMPLE / "synthetic.jsonl", "--json"))
    assert (facts["items"], facts["images"], facts["levels"]) == (8, 4, {"L1": 4, "L2": 2, "L3": 2})
    path = write_items([plain_item(0, answer="E"), plain_item(1, images=["none/there.png"]), plain_item(1)])
    with pytest.raises(DataError, match=r"3 problem\(s\)"):
        bench("check", path)


def test_run_judge_rescore(tmp_path):
    assert "with text 8" in bench("run", "synthetic-open-rules", "--results", tmp_path)
    run = tmp_path / "bench-synthetic-open-rules"
    shown = bench("judge", run, "--config", "rule-judge", "--results", tmp_path)
    assert "tests and dry runs only" in shown
    assert "L1 correctness" in shown
    folder = tmp_path / "bench-rule-judge"
    assert bench("rescore", folder).split() == shown.split()
    assert json.loads(bench("rescore", run, "--reparse", "--json"))["responses"]["n"] == 8


def test_filter_audit_compare_beside(tmp_path):
    config = tmp_path / "blind.yaml"
    plain = {"version": 1, "items": str(EXAMPLE / "synthetic.jsonl"), "track": "no_image", "interpreter": "rules"}
    config.write_text(json.dumps({**plain, "name": "blind", "options": "shuffled", "repeats": 10}))
    bench("run", config, "--results", tmp_path)
    shown = bench("filter", tmp_path / "blind", "--out", tmp_path / "kept.jsonl")
    # the longest option is right for one item; where two are equally long the first shown counts
    assert "of 8 items kept" in shown
    assert "discard" in shown
    assert len((tmp_path / "kept.jsonl").read_text().splitlines()) < 8
    assert "of 8 items" in bench("audit", EXAMPLE / "synthetic.jsonl")
    config.write_text(
        json.dumps({**plain, "name": "other", "strategy": "cantor", "repeats": 10, "options": "shuffled"})
    )
    bench("run", config, "--results", tmp_path)
    (pair,) = json.loads(bench("compare", tmp_path / "blind", tmp_path / "other", "--json"))["pairs"]
    assert (pair["n"], pair["only_first"], pair["only_second"]) == (80, 0, 0)
    reference = ROOT / "results" / "signaling-reference"
    shown = bench("beside", tmp_path / "blind", reference)
    assert "rules" in shown
    assert "fewer than three models" in shown


def test_convert_writes_all_or_says_what_is_wrong(tmp_path):
    rows = [
        {"index": "1", "Q": "Which?", "A": "x", "B": "y", "right": "A"},
        {"index": "2", "Q": "Which?", "A": "x", "B": "y", "right": "C"},
    ]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    (tmp_path / "map.yaml").write_text("version: 1\nfields: {id: index, question: Q, answer: right}\noptions: [A, B]\n")
    arguments = (
        "convert",
        "mapped",
        tmp_path / "rows.json",
        "--map",
        tmp_path / "map.yaml",
        "--out",
        tmp_path / "i.jsonl",
    )
    with pytest.raises(DataError, match="1 problem.s., 1 good items; nothing was written"):
        bench(*arguments)
    assert not (tmp_path / "i.jsonl").exists()
    assert "1 items, 1 problem(s)" in bench(*arguments, "--keep-good")
    with pytest.raises(DataError, match="exists; choose another"):
        bench(*arguments)
    with pytest.raises(ConfigError, match="goes with the form 'mapped'"):
        bench("convert", "figqa", tmp_path / "rows.json", "--out", tmp_path / "j.jsonl", "--map", tmp_path / "map.yaml")

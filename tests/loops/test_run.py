"""Runs on the plugin's strains: the loop, the archive, resuming and rescoring."""

import filecmp
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from vcloop_heat_shock.setting import TABLE, HeatShock

from evidence.case_files import case_file_text
from evidence.contracts import Reply
from evidence.errors import ArchiveError, BudgetError, ConfigError, DataError, ReplyError
from evidence.journal import read_journal
from evidence.values import canonical_json
from interpreters.scripted import ScriptedInterpreter
from loops.archive import Archive, read_calls, read_run
from loops.config import load_config
from loops.rescore import rescore
from loops.runner import run

SHIPPED = Path(__file__).resolve().parents[2] / "cases"
GENES = ("HSP70", "HSP90", "CDC6")


def reply(measurement: str | None = "HSP70", **labels: str) -> str:
    answers = {g: {"label": labels.get(g, "near zero"), "value": 0.0, "confidence": 0.5} for g in GENES}
    return json.dumps({"answers": answers, "explanation": "x", "measurement": measurement})


def load(path: Path, replies=None):
    loaded = load_config(str(path), shipped=SHIPPED)
    return loaded if replies is None else loaded._replace(interpreter=ScriptedInterpreter(replies=replies))


def one_case(make_config, **changes) -> Path:
    path = make_config(**changes)
    file = path.parent / "heat.json"
    data = json.loads(file.read_text())
    data["cases"] = data["cases"][:1]
    file.write_text(json.dumps(data))
    return path


def test_three_calls_a_case_and_one_measurement(make_config, tmp_path: Path) -> None:
    outcome = run(load(make_config()), tmp_path / "run")
    assert outcome.record.status == "finished"
    assert outcome.summary["calls"]["n"] == 3 * 4
    assert outcome.summary["outcomes"] == {"complete": 4}
    assert outcome.summary["synthetic"] is True
    rows = {row["name"]: row for row in outcome.summary["rows"]}
    assert set(rows) == {
        "initial",
        "reviewed",
        "revised",
        "simulator alone",
        "simulator + adapter",
        "mean of strains",
        "constant (near zero)",
    }
    assert rows["revised"]["queried"]["n"] == 4
    assert rows["revised"]["unqueried"]["n"] == 8


def test_hidden_outcomes_shape_nothing_before_their_reveal(make_config, tmp_path: Path) -> None:
    """With every hidden outcome changed, what is asked before the first measurement is the same to the byte."""
    replies = {"predict": [reply()] * 4, "review": [reply(None)] * 4, "revise": [reply(None)] * 4}
    path = make_config()
    asked = []
    for name, change in (("real", lambda row: row), ("changed", _shifted)):
        table = tmp_path / f"{name}.csv"
        table.write_text("".join(change(line) for line in TABLE.read_text().splitlines(keepends=True)))
        case_file = HeatShock.freeze(data=table, shape="all", seed=1, options={})
        (tmp_path / "heat.json").write_text(case_file_text(case_file))
        path.write_text(
            path.read_text() + f"data: {name}.csv\n"
            if name == "real"
            else path.read_text().replace("real.csv", "changed.csv")
        )
        run(load(path, replies), tmp_path / name)
        asked.append({(c.case, c.step): canonical_json(c.request) for c in read_calls(tmp_path / name)})
    before = [key for key in asked[0] if key[1] in ("predict", "review")]
    assert len(before) == 8
    assert all('"kind":"figure"' in asked[0][key] for key in before)
    assert [asked[0][key] for key in before] == [asked[1][key] for key in before]
    assert asked[0]["wildtype", "revise"] != asked[1]["wildtype", "revise"]


def _shifted(line: str) -> str:
    strain, gene, part, change, se = line.split(",")
    return line if part not in ("reserved", "truth") else f"{strain},{gene},{part},{1 - float(change):.3f},{se}"


def test_review_feeds_nothing(make_config, tmp_path: Path) -> None:
    """The request of revise is the same whatever the review said, and without a review."""
    path = one_case(make_config)
    seen = []
    for name, review in (("a", [reply(None)]), ("b", [reply(None, HSP70="up", HSP90="down")]), ("c", [])):
        path.write_text(path.read_text() + ("review: false\n" if name == "c" else ""))
        loaded = load(path, {"predict": [reply()], "review": review, "revise": [reply(None)]})
        run(loaded, tmp_path / name)
        seen.append([r.request for r in loaded.interpreter.received if r.request.step == "revise"])
    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0]) == 1


def test_second_start_is_refused(make_config, tmp_path: Path) -> None:
    path = make_config()
    run(load(path), tmp_path / "run")
    with pytest.raises(ArchiveError, match="exists: continue it with --resume"):
        run(load(path), tmp_path / "run")


def test_resuming_a_finished_run_makes_no_call(make_config, tmp_path: Path) -> None:
    path = make_config()
    run(load(path), tmp_path / "run")
    before = (tmp_path / "run/calls.jsonl").read_bytes()
    again = run(load(path), tmp_path / "run", resume=True)
    assert (tmp_path / "run/calls.jsonl").read_bytes() == before
    assert again.record.status == "finished"


def test_resume_with_another_config_shows_the_difference(make_config, tmp_path: Path) -> None:
    path = make_config()
    run(load(path), tmp_path / "run")
    path.write_text(path.read_text().replace("affine", "local"))
    with pytest.raises(ArchiveError, match='config.adapter.name: was "affine", now "local"'):
        run(load(path), tmp_path / "run", resume=True)


def test_other_data_stops_before_any_call(make_config, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("strain,gene,part,change,se\n")
    with pytest.raises(DataError, match="expected sha256"):
        run(load(make_config(data=str(other))), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_cost_budget_that_pays_nothing_is_refused(make_config, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"budget.cost 0.5 pays no measurement .* cheapest costs 1"):
        run(load(make_config(budget={"cost": 0.5})), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_damaged_last_line_is_reported_and_only_missing_calls_are_made(make_config, tmp_path: Path) -> None:
    path = make_config()
    run(load(path), tmp_path / "whole")
    run(load(path), tmp_path / "torn")
    calls, events = tmp_path / "torn/calls.jsonl", tmp_path / "torn/events.jsonl"
    lines = calls.read_bytes().splitlines(keepends=True)
    calls.write_bytes(b"".join(lines[:7]) + lines[7][:200])
    kept = events.read_bytes().splitlines(keepends=True)
    third = next(n for n, line in enumerate(kept) if b'"hsf1-strong"' in line and b'"stepped"' in line)
    events.write_bytes(b"".join(kept[:third]))
    outcome = run(load(path), tmp_path / "torn", resume=True)
    assert outcome.damaged == ["calls.jsonl line 8"]
    assert len(read_calls(tmp_path / "torn")) == 12
    assert read_journal(calls).damaged == [8]
    for name in ("summary.json", "readouts.jsonl"):
        assert (tmp_path / "torn/scores" / name).read_bytes() == (tmp_path / "whole/scores" / name).read_bytes()


@pytest.mark.parametrize("keep", range(0, 13, 3))
def test_resume_after_a_kill_gives_the_same_scores(make_config, tmp_path: Path, keep: int) -> None:
    path = make_config()
    run(load(path), tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    shutil.rmtree(tmp_path / "cut/scores")
    calls = (tmp_path / "cut/calls.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "cut/calls.jsonl").write_bytes(b"".join(calls[:keep]))
    (tmp_path / "cut/events.jsonl").unlink()
    run(load(path), tmp_path / "cut", resume=True)
    assert len(read_calls(tmp_path / "cut")) == 12
    for name in ("summary.json", "readouts.jsonl"):
        assert (tmp_path / "cut/scores" / name).read_bytes() == (tmp_path / "whole/scores" / name).read_bytes()


def test_rescoring_needs_the_archive_alone(make_config, tmp_path: Path) -> None:
    """Other process, other hash seed, other folder, no config, no case file."""
    run(load(make_config()), tmp_path / "run")
    moved = tmp_path / "elsewhere" / "copy"
    shutil.copytree(tmp_path / "run", moved)
    first = {p.name: p.read_bytes() for p in (moved / "scores").iterdir()}
    (tmp_path / "heat.json").unlink()
    (tmp_path / "heat.yaml").unlink()
    shutil.rmtree(moved / "scores")
    code = "from pathlib import Path; from loops.rescore import rescore; rescore(Path('.'), reparse={})"
    for seed, reparse in (("0", False), ("12345", True)):
        env = {**os.environ, "PYTHONHASHSEED": seed, "VCLOOP_DATA": "/nonexistent"}
        subprocess.run([sys.executable, "-c", code.format(reparse)], check=True, cwd=moved, env=env)
        assert {p.name: p.read_bytes() for p in (moved / "scores").iterdir()} == first


def test_rescoring_refuses_a_changed_observation(make_config, tmp_path: Path) -> None:
    run(load(make_config()), tmp_path / "run")
    events = tmp_path / "run/events.jsonl"
    lines = events.read_text().splitlines()
    n = next(n for n, line in enumerate(lines) if '"event":"observed"' in line)
    event = json.loads(lines[n])
    event["observation"]["value"] = 9.0
    lines[n] = json.dumps(event)
    events.write_text("\n".join(lines) + "\n")
    with pytest.raises(ArchiveError, match="differs from the sealed one"):
        rescore(tmp_path / "run")


def test_damaged_blob_is_found(make_config, tmp_path: Path) -> None:
    run(load(make_config()), tmp_path / "run")
    for blob in (tmp_path / "run/blobs").iterdir():
        blob.write_bytes(b"other")
    with pytest.raises(ArchiveError, match="is damaged"):
        rescore(tmp_path / "run")


def test_two_processes_on_one_run(make_config, tmp_path: Path) -> None:
    path = make_config()
    run(load(path), tmp_path / "run")
    with Archive(tmp_path / "run", redact=str), pytest.raises(ArchiveError, match="in use by another process"):
        run(load(path), tmp_path / "run", resume=True)


def test_concurrency_changes_no_digit_and_no_order(make_config, tmp_path: Path) -> None:
    run(load(make_config(repeats=2)), tmp_path / "one")
    path = tmp_path / "heat.yaml"
    path.write_text(path.read_text() + "concurrency: 8\n")
    run(load(path), tmp_path / "eight")
    assert not filecmp.dircmp(tmp_path / "one/scores", tmp_path / "eight/scores").diff_files
    rows = [json.loads(line) for line in (tmp_path / "eight/scores/readouts.jsonl").read_text().splitlines()]
    order = ["wildtype", "hsf1-weak", "hsf1-strong", "slow-growth"]
    assert [r["case"] for r in rows] == [case for case in order for _ in range(6)]


def test_stopped_by_the_server_and_resumed(make_config, tmp_path: Path) -> None:
    path = one_case(make_config)
    quota = Reply(status="quota", error="You exceeded your current quota")
    with pytest.raises(BudgetError, match="You exceeded your current quota"):
        run(load(path, [reply(), quota]), tmp_path / "run")
    assert read_run(tmp_path / "run").status == "incomplete"
    # The script belongs to the interpreter's identity, so resume with the same script and skip what was answered.
    loaded = load(path, [reply(), quota])
    loaded.interpreter._given["any step"] = 2
    loaded.interpreter.replies = [reply(), quota]
    with pytest.raises(ReplyError, match="script has 2 replies"):
        run(loaded, tmp_path / "run", resume=True)
    assert len(read_calls(tmp_path / "run")) == 2


def test_long_retry_after_stops_the_run(make_config, tmp_path: Path) -> None:
    path = one_case(make_config)
    slow = Reply(status="rate_limited", retry_after_s=900.0)
    with pytest.raises(BudgetError, match="retry after 900 s"):
        run(load(path, [slow, reply()]), tmp_path / "run")
    assert len(read_calls(tmp_path / "run")) == 1


def test_transport_faults_leave_the_case_open(make_config, tmp_path: Path) -> None:
    path = one_case(make_config)
    timeout = Reply(status="timeout")
    outcome = run(load(path, [timeout] * 3), tmp_path / "run")
    assert outcome.record.status == "incomplete"
    assert outcome.summary["n_cells_open"] == 1
    assert outcome.summary["rows"] == []


def test_a_config_that_needs_no_simulator(make_config, tmp_path: Path) -> None:
    replies = {"predict": [reply()] * 4, "review": [reply(None)] * 4, "revise": [reply(None)] * 4}
    outcome = run(load(make_config(simulator=None, adapter=None), replies), tmp_path / "run")
    assert "simulator alone" not in {row["name"] for row in outcome.summary["rows"]}


def test_adapter_without_simulator_is_refused(make_config, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="calibrates a simulator"):
        run(load(make_config(simulator=None)), tmp_path / "run")


def test_simulator_for_other_training_data_is_refused(make_config, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="learns from 'discrete_cells'.*offers 'known_responses'"):
        run(load(make_config(simulator="bayes_net")), tmp_path / "run")

"""From low-scored responses of several models to six-option items, each distractor with its origin."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.answers import Answering
from benchmarks.archived import read_bench
from benchmarks.config import load_bench, load_judge, load_miner
from benchmarks.items import load_items
from benchmarks.judging import Judging
from benchmarks.mining import Mining, rescore_mining
from evidence.errors import ArchiveError
from loops.engine import Outcome, make
from tests.benchmarks.conftest import Choosing, plain_item, scores
from tests.benchmarks.test_judging import good

IDEAS = ("calcium", "zinc", "heat", "light", "salt", "sugar")
REFERENCE = "The strain grows fastest because it takes up more iron than all the others do in panel 0."


@pytest.fixture
def judged(make_bench, tmp_path):
    """Judge runs over the responses of two models; odd repeats of the second are right."""

    def make_run(model: str, **changes: Any) -> Path:
        def respond(text: str, repeat: int) -> str:
            idea = IDEAS[repeat if model == "a" else repeat // 2]
            right = model == "b" and repeat % 2
            return "It takes up iron." if right else f"{idea} opens {idea}-gated pores, and {idea}-ase rises"

        def grade(text: str, repeat: int) -> str:
            return json.dumps(good(overall=5 if "It takes up iron." in text else 1))

        items = [plain_item(0, level="L1", options=None, answer=REFERENCE, reference=None, **changes)]
        loaded = load_bench(str(make_bench(items, name=f"open-{model}", track="open", repeats=6)))
        make(Answering(loaded._replace(interpreter=Choosing(respond, name=model)), tmp_path / f"open-{model}"))
        config = tmp_path / "judge.yaml"
        config.write_text(yaml.safe_dump({"version": 1, "name": f"judge-{model}", "interpreter": "rule_judge"}))
        settings, _ = load_judge(str(config))
        folder = tmp_path / f"judge-{model}"
        make(Judging(settings, Choosing(grade, name="judge"), tmp_path / f"open-{model}", folder))
        return folder

    return make_run


def rewriter(text: str, repeat: int) -> str:
    """Rewrites to the right length; the idea "zinc" comes out too short, and is mended when asked again."""
    idea = next(idea for idea in IDEAS if f"{idea} opens" in text)
    if idea == "salt" or (idea == "zinc" and "could not be read" not in text):
        return f"<option>{idea}</option>"
    return (
        f"<option>The strain grows fastest because it takes up more {idea} than all the others do in panel 0.</option>"
    )


def go(tmp_path: Path, runs: list[Path], folder: str = "mined", *, resume: bool = False) -> Outcome:
    config = tmp_path / "mine.yaml"
    config.write_text(yaml.safe_dump({"version": 1, "name": folder, "seed": 3, "interpreter": "rules"}))
    settings, _ = load_miner(str(config))
    return make(Mining(settings, Choosing(rewriter, name="rewriter"), runs, tmp_path / folder), resume=resume)


def test_six_options_with_a_trace_for_every_distractor(judged, tmp_path):
    runs = [judged("a"), judged("b")]
    outcome = go(tmp_path, runs)
    assert outcome.summary["n_wrong_responses"] == 6 + 3
    assert outcome.summary["n_complete"] == 1
    assert outcome.summary["rewrites"] == {"kept": 5, "screened out": 1}
    (item,) = load_items(tmp_path / "mined/scores/items.jsonl")
    assert len(item.options) == 6
    assert item.options[item.key] == REFERENCE
    assert not any("salt" in option for option in item.options)
    traces = [json.loads(line) for line in (tmp_path / "mined/scores/trace.jsonl").read_text().splitlines()]
    assert sorted(t["letter"] for t in traces) == sorted(set("ABCDEF") - {item.answer})
    by_idea = {next(i for i in IDEAS if i in t["text"]): t for t in traces}
    assert {idea: t["n_models"] for idea, t in by_idea.items()} == {
        "calcium": 2,
        "zinc": 2,
        "heat": 2,
        "light": 1,
        "sugar": 1,
    }
    for trace in traces:
        assert item.options["ABCDEF".index(trace["letter"])] == trace["text"]
        for origin in trace["responses"]:
            source = read_bench(tmp_path / origin["run"]).by_cell[origin["item"], origin["repeat"]]
            assert source.text == origin["response"]
            assert origin["overall"] <= 2


def test_rescoring_needs_the_archive_alone(judged, tmp_path):
    runs = [judged("a")]
    go(tmp_path, runs)
    before = scores(tmp_path / "mined")
    shutil.rmtree(runs[0])
    shutil.rmtree(tmp_path / "mined/scores")
    rescore_mining(tmp_path / "mined")
    assert scores(tmp_path / "mined") == before


def test_an_item_with_too_few_errors_is_named_and_not_made(judged, tmp_path):
    outcome = go(tmp_path, [judged("b")])
    assert outcome.summary["short_of_distractors"] == {"q0": 3}
    assert (tmp_path / "mined/scores/items.jsonl").read_text() == ""


def test_a_finished_mining_run_asks_nothing_again(judged, tmp_path):
    runs = [judged("a")]
    go(tmp_path, runs)
    before = (tmp_path / "mined/calls.jsonl").read_bytes()
    go(tmp_path, runs, resume=True)
    assert (tmp_path / "mined/calls.jsonl").read_bytes() == before


def test_runs_on_other_items_are_not_mixed(judged, tmp_path):
    runs = [judged("a"), judged("b", caption="another caption")]
    with pytest.raises(ArchiveError, match="judges other items"):
        go(tmp_path, runs)


def test_the_same_responses_given_twice_are_refused(judged, tmp_path):
    run = judged("a")
    shutil.copytree(run, tmp_path / "copy")
    for again in (run, tmp_path / "copy"):
        with pytest.raises(ArchiveError, match="judges the same responses as"):
            go(tmp_path, [run, again])
    assert not (tmp_path / "mined").exists()

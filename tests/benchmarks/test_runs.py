"""Whole runs of the tracks: what is sent, what is archived, how a run is resumed, and what is scored."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks.answers import Answering
from benchmarks.archived import rescore_bench, shortcut_items
from benchmarks.config import load_bench
from benchmarks.convert import convert
from benchmarks.items import write_items
from benchmarks.strategies import STRATEGIES
from evidence.errors import ArchiveError, ConfigError, DataError, ReplyError
from interpreters.fake_server import FakeServer, Served, chat
from loops.archive import read_calls, read_run
from loops.engine import Outcome, make
from loops.rescore import rescore
from tests.benchmarks.conftest import Choosing, figures_in, letter_of, plain_item, png, scores


def go(path: Path, folder: Path, interpreter: Any = None, *, resume: bool = False) -> Outcome:
    loaded = load_bench(str(path))
    if interpreter is not None:
        loaded = loaded._replace(interpreter=interpreter)
    return make(Answering(loaded, folder), resume=resume)


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "scores" / "items.jsonl").read_text().splitlines()]


# --- the 25 real figure questions --------------------------------------------------------------------------------


@pytest.fixture
def figqa(static_data, tmp_path):
    """A config on the real questions; keyword arguments are its other keys."""
    home = static_data / "figqa"
    found = convert("figqa", home / "items.jsonl")
    (tmp_path / "figqa.jsonl").write_bytes(write_items(found.items))

    def make_config(**keys: Any) -> Path:
        path = tmp_path / "figqa.yaml"
        base = {"version": 1, "name": "figqa", "items": "figqa.jsonl", "images": str(home), **keys}
        path.write_text(json.dumps(base))
        return path

    return found.items, make_config


@pytest.mark.loopback
@pytest.mark.allow_hosts(["127.0.0.1"])
@pytest.mark.usefixtures("socket_enabled")
def test_the_25_figure_questions_with_images_against_a_server(figqa, static_data, tmp_path):
    items, make_config = figqa
    ideal = {item.question.strip(): item.options[item.key] for item in items}
    forms = (
        "ANSWER: **{}**",
        "ANSWER: $\\boxed{{{}}}$",
        "It is (B)? No.\nFinal answer: {}",
        "The answer is ({}), surely",
    )

    def answer(body: dict) -> Served:
        text = body["messages"][-1]["content"][-1]["text"]
        question = text.split("\n\nOptions:")[0]
        number = sorted(ideal).index(question)
        letter = letter_of(text, " ".join(ideal[question].split()))
        if number == 0:
            return chat("I cannot tell.")
        if number == 1:
            return chat(None, refusal="I will not")
        if number == 2:
            return chat(f"ANSWER: {letter}", finish_reason="length")
        return chat(forms[number % len(forms)].format(letter))

    with FakeServer(answer) as server:
        options = {"model": "fake-vlm", "base_url": server.base_url, "output": "none"}
        path = make_config(options="shuffled", interpreter={"name": "openai", "options": options}, concurrency=4)
        outcome = go(path, tmp_path / "run")
        bodies = [call.body for call in server.received]
    assert len(bodies) == 25
    sent = [[part for part in body["messages"][-1]["content"] if part["type"] == "image_url"] for body in bodies]
    assert [len(images) for images in sent] == [1] * 25
    urls = [images[0]["image_url"]["url"] for images in sent]
    assert all(url.startswith("data:image/jpeg;base64,") for url in urls)
    digests = {hashlib.sha256(base64.b64decode(url.partition(",")[2])).hexdigest() for url in urls}
    assert digests == {hashlib.sha256(p.read_bytes()).hexdigest() for p in (static_data / "figqa" / "figs").iterdir()}
    words = json.dumps([body["messages"][-1]["content"][-1] for body in bodies])
    assert not any(hidden in words for item in items for hidden in (item.canary, item.source, item.id, item.images[0]))
    summary = outcome.summary
    assert summary["rates"] == {
        "n": 25,
        "right": 22,
        "strict": sum(n % 4 != 3 for n in range(3, 25)),
        "lenient": sum(n % 4 == 3 for n in range(3, 25)),
        "refused": 1,
        "truncated": 1,
        "unparsed": 1,
    }
    assert summary["accuracy"]["value"] == 0.88
    assert summary["accuracy"]["n_clusters"] == 12
    assert summary["shows_figures"]
    assert summary["calls"]["prompt_tokens"] == 12 * 25


def test_the_25_figure_questions_with_the_offline_rules(figqa, tmp_path):
    items, make_config = figqa
    outcome = go(make_config(interpreter="rules"), tmp_path / "run")
    longest = [max(item.options, key=lambda o: len(" ".join(o.split()))) == item.options[item.key] for item in items]
    assert outcome.summary["rates"]["right"] == sum(longest)
    assert outcome.summary["accuracy"]["n"] == 25
    assert not outcome.summary["shows_figures"]
    chance = sum(1 / len(item.options) for item in items) / 25
    assert outcome.summary["chance"] == pytest.approx(chance, abs=1e-6)


def test_spurs_items_run_as_text(static_data, tmp_path):
    found = convert("spur", static_data / "spur", without_images=True)
    (tmp_path / "spur.jsonl").write_bytes(write_items(found.items))
    config = {"version": 1, "name": "spur", "items": "spur.jsonl", "track": "no_image", "interpreter": "rules"}
    (tmp_path / "spur.yaml").write_text(json.dumps(config))
    summary = go(tmp_path / "spur.yaml", tmp_path / "run").summary
    assert set(summary["groups"]["task"]) == {"NP", "MP", "IL", "TA", "HI", "Qual", "Quant", "overall"}
    assert {name: found["n"] for name, found in summary["groups"]["stage"].items()} == {
        "perception": 8,
        "understanding": 8,
        "reasoning": 8,
    }
    assert summary["reasoning_by_perception"]["n_without_perception"] > 0


# --- what is sent and archived -----------------------------------------------------------------------------------


def right_letter(text: str, repeat: int) -> str:
    number = int(re.search(r"in panel (\d+)\?", text)[1])
    return f"ANSWER: {letter_of(text, plain_item(number)['options'][number % 4])}"


def test_shuffled_options_are_archived_and_lead_back(make_bench, tmp_path):
    model = Choosing(right_letter)
    outcome = go(make_bench(options="shuffled", repeats=3), tmp_path / "run", model)
    assert outcome.summary["accuracy"]["value"] == 1.0
    assert outcome.summary["accuracy_strict"]["value"] == 1.0
    letters = {(row["item"], row["repeat"]): row["letter"] for row in rows(tmp_path / "run")}
    assert len(set(letters.values())) == 4
    assert len({tuple(letters[f"q{n}", r] for n in range(8)) for r in range(3)}) == 3
    assert len(model.requests) == 24
    assert all(len(figures_in(request)) == 1 for request in model.requests)


def test_the_no_image_control_shows_no_figure(make_bench, tmp_path):
    model = Choosing(lambda text, repeat: "ANSWER: A")
    go(make_bench(track="no_image"), tmp_path / "run", model)
    assert not any(figures_in(request) for request in model.requests)


def test_the_open_track_keeps_the_text_and_scores_nothing(make_bench, tmp_path):
    outcome = go(make_bench(track="open"), tmp_path / "run", Choosing(lambda text, repeat: "It grows."))
    assert outcome.summary["responses"] == {"n": 8, "with_text": 8}
    assert "accuracy" not in outcome.summary


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_every_call_of_a_strategy_is_archived_by_step(make_bench, tmp_path, name):
    def choose(text: str, repeat: int) -> str:
        return right_letter(text, repeat) if "ANSWER" in text else "1. a? | UNCERTAIN\n2. b\ntext: read\nchart: see"

    outcome = go(make_bench(strategy=name), tmp_path / "run", Choosing(choose))
    assert outcome.summary["rates"]["right"] == 8
    steps = [call.step for call in read_calls(tmp_path / "run").records if call.case == "q3"]
    expected = {
        "direct": ["answer"],
        "ddcot_single": ["answer"],
        "vot": ["answer"],
        "ddcot": ["plan", "look", "answer"],
        "vic": ["plan", "look", "answer"],
        "cantor": ["plan", "look", "look", "answer"],
    }
    assert steps == expected[name]


# --- resuming, rescoring, limits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_a_stopped_run_resumes_to_the_same_scores_and_pays_nothing_twice(make_bench, tmp_path, name):
    def choose(text: str, repeat: int) -> str:
        return right_letter(text, repeat) if "ANSWER" in text else "1. a? | UNCERTAIN\n2. b\ntext: read\nchart: see"

    path = make_bench(strategy=name, options="shuffled", repeats=2)
    whole = Choosing(choose)
    go(path, tmp_path / "whole", whole)
    down_at, calls = 0, 0
    while down_at < len(whole.requests):
        model = Choosing(choose, down_at=7)
        with contextlib.suppress(ReplyError):
            go(path, tmp_path / "run", model, resume=True)
        calls += len(model.requests)
        down_at += 7
    assert read_run(tmp_path / "run", "bench").status == "finished"
    assert calls == len(whole.requests)
    assert scores(tmp_path / "run") == scores(tmp_path / "whole")


def test_e08_a_cut_line_costs_one_call_and_no_score(make_bench, tmp_path):
    path = make_bench()
    go(path, tmp_path / "whole", Choosing(right_letter))
    shutil.copytree(tmp_path / "whole", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "scores")
    for name, keep in (("calls.jsonl", 5), ("events.jsonl", 8 + 2 * 5)):
        lines = (tmp_path / "run" / name).read_text().splitlines()
        (tmp_path / "run" / name).write_text("\n".join(lines[:keep]) + "\n" + lines[keep][: len(lines[keep]) // 2])
    model = Choosing(right_letter)
    outcome = go(path, tmp_path / "run", model, resume=True)
    assert outcome.damaged == ["calls.jsonl line 6", "events.jsonl line 19"]
    assert len(model.requests) == 3
    assert (tmp_path / "run" / "scores" / "items.jsonl").read_bytes() == (
        tmp_path / "whole" / "scores" / "items.jsonl"
    ).read_bytes()
    assert outcome.summary["accuracy"] == json.loads((tmp_path / "whole/scores/summary.json").read_text())["accuracy"]


def test_e05_repeats_keep_their_own_replies_and_any_change_is_refused(make_bench, tmp_path):
    def by_repeat(text: str, repeat: int) -> str:
        return f"ANSWER: {'ABC'[repeat]}"

    path = make_bench(repeats=3)
    go(path, tmp_path / "run", Choosing(by_repeat))
    model = Choosing(by_repeat)
    go(path, tmp_path / "run", model, resume=True)
    assert model.requests == []
    assert [row["letter"] for row in rows(tmp_path / "run")[:3]] == ["A", "B", "C"]
    with pytest.raises(ArchiveError, match="interpreter.name"):
        go(path, tmp_path / "run", Choosing(by_repeat, name="other"), resume=True)
    with pytest.raises(ArchiveError, match="strategy"):
        go(make_bench(repeats=3, strategy="vot"), tmp_path / "run", Choosing(by_repeat), resume=True)
    path = make_bench(repeats=3)
    (tmp_path / "set" / "fig0.png").write_bytes(png(shade=201))
    with pytest.raises(ArchiveError, match="case file"):
        go(path, tmp_path / "run", Choosing(by_repeat), resume=True)


def test_rescoring_needs_the_archive_alone(make_bench, tmp_path):
    def choose(text: str, repeat: int) -> str:
        return ("ANSWER: B", "perhaps", "The answer is (C)")[len(text) % 3]

    go(make_bench(options="shuffled", repeats=2), tmp_path / "run", Choosing(choose))
    shutil.move(tmp_path / "run", tmp_path / "moved")
    shutil.rmtree(tmp_path / "set")
    before = scores(tmp_path / "moved")
    for reparse in (False, True):
        shutil.rmtree(tmp_path / "moved" / "scores")
        rescore_bench(tmp_path / "moved", reparse=reparse)
        assert scores(tmp_path / "moved") == before


def test_a_finished_run_can_be_replayed(make_bench, tmp_path):
    go(make_bench(), tmp_path / "run", Choosing(right_letter))
    path = make_bench(name="again", interpreter={"name": "replay", "options": {"run": str(tmp_path / "run")}})
    outcome = go(path, tmp_path / "again")
    assert outcome.summary["rates"]["right"] == 8
    assert rows(tmp_path / "again") == rows(tmp_path / "run")


def test_a_limit_stops_the_run_and_a_higher_one_ends_it(make_bench, tmp_path):
    outcome = go(make_bench(limits={"calls": 3}), tmp_path / "run", Choosing(right_letter))
    assert outcome.record.status == "incomplete"
    assert "limits.calls" in outcome.record.reason
    assert outcome.summary["n_cells_open"] == 5
    outcome = go(make_bench(limits={"calls": 8}), tmp_path / "run", Choosing(right_letter), resume=True)
    assert outcome.record.status == "finished"
    assert outcome.summary["rates"]["right"] == 8


def test_concurrency_changes_no_score(make_bench, tmp_path):
    for n in (1, 8):
        go(make_bench(concurrency=n, options="shuffled"), tmp_path / str(n), Choosing(right_letter))
    assert scores(tmp_path / "1") == scores(tmp_path / "8")


# --- what is refused ---------------------------------------------------------------------------------------------


def test_items_that_do_not_fit_the_track_are_refused_before_any_call(make_bench):
    path = make_bench([plain_item(0), plain_item(1, options=None, answer="words", images=None)])
    with pytest.raises(ConfigError) as caught:
        load_bench(str(path))
    assert "item 'q1' has no options" in str(caught.value)
    assert "item 'q1' has no figure" in str(caught.value)


def test_a_figure_that_the_interpreter_would_not_send_is_refused_before_any_call(make_bench):
    options = {"model": "m", "base_url": "http://127.0.0.1:9/v1", "max_figure_bytes": 20}
    with pytest.raises(ConfigError, match=r"image 'fig0.png' has \d+ bytes, more than .* max_figure_bytes \(20\); 8"):
        load_bench(str(make_bench(interpreter={"name": "openai", "options": options})))


def test_an_image_that_changes_after_the_check_is_noticed(make_bench, tmp_path):
    loaded = load_bench(str(make_bench()))
    (tmp_path / "set" / "fig3.png").write_bytes(png(shade=201))
    with pytest.raises(DataError, match="has changed since it was checked"):
        make(Answering(loaded, tmp_path / "run"))


def test_an_unknown_key_of_the_config_is_named(make_bench):
    with pytest.raises(ConfigError, match="Did you mean 'strategy'"):
        load_bench(str(make_bench(stratgy="vot")))


def test_loop_and_bench_refuse_each_others_runs(make_bench, tmp_path, root):
    go(make_bench(), tmp_path / "run")
    with pytest.raises(ArchiveError, match="kind 'bench', not 'loop'"):
        rescore(tmp_path / "run")
    with pytest.raises(ArchiveError, match="kind 'loop', not 'bench'"):
        rescore_bench(root / "results" / "signaling-reference")


# --- the text-only filter ----------------------------------------------------------------------------------------


def test_the_shortcut_filter_over_a_run(make_bench, tmp_path):
    def guess(text: str, repeat: int) -> str:
        number = int(re.search(r"in panel (\d+)\?", text)[1])
        return right_letter(text, repeat) if repeat < number + 2 else "no idea"

    go(make_bench(track="no_image", options="shuffled", repeats=10), tmp_path / "run", Choosing(guess))
    kept, found = shortcut_items(tmp_path / "run")
    assert [item.id for item in kept] == ["q0", "q1", "q2"]
    assert [one.n_right for one in found] == [min(10, n + 2) for n in range(8)]


def test_the_shortcut_filter_refuses_another_track(make_bench, tmp_path):
    go(make_bench(repeats=10), tmp_path / "run")
    with pytest.raises(ConfigError, match="takes the track 'no_image' with options 'shuffled'"):
        shortcut_items(tmp_path / "run")

"""Strategies: which calls they make, what each is shown, and what of a reply goes on."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.prompts import puzzle, request
from benchmarks.strategies import MAX_PARTS, STRATEGIES, Ask, Heard, follow
from benchmarks.tracks import show
from tests.benchmarks.test_tracks import item


def play(name: str, replies: list[str | Heard], track: str = "mcq") -> tuple[list[Ask], Heard]:
    """Follow a strategy with these replies in order; the asks made and the last one heard."""
    one = item()
    asked: list[Ask] = []

    async def ask(number: int, what: Ask) -> Heard:
        assert number == len(asked)
        asked.append(what)
        reply = replies[number]
        return Heard("ok", reply) if isinstance(reply, str) else reply

    last = asyncio.run(follow(STRATEGIES[name], puzzle(one, show(one, track, "given", 0, 0)), ask))
    return asked, last


def plan_of(asked: list[Ask]) -> list[tuple[str, bool]]:
    return [(a.step, a.figures) for a in asked]


@pytest.mark.parametrize("name", ["direct", "ddcot_single", "vot"])
def test_one_call_with_the_figure(name):
    asked, last = play(name, ["ANSWER: B"])
    assert plan_of(asked) == [("answer", True)]
    assert last.text == "ANSWER: B"
    assert "A. strain one\nB. the second strain" in asked[0].text
    assert "ANSWER: one of A, B, C or D" in asked[0].text


def test_ddcot_looks_up_only_what_is_uncertain():
    notes = "1. What grows? | yeast\n2. How fast in panel 1? | UNCERTAIN\n3. Is it uncertain | no, surely not uncertain"
    asked, _ = play("ddcot", [notes, "fast", "ANSWER: A"])
    assert plan_of(asked) == [("plan", False), ("look", True), ("answer", False)]
    assert "How fast in panel 1?" in asked[1].text
    assert "What grows?" not in asked[1].text
    assert "How fast in panel 1? fast" in asked[2].text


def test_ddcot_without_uncertainty_goes_straight_to_the_synthesis():
    asked, _ = play("ddcot", ["1. What? | known", "ANSWER: A"])
    assert plan_of(asked) == [("plan", False), ("answer", False)]


def test_vic_plans_blind_and_answers_in_the_form_of_the_last_step():
    asked, _ = play("vic", ["1. Find panel 1\n2. Read the axis\n3. Give the letter", "axis says 5", "ANSWER: C"])
    assert plan_of(asked) == [("plan", False), ("look", True), ("answer", True)]
    assert "Read the axis" in asked[1].text
    assert "Give the letter" not in asked[1].text
    assert "axis says 5" in asked[2].text
    assert "Last step of the plan: Give the letter" in asked[2].text


def test_cantor_skips_a_task_only_where_its_whole_text_is_a_placeholder():
    tasks = (
        "text: none\nobjects: count the Notch and Northern blot bands, none missing\nvisual: N/A\n**chart**: read it"
    )
    asked, _ = play("cantor", [tasks, "3 bands", "value 7", "ANSWER: D"])
    assert plan_of(asked) == [("plan", True), ("look", True), ("look", True), ("answer", True)]
    assert "Notch and Northern blot" in asked[1].text
    assert "- objects: 3 bands\n- chart: value 7" in asked[3].text


@pytest.mark.parametrize("name", ["ddcot", "vic", "cantor"])
def test_a_plan_that_says_nothing_still_ends_in_one_answer(name):
    asked, last = play(name, ["I cannot plan.", "ANSWER: A", "ANSWER: A"])
    assert asked[-1].step == "answer"
    assert last.text == "ANSWER: A"


@pytest.mark.parametrize("status", ["refused", "truncated", "filtered", "empty"])
def test_a_call_without_a_readable_reply_ends_the_item(status):
    asked, last = play("vic", ["1. a\n2. b", Heard(status, "half an ANSWER: A")])
    assert len(asked) == 2
    assert last.status == status


def test_parts_are_bounded_and_reasoning_is_not_quoted():
    notes = "<think>secret</think>" + "\n".join(f"{n}. q{n}? | UNCERTAIN" for n in range(1, 40))
    asked, _ = play("ddcot", [notes, *(["x"] * MAX_PARTS), "ANSWER: A"])
    assert len(asked) == MAX_PARTS + 2
    assert not any("secret" in a.text for a in asked)


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_the_open_track_asks_for_no_letter(name):
    replies = ["1. a | UNCERTAIN\n2. b | UNCERTAIN\ntext: read"] * 9
    asked, _ = play(name, replies, "open")
    assert not any("ANSWER" in a.text or "Options" in a.text for a in asked)
    assert asked[-1].step == "answer"


def test_no_caption_context_reference_source_or_file_name_is_shown():
    one = item()
    for name in STRATEGIES:
        asked, _ = play(name, ["1. a | UNCERTAIN\n2. b\ntext: read"] * 9)
        for what in asked:
            text = request(what, ()).model_dump_json()
            for secret in (one.caption, one.context, one.reference, one.source, one.images[0], one.id):
                assert secret not in text

"""Reports E01 and E03: letters and judge scores are read by rule, or not at all."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interpreters.letters import read_judge_score, read_letter

E01 = [
    ("The answer is (B), not A.", "B"),
    ("ANSWER: **C**", "C"),
    ("ANSWER: $D$", "D"),
    ("Answer: D", "D"),
    ("I considered (A), but it is incorrect. Final answer: D.", "D"),
    ("The correct answer is d.", "D"),
    ("The answer is B because a car moves.", "B"),
    ("None of these can be told.", None),
    ("ANSWER: E", None),
    ("A and C", None),
]


@pytest.mark.parametrize(("text", "letter"), E01)
def test_e01(text, letter):
    reading = read_letter(text, "ABCD")
    assert reading.letter == letter
    assert reading.status == ("unparsed" if letter is None else "letter")
    assert bool(reading.reason) == (letter is None)
    assert read_letter(text, "ABCD") == reading


@pytest.mark.parametrize(
    ("text", "letter", "rule"),
    [
        ("<answer>B</answer>", "B", "tag"),
        ("Thus $\\boxed{\\text{C}}$", "C", "tag"),
        ('{"explanation": "x", "answer": "B"}', "B", "tag"),
        ("**Answer**: b", "B", "tag"),
        ("### Answer\nA\nThe cells divide.", "A", "tag"),
        ("Answer: A because it moves", "A", "tag"),
        ("Answer: A. A kinase.", "A", "tag"),
        ("Answer: option (F)", "F", "tag"),
        ("ANSWER: A\nLater I saw more.\nANSWER: B", "B", "tag"),
        ("Answer: The answer is B", "B", "sentence"),
        ("<think>Answer: A</think>Answer: B", "B", "tag"),
        ("Answer: A... so</think>**B**", "B", "bare"),
        ("(b).", "B", "bare"),
        ("F", "F", "bare"),
        ("I choose E.", "E", "sentence"),
        ("I would go with (C).", "C", "sentence"),
        ("The answer is A and not C", "A", "sentence"),
        ("The answer is B. The answer is supported by panel C.", "B", "sentence"),
    ],
)
def test_read(text, letter, rule):
    assert read_letter(text, "ABCDEF")[:2] == (letter, rule)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Answer: Both",
        "Answer: Neither A nor B",
        "Answer: A or B",
        "Answer: B/D",
        "Answer: A and C",
        "The answer is a matter of debate.",
        "Answer: A combination of both",
        "The answer is not A.",
        "Answer: C-terminal",
        "A: up\nB: down",
        "<think>Answer: A",
        "Answer: A\n\nANSWER: G",
        "The answer is B. No, the answer is unclear.",
    ],
)
def test_unparsed(text):
    reading = read_letter(text, "ABCDEF")
    assert (reading.letter, reading.rule) == (None, "none")


TEXTS = {"A": "Actin disruptors", "B": "Microtubule stabilizers", "C": "Microtubule", "D": "A kinase inhibitor"}


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("actin  disruptors", "A"),
        ("Answer: Microtubule stabilizers.", "B"),
        ("Answer: A Actin disruptors", "A"),
        ("Answer: A kinase inhibitor", "D"),
        ("These are not actin disruptors", None),
        ("actin disruptors or microtubule stabilizers", None),
    ],
)
def test_full_text_counts_if_unique(text, letter):
    assert read_letter(text, "ABCD", TEXTS).letter == letter


def test_rates_tell_strict_from_lenient():
    assert read_letter("Answer: B", "AB").strict
    assert not read_letter("I pick B", "AB").strict


@settings(deadline=None)
@given(st.text(alphabet="ABCDanswer is:()*{}<>/\\\n or,.think", max_size=80) | st.text(max_size=80))
def test_letters_total(text):
    reading = read_letter(text, "ABCD", TEXTS)
    assert reading.letter in {None, *"ABCD"}
    assert read_letter(text, "ABCD", TEXTS) == reading


@pytest.mark.parametrize(
    "unit", ["answer:", "the answer is ", "option ", "<answer>", "{", "A and ", "\\boxed{", " ", "a"]
)
def test_a_megabyte_is_read(unit):
    assert read_letter(unit * (1_000_000 // len(unit)), "ABCD", TEXTS).rule in ("none", "tag", "sentence")


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("There are 5 criteria; overall I give 9.", None),
        ("GRID: C", None),
        ("This is not excellent but acceptable.", None),
        ("", None),
        ('{"score": 11}', None),
        ('{"score": "9/10"}', None),
        ('{"score": 9}', 9.0),
        ('```json\n{"score": "9"}\n```', 9.0),
        ('{"score": true}', None),
        ('{"score": null}', None),
        ('{"score": NaN}', None),
        ('{"overall": 9}', None),
        ('{"score": 9} {"score": 3}', None),
    ],
)
def test_e03(text, score):
    reading = read_judge_score(text, 1, 10)
    assert reading.score == score
    assert reading.status == ("unscored" if score is None else "scored")
    assert bool(reading.reason) == (score is None)


def test_the_key_can_be_named():
    assert read_judge_score('{"overall": 4, "score": 2}', 1, 5, key="overall").score == 4

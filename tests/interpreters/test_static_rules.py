"""What the offline rules answer to static items, and the judge that is for tests only."""

from __future__ import annotations

import asyncio

from evidence.contracts import Message, NoOptions, Request, Text
from interpreters.letters import read_letter
from interpreters.rule_judge import RuleJudge
from interpreters.rules import RulesInterpreter


def ask(text: str, step: str = "answer") -> str:
    request = Request(step=step, messages=(Message(role="user", parts=(Text(text=text),)),))
    return asyncio.run(RulesInterpreter(NoOptions()).ask(request, {}, repeat=0)).text


def test_the_longest_option_is_chosen_whatever_stands_in_it():
    text = "Which?\n\nOptions:\nA. short\nB. longest of all, says the answer: C\nC. mid sized\n\nANSWER: one of A, B"
    assert read_letter(ask(text), "ABC").letter == "B"
    assert "without the figure" in ask(text)


def test_an_open_question_and_a_plan_get_an_answer_that_says_nothing():
    assert read_letter(ask("Why does it rise?"), "ABCD").letter is None
    assert ask("Make a plan", "plan") == "none"


def test_the_rule_judge_says_what_it_is_and_judges_nothing_else():
    judge = RuleJudge(NoOptions())
    assert judge.identity()["for"] == "tests and dry runs only"
    request = Request(step="answer", messages=(Message(role="user", parts=(Text(text="x"),)),))
    assert asyncio.run(judge.ask(request, {}, repeat=0)).status == "refused"

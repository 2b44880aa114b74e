"""Prompting strategies: generators that yield the next calls and are sent their replies.

A strategy is a pure function of the replies, so a resumed run that takes its replies from the archive asks the same
again. Its last batch is one call of the step "answer", whose reply is read by the one letter parser (or, in the open
track, is the response). Descriptions are in docs/static-benchmarks.md; the words are ours.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Literal, NamedTuple

from evidence.contracts import Step
from interpreters.extract import answer_part

StrategyName = Literal["direct", "ddcot", "ddcot_single", "vot", "vic", "cantor"]

MAX_PARTS = 8
"""More sub-questions or steps of a plan than this are left out."""
MAX_NOTE = 8000
"""A reply that is quoted in a later prompt is cut after this many characters."""


class Puzzle(NamedTuple):
    """What is asked: question and options as text, the form of the answer, and whether there are figures."""

    text: str
    form: str
    figures: bool

    @property
    def where(self) -> str:
        """What the candidate has to go by."""
        return "the figure" if self.figures else "the text"


class Ask(NamedTuple):
    """One call: its step, its text, and whether it is shown the figures."""

    step: Step
    text: str
    figures: bool = True


class Heard(NamedTuple):
    """What came of a call: the status of the reply, and its text."""

    status: str
    text: str


Calls = Generator[list[Ask], list[str], None]
Strategy = Callable[[Puzzle], Calls]


async def follow(strategy: Strategy, puzzle: Puzzle, ask: Callable[[int, Ask], Awaitable[Heard]]) -> Heard:
    """Make the calls of a strategy in order, numbered from 0. A call without a readable reply ends the item with it."""
    calls = strategy(puzzle)
    batch, number = next(calls), 0
    while True:
        texts = []
        for one in batch:
            heard = await ask(number, one)
            if heard.status != "ok":
                return heard
            number += 1
            texts.append(answer_part(heard.text).strip()[:MAX_NOTE])
        try:
            batch = calls.send(texts)
        except StopIteration:
            return heard


def direct(p: Puzzle) -> Calls:
    """One call, step by step."""
    yield [Ask("answer", f"{p.text}\n\nWork through {p.where} step by step. {p.form}")]


def ddcot(p: Puzzle) -> Calls:
    """Duty-distinct reasoning: split without the figure, look up what is uncertain, put together with doubt."""
    split = f"{p.text}\n\nYou do not see the figure. {_SPLIT}"
    (notes,) = yield [Ask("plan", split, figures=False)]
    open_ones = [question for question, answer in _pairs(notes) if _UNCERTAIN.fullmatch(answer)]
    looks = [Ask("look", f"Answer from {p.where} in one or two sentences: {question}") for question in open_ones]
    seen = (yield looks) if looks else []
    found = "\n".join(f"- {question} {answer}" for question, answer in zip(open_ones, seen, strict=True))
    text = f"{p.text}\n\nNotes made without the figure:\n{notes}\n\nLooked up in the figure:\n{found or '- nothing'}"
    yield [Ask("answer", f"{text}\n\n{_DOUBT} {p.form}", figures=False)]


def ddcot_single(p: Puzzle) -> Calls:
    """The same in one call, with the figure."""
    text = f"{p.text}\n\nFirst: {_SPLIT}\nThen answer every uncertain one from {p.where}. Last: {_DOUBT} {p.form}"
    yield [Ask("answer", text)]


def vot(p: Puzzle) -> Calls:
    """One call: the state is drawn in words after every step."""
    draw = "After each step of your reasoning, sketch in words or symbols what the relevant panels show at that point."
    yield [Ask("answer", f"{p.text}\n\n{draw} {p.form}")]


def vic(p: Puzzle) -> Calls:
    """Plan before looking: a plan without the figure, extraction with it, and the answer from what was extracted."""
    plan = (
        f"{p.text}\n\nYou do not see the figure yet. Write a numbered plan of at most {MAX_PARTS} steps, one a line, "
        "for reading what is needed from it; the last step says in what form the answer is given. Do not answer yet."
    )
    (planned,) = yield [Ask("plan", plan, figures=False)]
    steps = _numbered(planned) or [planned]
    first, last = "\n".join(steps[:-1]) or steps[-1], steps[-1]
    (found,) = yield [Ask("look", f"Follow these steps with {p.where} and write down what each gives:\n{first}")]
    text = f"{p.text}\n\nExtracted information:\n{found}\n\nLast step of the plan: {last}"
    yield [Ask("answer", f"{text}\n\nAnswer from the extracted information. {p.form}")]


def cantor(p: Puzzle) -> Calls:
    """Decide who looks at what, one call for each expert with a task, then the synthesis; all with the figure."""
    lines = "\n".join(f"{name}: the task of the expert for {what}, or none" for name, what in EXPERTS.items())
    decide = f"{p.text}\n\nDecide what must be found out, and give tasks to four experts. Write four lines:\n{lines}"
    (decided,) = yield [Ask("plan", decide)]
    tasks = _tasks(decided)
    looks = [Ask("look", f"You are the expert for {EXPERTS[name]}. {task}") for name, task in tasks.items()]
    seen = (yield looks) if looks else []
    found = "\n".join(f"- {name}: {answer}" for name, answer in zip(tasks, seen, strict=True))
    yield [Ask("answer", f"{p.text}\n\nThe experts report:\n{found or '- nothing'}\n\n{_DOUBT} {p.form}")]


STRATEGIES: dict[StrategyName, Strategy] = {
    "direct": direct,
    "ddcot": ddcot,
    "ddcot_single": ddcot_single,
    "vot": vot,
    "vic": vic,
    "cantor": cantor,
}

EXPERTS = {
    "text": "reading labels and text in the figure",
    "objects": "recognising and counting objects",
    "visual": "answering one question about what is visible",
    "chart": "reading values from charts",
}

_SPLIT = (
    f"Split the question into at most {MAX_PARTS} sub-questions, one numbered line each, in the form\n"
    "1. sub-question? | answer\nand write UNCERTAIN as the answer of every one that only the figure can settle."
)
_DOUBT = "These notes may be wrong: check them against each other before you rely on them."

_LINE = re.compile(r"^\W{0,4}\d{1,2}[.):]\s*(\S.*)$", re.MULTILINE)
_UNCERTAIN = re.compile(r"\W*uncertain\W*", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\W*(?:none|n/?a|no task|nothing|not needed|null)?\W*", re.IGNORECASE)


def _numbered(text: str) -> list[str]:
    return [line.strip() for line in _LINE.findall(text)][:MAX_PARTS]


def _pairs(text: str) -> list[tuple[str, str]]:
    parts = (line.rpartition("|") for line in _numbered(text))
    return [(question.strip(), answer.strip()) for question, bar, answer in parts if bar and question.strip()]


def _tasks(text: str) -> dict[str, str]:
    """The experts' tasks by name; a task is left out only where its whole text is a placeholder."""
    tasks = {}
    for name in EXPERTS:
        line = re.search(rf"^\W{{0,4}}{name}\W{{0,4}}:[\s*_]*(.*)$", text, re.IGNORECASE | re.MULTILINE)
        if line and not _PLACEHOLDER.fullmatch(line[1]):
            tasks[name] = line[1].strip()
    return tasks


def letter_form(letters: Sequence[str]) -> str:
    """How a letter is asked for."""
    shown = ", ".join(letters[:-1]) + f" or {letters[-1]}"
    return f"End with one line that holds nothing but your final choice, in the form\nANSWER: one of {shown}"


OPEN_FORM = "Then give your final answer in a few sentences, with the evidence that it rests on."

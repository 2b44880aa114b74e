"""Answers in columns are the answers that were read, and what is checked of all at once is what is checked of each."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evidence.contracts import Case, Measurement, Perturbation, Readout, Usage
from evidence.errors import ArchiveError
from loops import lean
from loops.answer_checks import Questions, all_fit
from loops.answers import Answers
from loops.opened import Asked
from loops.step_columns import StepColumns

NUMBER = st.none() | st.floats(allow_nan=False, allow_infinity=False)
CHANCES = st.sampled_from([None, None, (0.2, 0.3, 0.5), (0.5, 0.5), (0.6, 0.6, -0.2), (0.2, 0.3, 0.4), (), (1.0, 0.0)])
ANSWERS = st.builds(
    lean.Answer,
    readout=st.sampled_from(["a", "b"]),
    status=st.sampled_from(["answered", "missing", "invalid"]),
    label=st.sampled_from([None, "up", "down", "high", "odd"]),
    value=NUMBER,
    confidence=st.sampled_from([None, None, 0.0, 0.5, 1.0, 1.5, -0.1]),
    probabilities=CHANCES,
    reason=st.sampled_from(["", "why"]),
)


def case(name: str, *readouts: Readout) -> Case:
    menu = (Measurement(id="m", name="m"),)
    return Case(
        id=name, title=name, perturbation=Perturbation(id="p", name="p", targets=()), readouts=readouts, menu=menu
    )


CASES = (
    case("one", Readout(id="a", name="a", threshold=0.2)),
    case("two", Readout(id="b", name="b", labels=("high", "low")), Readout(id="a", name="a", threshold=0.1)),
)


def questions(asked: Case, answers: Answers) -> Questions:
    return Questions(Asked(asked.readouts, asked.menu), answers)


def step(answers: list[lean.Answer]) -> lean.Stepped:
    return lean.Stepped(
        event="stepped",
        case="a",
        repeat=0,
        step="predict",
        turn=0,
        status="ok",
        attempts=("ok",),
        usage=lean.Usage(**Usage().model_dump()),
        answers=tuple(answers),
    )


@given(st.lists(st.lists(ANSWERS, max_size=3), max_size=5))
def test_answers_come_back_as_they_were_read(given_: list[list[lean.Answer]]) -> None:
    answers = Answers()
    first = [answers.add(new) for new in given_]
    assert [answers.of(n, len(new)) for n, new in zip(first, given_, strict=True)] == given_
    assert len(answers) == sum(map(len, given_))
    odd = [a for new in given_ for a in new if (a.status == "answered") is (a.label is None)]
    assert answers.sound is not bool(odd)


def test_missing_answers_are_the_same_entries_for_all() -> None:
    answers = Answers()
    first = answers.missing(("a", "b"), "malformed")
    assert answers.missing(("a", "b"), "malformed") == first
    assert answers.missing(("a",), "malformed") != first
    assert answers.of(first, 2) == [
        lean.Answer(readout=name, status="missing", reason="malformed") for name in ("a", "b")
    ]


FITTING = {
    "a": st.builds(
        lean.Answer,
        readout=st.just("a"),
        status=st.just("answered"),
        label=st.sampled_from([None, "up", "near zero"]),
        confidence=st.sampled_from([None, 0.0, 1.0]),
        probabilities=st.sampled_from([None, (0.2, 0.3, 0.5)]),
    ),
    "b": st.builds(
        lean.Answer,
        readout=st.just("b"),
        status=st.just("answered"),
        label=st.sampled_from(["high", "low"]),
        probabilities=st.sampled_from([None, (0.5, 0.5)]),
    ),
}


@st.composite
def steps_of(draw) -> tuple[int, list[list[lean.Answer]]]:
    """The steps of a cell of one of the cases; now and then with an answer that does not fit."""
    number = draw(st.integers(0, 1))
    steps = []
    for _ in range(draw(st.integers(0, 3))):
        answers = [draw(FITTING[r.id]) for r in CASES[number].readouts]
        if draw(st.integers(0, 5)) == 0:
            answers[draw(st.integers(0, len(answers) - 1))] = draw(ANSWERS)
        elif draw(st.integers(0, 5)) == 0:
            answers = answers[: draw(st.integers(0, len(answers)))]
        steps.append(answers)
    return number, steps


@given(st.lists(steps_of(), max_size=4))
def test_all_fit_where_each_fits(cells) -> None:
    answers = Answers()
    steps = StepColumns(answers)
    known = [questions(c, answers) for c in CASES]
    asked = []
    for number, made in cells:
        asked.append((known[number], tuple(range(len(steps), len(steps) + len(made)))))
        steps.add([step(new) for new in made])
    which = np.array([number for number, made in cells for _ in made], dtype=np.intp)
    try:
        for own, numbers in asked:
            own.check(numbers, steps)
    except ArchiveError:
        assert not all_fit(known, which, np.arange(len(steps)), steps)
    else:
        assert all_fit(known, which, np.arange(len(steps)), steps)


def test_what_does_not_fit_is_named() -> None:
    answers = Answers()
    steps = StepColumns(answers)
    steps.add([step([lean.Answer(readout="a", status="answered", label="sideways")])])
    with pytest.raises(ArchiveError, match="step predict: 'sideways' is no option of 'a'"):
        questions(CASES[0], answers).check((0,), steps)

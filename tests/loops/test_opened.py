"""What scoring reads of a case is what the archive's own value says, and no line is taken that it would not take."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evidence import contracts
from evidence.checks import check_truth
from evidence.errors import ArchiveError, ContractError
from evidence.values import canonical_json
from loops import archive
from loops.opened import Asked, OpenedCase, Truth, opened_case, read_opened
from tests.loops.test_lean import MAYBE, NAME, OBSERVATIONS, PREDICTIONS, TEXT, changed

LABELS = st.sampled_from([contracts.NUMERIC_LABELS, ("high", "low")])
TRUTHS = st.builds(
    contracts.Truth, readout=NAME, label=st.sampled_from(["up", "low"]), value=MAYBE, se=st.none() | st.floats(0, 1e9)
)


@st.composite
def readouts(draw, name: str) -> contracts.Readout:
    labels = draw(LABELS)
    threshold = draw(st.sampled_from([0.1, 0.2])) if labels == contracts.NUMERIC_LABELS else None
    return contracts.Readout(id=name, name=draw(NAME), labels=labels, threshold=threshold)


@st.composite
def opened(draw) -> archive.Opened:
    asked = [draw(readouts(name)) for name in "ab"[: draw(st.integers(1, 2))]]
    menu = [contracts.Measurement(id=f"m{n}", name=draw(NAME), readout=r.id) for n, r in enumerate(asked)]
    return archive.Opened(
        case=contracts.Case(
            id=draw(NAME),
            title=draw(NAME),
            perturbation=draw(st.builds(contracts.Perturbation, id=NAME, name=NAME, targets=st.tuples(NAME))),
            readouts=tuple(asked),
            menu=tuple(menu),
        ),
        truth=tuple(draw(st.lists(TRUTHS, max_size=2))),
        sealed=tuple(draw(st.lists(OBSERVATIONS, max_size=2))),
        baselines=draw(st.dictionaries(TEXT, st.lists(PREDICTIONS, max_size=2).map(tuple), max_size=2)),
        adapter_inputs=draw(TEXT),
    )


def plain(found: OpenedCase | None):
    if found is None:
        return None
    asked = found.case.asked
    return found.case.id, asked.readouts, asked.menu, *found[1:]


def in_full(line: bytes):
    """What the archive's own value says of a line; the words of the error where it refuses it."""
    damaged: list[int] = []
    try:
        event = archive.event_of(line, Path("events.jsonl"), 1, damaged)
    except ArchiveError as error:
        return str(error), damaged
    return plain(opened_case(event) if isinstance(event, archive.Opened) else None), damaged


def read(line: bytes):
    damaged: list[int] = []
    try:
        return plain(read_opened(line, Path("events.jsonl"), 1, damaged)), damaged
    except ArchiveError as error:
        return str(error), damaged


@given(opened())
def test_a_case_is_read_as_it_was_opened(event: archive.Opened) -> None:
    line = canonical_json(event).encode()
    assert read(line) == (plain(opened_case(event)), [])


@given(changed(opened()))
def test_no_line_is_read_otherwise_than_by_the_archives_own_value(line: bytes) -> None:
    assert read(line) == in_full(line)


def test_cases_that_ask_the_same_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loops.opened.event_of", None)  # such lines are never read in full
    found = []
    for name in ("a", "b"):
        case = contracts.Case(
            id=name,
            title=f"case {name}",
            perturbation=contracts.Perturbation(id=name, name=name, targets=(name,)),
            readouts=(contracts.Readout(id="r", name="r", threshold=0.2),),
            menu=(contracts.Measurement(id="m", name="m", readout="r"),),
        )
        event = archive.Opened(case=case, truth=(), sealed=(), baselines={}, adapter_inputs="")
        found.append(read_opened(canonical_json(event).encode(), Path("events.jsonl"), 1, []))
    first, second = found
    assert first is not None
    assert second is not None
    assert (first.case.id, second.case.id) == ("a", "b")
    assert first.case.asked is second.case.asked


PREDICTED = st.builds(
    contracts.Prediction,
    readout=st.sampled_from("ab"),
    mean=st.sampled_from([-0.3, -0.2, 0.0, 0.1, 0.2, 0.25]),
    sd=st.just(0.2),
    dof=st.none() | st.just(4.0),
)
NUMERIC = tuple(contracts.Readout(id=name, name=name, threshold=limit) for name, limit in (("a", 0.2), ("b", 0.1)))


@given(st.lists(st.tuples(PREDICTED, PREDICTED), max_size=3))
def test_predictions_are_decided_as_each_readout_decides(pairs) -> None:
    predictions = [p for pair in pairs for p in pair]
    decided, means = Asked(NUMERIC, ()).decide(predictions)
    assert decided == [r.decide(p) for pair in pairs for r, p in zip(NUMERIC, pair, strict=True)]
    assert means == [p.mean for p in predictions]


CATEGORICAL = contracts.Readout(id="b", name="b", labels=("high", "low"))


@given(
    st.sampled_from([NUMERIC, (NUMERIC[0], CATEGORICAL), (CATEGORICAL,)]),
    st.lists(
        st.builds(
            Truth,
            readout=st.sampled_from("ab"),
            label=st.sampled_from(["up", "near zero", "low"]),
            value=st.sampled_from([None, 0.0, 0.15, 0.2, 0.3]),
        ),
        max_size=2,
    ),
)
def test_truth_is_checked_as_that_of_a_setting(asked, truth: list[Truth]) -> None:
    def words(check) -> str:
        try:
            check()
        except ContractError as error:
            return str(error)
        return ""

    full = [contracts.Truth(readout=t.readout, label=t.label, value=t.value) for t in truth]
    assert words(lambda: check_truth(asked, truth)) == words(lambda: check_truth(asked, full))

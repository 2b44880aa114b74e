"""Events taken up in one pass are those that are read cell by cell: same cells, same damage, same errors."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evidence.errors import ArchiveError
from evidence.values import canonical_json
from loops import cell_events
from loops.cell_events import CellEvents
from loops.index import LineIndex, Place
from loops.run_events import OpenedCases, RunEvents

CASES, REPEATS = ("a", "b"), 2
STEP = {"attempts": ["ok"], "status": "ok", "usage": {}, "turn": 0}
ANSWER = {"readout": "r", "status": "answered", "label": "up", "value": 0.25, "confidence": None}
TABLE = {"kind": "table", "name": "t", "columns": ["x"], "rows": [[1]]}


def events(place: dict, measured: str, label: str, *, review: bool = False) -> list[dict]:
    """The events of one whole cell."""
    answers = [{**ANSWER, "label": label}]
    seen = {"measurement": measured, "value": 1.0, "parts": [TABLE] if measured == "shown" else []}
    return [
        {"event": "stepped", "step": "predict", "answers": answers, **STEP, **place},
        *([{"event": "stepped", "step": "review", "answers": answers, **STEP, **place}] if review else []),
        {"event": "selected", "turn": 0, "measurement": measured, "refused": ["x"], **place},
        {"event": "observed", "turn": 0, "observation": seen, "calibrated": [], **place},
        {"event": "stepped", "step": "revise", "answers": answers, "unmetered": 1, **STEP, **place},
        {"event": "closed", "outcome": "complete", "measured": [measured], **place},
    ]


def changed(draw, event: dict) -> dict:
    """An event that was edited."""
    key = draw(st.sampled_from([*sorted(event), "added"]))
    odd = [None, 0, 1, 5, -1, 10**30, "a", "b", "nobody", "", [], {}, ["m", "m"], {"id": "a"}, "predict failed"]
    return {**event, key: draw(st.sampled_from(odd))}


@st.composite
def journals(draw) -> bytes:
    lines = []
    for case in CASES:
        for repeat in range(REPEATS + 1):
            place, measured = {"case": case, "repeat": repeat}, draw(st.sampled_from(["m", "shown"]))
            again, review = draw(st.lists(st.sampled_from(["up", "down"]), max_size=2)), draw(st.booleans())
            for event in [event for label in again for event in events(place, measured, label, review=review)]:
                how = draw(st.sampled_from(["as it is"] * 20 + ["edited", "lost", "cut", "unsound", "blanks", "twice"]))
                if how == "edited":
                    event = changed(draw, event)
                elif how == "unsound" and "answers" in event:
                    event = {**event, "answers": [{**ANSWER, "label": None}]}
                text = json.dumps(event) if how == "blanks" else canonical_json(event)
                lines += {"lost": [], "cut": [text[: draw(st.integers(0, len(text)))]]}.get(how, [text])
                if how == "twice":
                    lines[-1] += draw(st.sampled_from(["", ",", " "])) + text
    odd = [
        "",
        " ",
        "[]",
        "{}",
        "\ud800",
        '{"case":"a","repeat":0}',
        '{"case":{"id":"a"}}',
        '{"case":{"id":"z"}}',
        "{}{}",
    ]
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        lines.insert(draw(st.integers(0, len(lines))), draw(st.sampled_from(odd)))
    if draw(st.booleans()):
        lines = draw(st.permutations(lines))
    return "\n".join(lines).encode("utf-8", "surrogatepass") + draw(st.sampled_from([b"", b"\n"]))


class Run:
    cases = CASES


def read_cell_by_cell(folder: Path, review: bool):
    """What RunEvents says of every cell."""
    events = RunEvents(folder, Run())  # type: ignore[arg-type]
    cells = {}
    with events.index.open() as reader:
        for number, case in enumerate(CASES):
            events.opened(reader, case)
            for repeat in range(REPEATS):
                parts = events.parts(reader, Place(case, repeat))
                if parts.whole(review):
                    cells[number, repeat] = parts
        for place in events.index.places():
            if place.repeat is not None and place.repeat >= REPEATS:
                events.parts(reader, place)
    return cells, events.damaged


def read_at_once(folder: Path, review: bool):
    """What CellEvents says of every cell, in the same words."""
    index = CellEvents(folder / "events.jsonl", CASES, REPEATS, review=review)
    opened, cells = OpenedCases(index), {}
    with index.open() as reader:
        for case in CASES:
            opened.opened(reader, case)
    places = [divmod(cell, REPEATS) for cell in index.cell.tolist()]
    for place, number, start in zip(places, plans_of(index), index.start[:-1].tolist(), strict=True):
        if index.plans[number].whole:
            cells[place] = index.plans[number], index.ref[start:].tolist()
    return index, cells, opened.damaged


def plans_of(index: CellEvents) -> list[int]:
    return index.plans_of(0, len(index.cell))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(journals(), st.booleans())
def test_one_pass_finds_what_reading_cell_by_cell_finds(tmp_path: Path, content: bytes, review: bool) -> None:
    (tmp_path / "events.jsonl").write_bytes(content)
    try:
        expected, damaged = read_cell_by_cell(tmp_path, review)
    except ArchiveError:
        with pytest.raises(ArchiveError):
            read_at_once(tmp_path, review)
        return
    index, found, also_damaged = read_at_once(tmp_path, review)
    assert (set(found), also_damaged) == (set(expected), damaged)
    for key, (plan, refs) in found.items():
        parts = expected[key]
        assert parts.closed is not None
        assert (plan.outcome, plan.measured) == (parts.closed.outcome, parts.closed.measured)
        assert list(plan.steps) == sorted(parts.steps, key=lambda key: (key[1], key[0]))
        for place, at in plan.steps.items():
            step, made = refs[at], parts.steps[place]
            assert index.answers.of(index.steps.first[step], index.steps.size[step]) == list(made.answers)
            assert (index.steps.step(step), index.steps.status(step)) == (made.step, made.status)
            assert (index.steps.attempts(step), index.steps.unmetered[step]) == (len(made.attempts), made.unmetered)
        turns = range(len(plan.measured))
        seen = [index.observations.things[refs[at]] for at in plan.observed]
        assert seen == [parts.observed[turn].observation for turn in turns]
        assert sum(refs[at] for at in plan.selected) == sum(len(s.refused) for s in parts.selected.values())


def test_answers_that_no_contract_takes_are_refused_with_their_line(tmp_path: Path) -> None:
    good = events({"case": "a", "repeat": 0}, "m", "up")
    bad = {**good[0], "answers": [{**ANSWER, "label": None}], "repeat": 1}
    path = tmp_path / "events.jsonl"
    path.write_text("".join(canonical_json(event) + "\n" for event in (*good, bad)))
    with pytest.raises(ArchiveError, match=r"events.jsonl line 6 is not an event: .*label goes with status"):
        CellEvents(path, CASES, REPEATS, review=False)


def write_repeats(path: Path, second: dict) -> None:
    """Two repeats of both cases; what the second repeat of "a" observed has `second` for its table."""
    lines = [
        event
        for repeat in range(REPEATS)
        for case, measured in zip(CASES, ("shown", "m"), strict=True)
        for event in events({"case": case, "repeat": repeat}, measured, "up")
    ]
    seen = [line["observation"] for line in lines if line["event"] == "observed" and line["case"] == "a"]
    seen[1]["parts"] = [second]
    path.write_text("".join(canonical_json(line) + "\n" for line in lines))


@pytest.mark.parametrize("known", [1, 4096])
def test_observations_that_say_the_same_are_one(tmp_path: Path, monkeypatch, known: int) -> None:
    monkeypatch.setattr(cell_events, "KNOWN", known)
    for second, numbers in ((TABLE, [0, 0, 1, 1]), ({**TABLE, "rows": [[2]]}, [0, 2, 1, 1])):
        write_repeats(tmp_path / "events.jsonl", second)
        index = CellEvents(tmp_path / "events.jsonl", CASES, REPEATS, review=False)
        starts = zip(plans_of(index), index.start.tolist(), strict=False)
        assert [int(index.ref[start + at]) for plan, start in starts for at in index.plans[plan].observed] == numbers


def test_an_observation_whose_parts_no_contract_takes_is_refused_with_its_line(tmp_path: Path) -> None:
    write_repeats(tmp_path / "events.jsonl", {**TABLE, "rows": [[1, 2]]})
    with pytest.raises(ArchiveError, match=r"events.jsonl line 13 is not an event: .*parts"):
        CellEvents(tmp_path / "events.jsonl", CASES, REPEATS, review=False)


def test_only_lines_that_open_cases_stay_in_the_index(tmp_path: Path) -> None:
    opened = {"adapter_inputs": "", "case": {"id": "b"}, "event": "opened"}
    lines = [*events({"case": "a", "repeat": 0}, "m", "up"), opened]
    path = tmp_path / "events.jsonl"
    path.write_text("".join(canonical_json(event) + "\n" for event in lines))
    assert list(CellEvents(path, CASES, REPEATS, review=False).places()) == [Place("b", None)]
    assert list(LineIndex(path, CASES).places()) == [Place("a", 0), Place("b", None)]


def test_a_failed_prediction_that_says_it_measured_is_not_whole(tmp_path: Path) -> None:
    place = {"case": "a", "repeat": 0}
    for measured, whole in (([], True), (["m"], False)):
        closed = {"event": "closed", "outcome": "predict failed", "measured": measured, **place}
        lines = [events(place, "m", "up")[0], closed]
        path = tmp_path / "events.jsonl"
        path.write_text("".join(canonical_json(event) + "\n" for event in lines))
        index = CellEvents(path, CASES, REPEATS, review=False)
        assert [index.plans[number].whole for number in plans_of(index)] == [whole]

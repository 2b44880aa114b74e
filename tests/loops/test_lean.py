"""The lean events are the archive's events: the same fields and types, and no line that the archive would not take."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from evidence import contracts
from evidence.errors import ArchiveError
from evidence.values import canonical_json
from loops import archive, lean, opened

PAIRS = [
    (lean.Answer, contracts.Answer),
    (lean.Usage, contracts.Usage),
    (lean.Observation, contracts.Observation),
    (lean.Prediction, contracts.Prediction),
    (lean.Stepped, archive.Stepped),
    (lean.Selected, archive.Selected),
    (lean.Observed, archive.Observed),
    (lean.Closed, archive.Closed),
    (opened.Truth, contracts.Truth),
    (opened.Perturbation, contracts.Perturbation),
]
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
MAYBE = st.none() | NUMBER
TEXT = st.text(max_size=9)
NAME = st.text(min_size=1, max_size=9)
NAMES = st.lists(TEXT, max_size=3).map(tuple)
PLACE = {"case": TEXT, "repeat": st.integers(), "turn": st.integers()}
TOKENS = st.none() | st.integers(0, 2**53 - 1)


@st.composite
def answers(draw) -> contracts.Answer:
    status = draw(st.sampled_from(["answered", "missing", "invalid"]))
    return contracts.Answer(
        readout=draw(NAME),
        status=status,
        label=draw(TEXT) if status == "answered" else None,
        value=draw(MAYBE),
        confidence=draw(MAYBE),
        probabilities=draw(st.none() | st.lists(NUMBER, max_size=3).map(tuple)),
        reason=draw(TEXT),
    )


PREDICTIONS = st.builds(
    contracts.Prediction,
    readout=NAME,
    mean=NUMBER,
    sd=st.floats(0, 1e9),
    dof=st.none() | st.floats(2, 1e9, exclude_min=True),
)
OBSERVATIONS = st.builds(
    contracts.Observation,
    measurement=NAME,
    readout=st.none() | TEXT,
    status=st.sampled_from(["measured", "missing"]),
    value=MAYBE,
    se=st.none() | st.floats(0, 1e9),
    n_cells=st.none() | st.integers(),
    reason=TEXT,
)
EVENTS = st.one_of(
    st.builds(
        archive.Stepped,
        **PLACE,
        step=st.sampled_from(["predict", "review", "select", "revise"]),
        status=TEXT,
        answers=st.lists(answers(), max_size=3).map(tuple),
        proposal=st.none() | TEXT,
        attempts=NAMES,
        usage=st.builds(contracts.Usage, prompt_tokens=TOKENS, completion_tokens=TOKENS),
        unmetered=st.integers(),
    ),
    st.builds(archive.Selected, **PLACE, measurement=st.none() | TEXT, refused=NAMES, reason=TEXT),
    st.builds(
        archive.Observed, **PLACE, observation=OBSERVATIONS, calibrated=st.lists(PREDICTIONS, max_size=3).map(tuple)
    ),
    st.builds(
        archive.Closed,
        case=TEXT,
        repeat=st.integers(),
        outcome=st.sampled_from(["complete", "predict failed"]),
        measured=NAMES,
    ),
)
ODD = (
    *("NaN", "-Infinity", "1e400", "-0", "-0.0", "1E2", "1.0", "0.5", "7", "-1", "9" * 30, "9007199254740992", "0x1"),
    *(
        "true",
        "null",
        '""',
        '"up"',
        '"answered"',
        '"missing"',
        '"stepped"',
        '"closed"',
        '"select"',
        '"3"',
        '"' + "x" * 201 + '"',
    ),
    *(
        '"\\ud800"',
        '"\\u00e9"',
        '"\\u0000"',
        '"\x01"',
        "[]",
        "{}",
        "[null]",
        "[0.5, 1]",
        '["ok"]',
        "[[1]]",
        "'a'",
        "",
        "[1,]",
    ),
    '{"kind": "text", "text": "shown"}',
    '[{"kind": "text", "text": "shown"}]',
    '[{"kind": "figure", "name": "f", "sha256": "0"}]',
)
SLOT = "<here>"


@st.composite
def changed(draw, events=EVENTS) -> bytes:
    """A line with one value changed, lost or named twice, or a field too many; or cut."""
    record = json.loads(canonical_json(draw(events)))
    inside = [record]
    for value in inside:
        inside += [v for v in (value.values() if isinstance(value, dict) else value) if isinstance(v, dict | list)]
    part = draw(st.sampled_from([value for value in inside if value]))
    key = draw(st.sampled_from(sorted(part) if isinstance(part, dict) else range(len(part))))
    how = draw(st.sampled_from(["change", "change", "change", "lose", "add", "twice", "cut", "blanks"]))
    if how == "lose":
        del part[key]
    elif how in ("change", "add") or isinstance(part, list):
        part["added" if how == "add" and isinstance(part, dict) else key] = SLOT
    elif how == "twice":
        part[SLOT] = part[key]
    text = json.dumps(record, indent=1 if how == "blanks" else None, ensure_ascii=draw(st.booleans()))
    text = (
        text.replace("\n", " ")
        .replace(f'"{SLOT}":', f"{json.dumps(key)}:")
        .replace(f'"{SLOT}"', draw(st.sampled_from(ODD)))
    )
    line = text.encode("utf-8", "surrogatepass")
    return line[: draw(st.integers(0, len(line)))] if how == "cut" else line


def plain(event):
    return None if event is None else lean.event(event)


def read_in_full(line: bytes):
    """What the archive's own values say of a line; the words of the error where they refuse it."""
    damaged: list[int] = []
    try:
        return plain(archive.event_of(line, Path("events.jsonl"), 1, damaged)), damaged
    except ArchiveError as error:
        return str(error), damaged


@given(EVENTS)
def test_every_line_that_the_archive_writes_is_read_at_once(event) -> None:
    big = [n for n in (event.repeat, getattr(event, "turn", 0)) if abs(n) > 2**62]
    found = lean.read_events(canonical_json(event).encode())
    assert found == [plain(event)] or (found is None and big)


def test_parts_of_an_observation_are_left_to_the_contracts() -> None:
    shown = contracts.Table(name="t", columns=("a",), rows=((1,),))
    observed = archive.Observed(
        case="a",
        repeat=0,
        turn=0,
        observation=contracts.Observation(measurement="m", parts=(shown,)),
        calibrated=(),
    )
    line = canonical_json(observed).encode()
    assert lean.read_events(line) is None
    found = lean.read_event(line, Path("events.jsonl"), 1, [])
    assert isinstance(found, lean.Observed)
    assert found.observation.parts == (shown,)
    assert found.observation == lean.observation(observed.observation)


@given(changed())
@example(b'{"event":"closed","case":"a","repeat":0,"outcome":"complete","event":"stepped"}')
@example(b'{"answers":[],"attempts":[],"case":"a","repeat":0,"status":"","step":"predict","turn":0,"usage":{}}')
@example(b'{"calibrated":[],"case":"a","observation":{"measurement":"m"},"repeat":0,"turn":0}')
@example(b'{"case":"a","case":"b","event":"closed","outcome":"complete","repeat":0,"repeat":1}')
@example(b'{"case":"\xff","event":"closed","outcome":"complete","repeat":0}')
@example(b'{"case":"a","event":"closed","measured":' + b"[" * 5000 + b"]" * 5000 + b',"outcome":"complete","repeat":0}')
def test_no_line_is_read_otherwise_than_by_the_archives_own_values(line: bytes) -> None:
    found = lean.read_events(line)
    if found:
        assert (found[0], []) == read_in_full(line)
    damaged: list[int] = []
    try:
        alone = lean.read_event(line, Path("events.jsonl"), 1, damaged)
    except ArchiveError as error:
        alone = str(error)
    assert (alone, damaged) == read_in_full(line)


@pytest.mark.parametrize(("struct", "model"), PAIRS)
def test_fields_types_and_defaults_are_those_of_the_contracts(struct, model) -> None:
    ours, theirs = msgspec.json.schema(struct), TypeAdapter(model).json_schema()
    ours, theirs = resolved(ours, ours["$defs"]), resolved(theirs, theirs.get("$defs", {}))
    for schema in (ours, theirs):
        if struct in (lean.Observation, lean.Observed):
            observation = schema["properties"].get("observation", schema)
            del observation["properties"]["parts"]  # any; the contracts read observations that have some
        schema["properties"].pop("event", None)
        schema["required"] = [name for name in schema.get("required", []) if name != "event"]
    assert ours == theirs


def resolved(schema, known):
    """A JSON schema without references, names and the order of choices."""
    if isinstance(schema, list | tuple):
        return sorted((resolved(s, known) for s in schema), key=lambda s: json.dumps(s, sort_keys=True))
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return resolved(known[schema["$ref"].rsplit("/", 1)[1]], known)
    if "properties" in schema:
        fields = {name: resolved(s, known) for name, s in schema["properties"].items()}
        return {
            "properties": fields,
            "required": sorted(schema.get("required", [])),
            "closed": schema.get("additionalProperties"),
        }
    kept = {k: resolved(v, known) for k, v in schema.items() if k not in ("title", "description", "$defs")}
    if "enum" in kept:
        kept.pop("type", None)
    return kept

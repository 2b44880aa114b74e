"""Reports A01, A03 (reading side), E09 and L09: one parser, total and deterministic."""

import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.contracts import Measurement, Readout, Reply, Request
from interpreters.extract import extract_object
from interpreters.reply import parse_reply, reply_schema

P1 = Readout(id="p1", name="Program 1", threshold=0.2)
P2 = Readout(id="p2", name="Program 2", threshold=0.2)
MECHANISM = Readout(id="moa", name="Mechanism", labels=("Actin disruptors", "DNA damage", "Eg5 inhibitors"))


def request(*readouts, menu=(), step="predict"):
    entries = tuple(Measurement(id=m, name=m) for m in menu)
    return Request(step=step, messages=(), readouts=readouts, menu=entries)


def read(body, *readouts, menu=()):
    text = body if isinstance(body, str) else json.dumps(body)
    return parse_reply(request(*(readouts or (P1,)), menu=menu), Reply(text=text))


def one(label="up", readout=P1, **fields):
    return read({"answers": {readout.id: {"label": label, **fields}}, "explanation": ""}, readout).answers[0]


# --- finding the object (A01) ---


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (
            '```json\n{"direction":"up","confidence":0.7}\n```\nSee [1] and {Norman}.',
            {"direction": "up", "confidence": 0.7},
        ),
        (
            '{"note":"see `HBG1` and ```x```","direction":"down","confidence":0.6}',
            {"note": "see `HBG1` and ```x```", "direction": "down", "confidence": 0.6},
        ),
        (
            'Here is the `result`: {"direction":"up","confidence":0.5}. Note [2].',
            {"direction": "up", "confidence": 0.5},
        ),
        ('{"a": 1}\nAgain: {"a": 1}', {"a": 1}),
        ('<think>{"a": 2}</think>{"a": 1}', {"a": 1}),
        ('{"a": 2} is wrong</think>\n{"a": 1}', {"a": 1}),
        ("The set {x} and \\frac{1}{2}: {}", {}),
    ],
)
def test_a01_found(text, value):
    assert extract_object(text) == (value, "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"direction":"up","confidence":0.2}\n{"direction":"down","confidence":0.9}', "two different JSON objects"),
        ('{"confidence":0.2,"confidence":0.9,"direction":"up"}', 'repeats the key "confidence"'),
        ('{"a": {"b": [{"c": 1, "c": 1}]}}', 'repeats the key "c"'),
        ('{"a": NaN}', "NaN"),
        ('{"a": -Infinity}', "-Infinity"),
        ('{"a": {"answers": {}}', "cut or damaged"),
        ('{"a": 1, "b": }', "cut or damaged"),
        ('{"answers": {"p1": {"label": "up"}}, "explanation": "not clo', "cut or damaged"),
        ("sorry, here it is", "no JSON object"),
        ('<think>{"a": 1}', "no JSON object"),
        ("[1, 2]", "no JSON object"),
        ("", "no JSON object"),
        ("\x00", "no JSON object"),
        ('{"a": ' + "9" * 5000 + "}", "too many digits"),
        ('{"a":' * 100_000, "levels deep"),
        ('{"a":' + "[" * 70 + "]" * 70 + "}", "levels deep"),
    ],
)
def test_a01_format_failures(text, problem):
    found = extract_object(text)
    assert found.value is None
    assert problem in found.problem


def test_the_depth_limit_does_not_depend_on_the_caller():
    text = '{"a":' + "[" * 63 + "]" * 63 + "}"

    def deeper(levels):
        return extract_object(text) if levels == 0 else deeper(levels - 1)

    assert extract_object(text) == deeper(sys.getrecursionlimit() // 2)


def test_a01_in_our_own_form():
    body = '{"answers": {"p1": {"label": "%s", "value": null, "confidence": %s}}, "explanation": "see `HBG1`"}'
    up = body % ("up", 0.7)
    parsed = read(f"```json\n{up}\n```\nSee [1] and {{Norman}}.")
    assert (parsed.status, parsed.answers[0].label, parsed.answers[0].confidence) == ("ok", "up", 0.7)
    both = read(up + "\n" + body % ("down", 0.9))
    assert (both.status, both.answers[0].status, both.answers[0].label) == ("invalid", "missing", None)


# --- answers ---


def test_every_readout_has_an_answer_in_order_and_good_ones_are_kept():
    parsed = read({"answers": {"p2": {"label": "up", "value": 0.5, "confidence": 1}, "P1": {"label": "up"}}}, P1, P2)
    assert [(a.readout, a.status, a.label) for a in parsed.answers] == [
        ("p1", "missing", None),
        ("p2", "answered", "up"),
    ]
    assert parsed.status == "invalid"
    assert parsed.problems == ('answer to "p1": no entry with this id; got "P1"',)


@pytest.mark.parametrize("label", ["near zero", "near_zero", "Near-Zero", "  NEAR ZERO "])
def test_labels_trimmed_any_case_separators_alike(label):
    assert one(label).label == "near zero"


@pytest.mark.parametrize(
    "label", ["nearzero", "near  zero", "upregulated", "\u2191", "up/down", 1, True, ["up"], {"up": 1}]
)
def test_labels_nothing_else(label):
    answer = one(label)
    assert (answer.status, answer.label) == ("invalid", None)
    assert 'expected one of the labels "down", "near zero", "up"' in answer.reason


@pytest.mark.parametrize("label", [None, "", "  "])
def test_no_label_is_a_missing_answer(label):
    assert one(label, value=0.3).status == "missing"


def test_null_value_leaves_the_answer():
    answer = one("up", value=None, confidence=0.6)
    assert (answer.status, answer.label, answer.value, answer.confidence) == ("answered", "up", None, 0.6)


def test_left_out_numbers_stay_none():
    assert one("up").model_dump() == {**one("up", value=None).model_dump(), "value": None, "confidence": None}


@pytest.mark.parametrize("confidence", [0.85, "0.85"])
def test_e09_confidence_read(confidence):
    assert one("up", confidence=confidence).confidence == 0.85


@pytest.mark.parametrize("confidence", ["85%", 85, "high", "0.7-0.8", None, True])
def test_e09_confidence_failure_is_a_format_failure(confidence):
    answer = one("up", confidence=confidence)
    assert (answer.status, answer.confidence) == ("invalid", None)
    assert "confidence: expected a plain number from 0 to 1" in answer.reason


def test_e09_nan_is_a_format_failure():
    assert read('{"answers": {"p1": {"label": "up", "confidence": NaN}}}').status == "invalid"


@pytest.mark.parametrize(("value", "expected"), [("\u22120.42", -0.42), ("-0,42", None), ("+1.5 \u00b1 0.2", None)])
def test_e09_value(value, expected):
    answer = one("up", value=value)
    assert answer.value == expected
    assert answer.status == ("invalid" if expected is None else "answered")


def test_categorical_probabilities_follow_the_labels():
    answer = one(
        "dna_damage", MECHANISM, probabilities={"eg5 inhibitors": 0.1, "DNA damage": 0.7, "actin-disruptors": 0.2}
    )
    assert (answer.label, answer.probabilities) == ("DNA damage", (0.2, 0.7, 0.1))
    assert one("DNA damage", MECHANISM, value=3, probabilities=None).value is None


@pytest.mark.parametrize(
    "probabilities",
    [
        [0.2, 0.7, 0.1],
        {"DNA damage": 1.0},
        {"DNA damage": 0.7, "Actin disruptors": 0.2, "Eg5 inhibitors": 0.9},
        {"DNA damage": 0.7, "dna_damage": 0.1, "Actin disruptors": 0.2},
        {"DNA damage": 1, "x": 0},
    ],
)
def test_wrong_probabilities_are_invalid(probabilities):
    assert one("DNA damage", MECHANISM, probabilities=probabilities).status == "invalid"


@pytest.mark.parametrize("answers", [None, [], "up", {}, {"p1": None}, {"p1": "up"}, {"p1": ["up"]}])
def test_wrong_shapes_are_problems(answers):
    parsed = read({"answers": answers})
    assert (parsed.status, len(parsed.answers), len(parsed.problems)) == ("invalid", 1, 1)
    assert parsed.answers[0].label is None


@pytest.mark.parametrize("status", ["refused", "truncated", "timeout", "filtered", "truncated_in_reasoning"])
def test_only_ok_replies_are_read(status):
    text = '{"answers": {"p1": {"label": "up"}}, "measurement": "m1"}'
    parsed = parse_reply(request(P1, menu=("m1",)), Reply(status=status, text=text, reasoning=text))
    assert (parsed.status, parsed.answers[0].status, parsed.proposal) == (status, "missing", None)


def test_reasoning_is_never_the_answer():
    assert (
        parse_reply(request(P1), Reply(text="-", reasoning='{"answers": {"p1": {"label": "up"}}}')).status == "invalid"
    )


# --- the proposal (L09) ---

MENU = ("KLF1+ctrl", "CEBPE+ctrl", "RUNX1T1+ctrl")


@pytest.mark.parametrize(
    ("given", "status", "proposal"),
    [
        ("GATA1+ctrl", "not_on_menu", None),
        ("klf1", "not_on_menu", None),
        ("KLF1+ctrl", "given", "KLF1+ctrl"),
        (" klf1+CTRL ", "given", "KLF1+ctrl"),
        ("KLF1 ctrl", "not_on_menu", None),
        (None, "declined", None),
        ("None", "declined", None),
        ("", "missing", None),
        (3, "not_on_menu", None),
        (["KLF1+ctrl"], "not_on_menu", None),
    ],
)
def test_l09_proposals(given, status, proposal):
    body = {"answers": {"p1": {"label": "up"}}, "measurement": given, "explanation": " because "}
    parsed = read(body, menu=MENU)
    assert (parsed.status, parsed.proposal_status, parsed.proposal) == ("ok", status, proposal)
    assert parsed.explanation == "because"
    if isinstance(given, str) and given:
        assert parsed.proposal_text == given.strip()
    if status == "not_on_menu":
        assert all(entry in parsed.problems[0] for entry in MENU)


def test_select_needs_only_a_measurement():
    parsed = parse_reply(request(menu=MENU, step="select"), Reply(text='{"measurement": "CEBPE+ctrl"}'))
    assert (parsed.status, parsed.answers, parsed.proposal, parsed.problems) == ("ok", (), "CEBPE+ctrl", ())
    absent = parse_reply(request(menu=MENU, step="select"), Reply(text="{}"))
    assert (absent.status, absent.proposal_status) == ("ok", "missing")


def test_without_a_menu_a_measurement_is_not_read():
    assert read({"answers": {"p1": {"label": "up"}}, "measurement": "x"}).proposal_text is None


def test_menu_ids_that_differ_by_case_are_matched_exactly_or_not_at_all():
    assert read({"measurement": "a"}, menu=("a", "A")).proposal == "a"
    assert read({"measurement": "B"}, menu=("b\u017f", "bS")).proposal_status == "not_on_menu"
    assert read({"measurement": "bs"}, menu=("Bs", "bS")).proposal_status == "not_on_menu"


# --- odd texts ---


def test_lone_surrogates_and_nul_survive():
    parsed = read(
        '{"answers": {"p1": {"label": "\\ud800"}}, "explanation": "a\\u0000\\udfff", "measurement": "\\ud800"}',
        menu=("m",),
    )
    assert parsed.explanation == "a\x00\ufffd"
    assert parsed.proposal_text == "\ufffd"
    parsed.model_dump_json()


@pytest.mark.parametrize(
    "unit", ["{", '{"', '{"a":', '{"a":1}', "{}", "[", '"', "\\", '{"\\', "```", "{ ", '{"a":[', "\ud800"]
)
def test_a_megabyte_is_read(unit):
    text = unit * (1_000_000 // len(unit))
    for body in (text, '{"answers": {"p1": {"label": "up"}}, "explanation": "' + text):
        assert len(parse_reply(request(P1), Reply(text=body)).answers) == 1


def test_many_keys_and_a_repeated_one():
    text = "{" + ",".join(f'"k{i}":1' for i in range(100_000)) + ',"k99999":1}'
    assert read(text).problems == ('the JSON object repeats the key "k99999"',)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["up", "m1", "none"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["answers", "label", "value", "p1", "moa", "measurement"]) | st.text(), inner, max_size=4
        )
    ),
    max_leaves=20,
)
SURROGATES = st.characters(codec=None, categories=["Cs", "Cc", "L", "P"])


@settings(deadline=None)
@given(
    st.text()
    | st.text(SURROGATES)
    | JSON.map(json.dumps)
    | st.tuples(st.text(), JSON.map(json.dumps), st.text()).map("".join),
    st.sampled_from([(), (P1,), (P1, MECHANISM)]),
    st.sampled_from([(), ("m1", "M1"), ("none",)]),
)
def test_total_and_deterministic(text, readouts, menu):
    asked = request(*readouts, menu=menu)
    parsed = parse_reply(asked, Reply(text=text))
    assert [a.readout for a in parsed.answers] == [r.id for r in readouts]
    assert (parsed.status == "ok") == (
        all(a.status == "answered" for a in parsed.answers) and extract_object(text).value is not None
    )
    assert parsed.proposal in {None, *menu}
    assert parse_reply(asked, Reply(text=text)) == parsed
    parsed.model_dump_json()


# --- the wire schema (A05) ---

WORDS = {"type", "enum", "properties", "required", "additionalProperties"}


def objects(schema):
    yield schema
    for inner in schema.get("properties", {}).values():
        yield from objects(inner)


@pytest.mark.parametrize(
    ("asked", "fields"),
    [
        (request(P1, MECHANISM, menu=MENU), ["answers", "explanation", "measurement"]),
        (request(P1, step="review"), ["answers", "explanation"]),
        (request(menu=MENU, step="select"), ["explanation", "measurement"]),
        (request(P1, step="revise"), ["answers", "explanation"]),
        (request(P1, menu=MENU, step="revise"), ["answers", "explanation", "measurement"]),
    ],
)
def test_a05_schema_uses_five_words_and_closes_every_object(asked, fields):
    schema = reply_schema(asked)
    assert list(schema["properties"]) == fields
    for part in objects(schema):
        assert set(part) <= WORDS
        if "properties" in part:
            assert part["additionalProperties"] is False
            assert part["required"] == list(part["properties"])
    json.dumps(schema, allow_nan=False)

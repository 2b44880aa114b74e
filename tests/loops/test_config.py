import json
from pathlib import Path

import pytest

from evidence.contracts import CaseFile
from evidence.errors import ConfigError
from evidence.strict_yaml import parse_value
from evidence.values import Number, Value
from loops.config import load_config

SHIPPED = Path(__file__).resolve().parents[2] / "cases"


class FieldReportConfig(Value):
    rounds: int
    tolerance: Number
    resume: bool = False
    items: tuple[str, ...]
    seed: int = 0
    temperature: Number = 0.0


E10 = """\
rounds: 3
tolerance: 1e-3
resume: off
items: [ON, SET, 1E5]
seed: true
temprature: 0
rounds: 5
"""


def test_every_problem_of_a_config_is_in_one_message_with_its_line() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_value(E10, FieldReportConfig, where="config e10.yaml")
    assert str(caught.value).splitlines() == [
        "config e10.yaml: 4 problems",
        "  line 4: items[0] must be text, got true (quote it)",
        "  line 5: seed must be an integer, got true",
        "  line 6: unknown key 'temprature'. Did you mean 'temperature'? "
        "Known: items, resume, rounds, seed, temperature, tolerance",
        "  line 7: repeated key 'rounds' (first on line 1)",
    ]


def test_exponent_notation_is_a_number_and_text_stays_text() -> None:
    read = parse_value("rounds: 3\ntolerance: 1e-3\nitems: ['ON', SET, 1E5]\n", FieldReportConfig, where="x")
    assert read.tolerance == 0.001
    assert read.items == ("ON", "SET", "1E5")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &a [*a]", "alias"),
        ("!!python/object/apply:os.system ['true']", "not valid YAML"),
        ("", "empty"),
        ("- 1\n- 2", "expected a mapping"),
        ("rounds: .nan\ntolerance: 1\nitems: []", "not a number"),
        ("rounds: 010\ntolerance: 1\nitems: []", 'rounds must be an integer, got "010"'),
        ("rounds: 1:30\ntolerance: 1\nitems: []", 'rounds must be an integer, got "1:30"'),
        ("1: x", "is not text"),
        ("a: [", "not valid YAML"),
        ("a: &x [1, 1, 1, 1]\nb: &y [*x, *x, *x, *x]\n" * 1 + "c: {d: *y}\nc: 2", "repeated key 'c'"),
    ],
)
def test_hostile_or_broken_yaml_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_value(text, FieldReportConfig, where="x")


def test_aliases_that_expand_without_end_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(ConfigError, match="aliases that expand"):
        parse_value("\n".join(lines), FieldReportConfig, where="x")


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"seeed": 1}, "seeed", "Did you mean 'seed'"),
        ({"seed": True}, "seed", "must be an integer"),
        ({"interpreter": "rulse"}, "interpreter", "Did you mean 'rules'"),
        ({"simulator": "gear"}, "simulator", "no simulator named 'gear'"),
        ({"interpreter": {"name": "openai", "options": {"modle": "m"}}}, "interpreter.options", "Did you mean 'model'"),
        ({"budget": {"measurements": 0}}, "budget.measurements", "greater than or equal to 1"),
        ({"cases": "nowhere.json"}, "nowhere.json", "does not exist"),
        ({"data": "nowhere"}, "data", "does not exist"),
        ({"modalities": ["figure"]}, "modalities", "reads"),
        ({"modalities": []}, "modalities", "at least 1 item"),
        ({"name": "../out"}, "name", "pattern"),
        ({"version": 2}, "version", "1"),
        ({"cases": None}, "cases", "missing"),
    ],
)
def test_bad_config_names_file_and_field(make_config, changes, field, words) -> None:
    path = make_config(**changes)
    with pytest.raises(ConfigError) as caught:
        load_config(str(path), shipped=SHIPPED)
    assert field in str(caught.value)
    assert words in str(caught.value)
    assert "heat.yaml" in str(caught.value) or "nowhere.json" in str(caught.value)


def test_options_of_all_components_are_told_at_once_with_their_lines(make_config) -> None:
    model = {"name": "openai", "options": {"model": "m", "temperature": -3, "max_tokens": "many"}}
    path = make_config(interpreter=model, adapter={"name": "affine", "options": {"shrink": 1}})
    lines = path.read_text().splitlines()
    with pytest.raises(ConfigError) as caught:
        load_config(str(path), shipped=SHIPPED)
    told = str(caught.value)
    at = {key: next(n for n, line in enumerate(lines, start=1) if key in line) for key in ("shrink", "temperature")}
    assert f"adapter.options: 1 problem\n  line {at['shrink']}: unknown key 'shrink'" in told
    assert f"interpreter.options: 2 problems\n  line {at['temperature'] - 2}: max_tokens must be an integer" in told
    assert f"line {at['temperature']}: temperature:" in told


def test_unknown_shipped_config_suggests(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'signaling-rules'"):
        load_config("signalling-rules", shipped=SHIPPED)


def _edited(make_config, edit) -> Path:
    path = make_config()
    file = path.parent / "heat.json"
    data = json.loads(file.read_text())
    edit(data)
    file.write_text(json.dumps(data))
    return path


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda d: d["cases"].append(d["cases"][0]), "case id repeated: 'wildtype' \\(cases \\[1, 5\\]\\)"),
        (lambda d: d["cases"][0].update(menu=[]), "menu"),
        (lambda d: d["cases"][0]["menu"].append(d["cases"][0]["menu"][0]), "measurement id repeated: HSP70"),
        (lambda d: d["cases"][0]["readouts"][0].update(threshold="0.3"), "threshold must be a number"),
        (lambda d: d["cases"][0]["readouts"][0].update(labels=["up", "up"]), "two distinct labels"),
        (lambda d: d["cases"][0]["menu"][0].update(readout="ZZZ"), "names a readout the case does not have"),
        (lambda d: d.update(extra=1), "unknown key 'extra'"),
        (lambda d: d.update(cases=[]), "cases"),
    ],
)
def test_bad_case_file_names_file_and_place(make_config, edit, words) -> None:
    path = _edited(make_config, edit)
    with pytest.raises(ConfigError, match=words) as caught:
        load_config(str(path), shipped=SHIPPED)
    assert "heat.json" in str(caught.value)


def test_repeated_key_in_a_json_case_file_is_refused(make_config) -> None:
    path = make_config()
    file = path.parent / "heat.json"
    file.write_text(file.read_text().replace('"version": 1', '"version": 1, "version": 1', 1))
    with pytest.raises(ConfigError, match="repeated key 'version'"):
        load_config(str(path), shipped=SHIPPED)


def test_shipped_configs_and_case_files_are_valid() -> None:
    for path in SHIPPED.glob("*.yaml"):
        load_config(str(path), shipped=SHIPPED)
    for path in SHIPPED.glob("*.json"):
        CaseFile.model_validate_json(path.read_text())

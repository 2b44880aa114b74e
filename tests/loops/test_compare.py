"""Models compared on identical cases: pairing, tests, refusals."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from evidence.contracts import Reply
from evidence.errors import ConfigError
from evidence.journal import read_journal
from interpreters.scripted import ScriptedInterpreter
from loops.compare import compare
from loops.compare_table import print_comparison
from loops.config import load_config
from loops.report import write_report
from loops.runner import run
from scoring.paired import holm, mcnemar_exact

SHIPPED = Path(__file__).resolve().parents[2] / "cases"
GENES = ("HSP70", "HSP90", "CDC6")
REFUSAL = Reply(status="refused", error="I will not")


def _readouts(folder: Path) -> list[dict]:
    return [row for _, row in read_journal(folder / "scores/readouts.jsonl").records]


def says(*labels: str, measurement: str | None = None) -> str:
    answers = {g: {"label": label, "value": 0.0} for g, label in zip(GENES, labels, strict=True)}
    return json.dumps({"answers": answers, "explanation": "x", "measurement": measurement})


@pytest.fixture
def model(make_config, tmp_path: Path) -> Callable[..., Path]:
    """Run a made-up model: what it answers at first and after a measurement, in every case. Returns the run folder."""

    def make(name: str, first, last=None, *, config=None, cases: int = 4, **changes) -> Path:
        plain = {
            "review": False,
            "modalities": ["table"],
            "repairs": 0,
            "attempts": {"backoff_s": 0, "max_attempts": 1},
        }
        path = config or make_config(name=name, **{**plain, **changes})
        loaded = load_config(str(path), shipped=SHIPPED)
        n = cases * loaded.config.repeats
        first, last = (given if isinstance(given, list) else [given] * n for given in (first, last or first))
        run(
            loaded._replace(interpreter=ScriptedInterpreter(replies={"predict": first, "revise": last})),
            tmp_path / name,
        )
        return tmp_path / name

    return make


UP = says("up", "up", "down", measurement="HSP70")
FLAT = says("near zero", "near zero", "near zero", measurement="HSP70")
LAST = {"up": says("up", "up", "down"), "flat": says("near zero", "near zero", "near zero")}


def rights(folder: Path, stage: str) -> list[bool]:
    return [row[stage]["label"] == row["truth"]["label"] for row in _readouts(folder)]


def test_a_pair_by_stage_and_group(model) -> None:
    a, b = model("a", FLAT, LAST["flat"]), model("b", FLAT, LAST["up"])
    (pilot,) = compare([a, b])["pilots"]
    (pair,) = pilot["pairs"]
    assert (pair["first"], pair["second"], pilot["n_cases_compared"]) == ("a", "b", 4)
    assert list(pair["stages"]) == ["initial", "revised"], "no run had a review"
    found = pair["stages"]["revised"]["all"]
    first, second = rights(a, "revised"), rights(b, "revised")
    assert (found["n"], found["n_cases"]) == (12, 4)
    assert (found["first"], found["second"]) == (pytest.approx(sum(first) / 12), pytest.approx(sum(second) / 12))
    assert found["difference"]["value"] == pytest.approx(found["second"] - found["first"], abs=2e-6)
    expected = mcnemar_exact(first, second)
    assert found["mcnemar"]["p"] == pytest.approx(expected.p)
    assert [found["mcnemar"][k] for k in ("both", "only_first", "only_second", "neither")] == list(expected[1:5])
    assert found["sign_flip"]["exact"]
    assert found["sign_flip"]["p"] >= 2 / 2**4, "four cases cannot say more"
    assert pair["stages"]["initial"]["all"]["mcnemar"]["p"] == 1.0
    groups = {name: group["n"] for name, group in pair["stages"]["revised"].items()}
    assert groups == {"all": 12, "queried": 4, "unqueried": 8}
    gains = [run["gain"]["value"] for run in pilot["runs"]]
    assert pair["gain"]["all"]["difference"]["value"] == pytest.approx(gains[1] - gains[0], abs=2e-6)
    json.dumps(compare([a, b]), allow_nan=False)
    assert compare([a, b]) == compare([a, b])


def test_what_each_measured_decides_the_groups(model) -> None:
    a = model("a", FLAT, LAST["flat"])
    b = model("b", says("up", "up", "down", measurement="CDC6"), LAST["up"])
    (pair,) = compare([a, b])["pilots"][0]["pairs"]
    assert set(pair["stages"]["revised"]) == {"all", "unqueried"}
    assert pair["stages"]["revised"]["unqueried"]["n"] == 4
    assert pair["n_measured_by_one"] == 8


def test_holm_is_over_all_pairs_and_pilots(model, tmp_path: Path) -> None:
    runs = [model("a", FLAT, LAST["flat"]), model("b", UP, LAST["up"]), model("c", FLAT, LAST["up"])]
    file = tmp_path / "heat.json"
    changed = json.loads(file.read_text())
    changed["title"] = "the same strains in another file"
    for name, first in (("d", FLAT), ("e", UP)):
        path = tmp_path / "heat.yaml"
        model("unused-" + name, FLAT, LAST["flat"])
        (tmp_path / "other.json").write_text(json.dumps(changed))
        path.write_text(path.read_text().replace("heat.json", "other.json").replace("unused-" + name, name))
        runs.append(model(name, first, LAST["up"], config=path))
    found = compare(runs)
    assert [len(pilot["pairs"]) for pilot in found["pilots"]] == [3, 1]
    for test in ("mcnemar", "sign_flip"):
        results = [pair["stages"]["initial"]["all"][test] for pilot in found["pilots"] for pair in pilot["pairs"]]
        assert len({r["p"] for r in results}) > 1
        assert [r["p_holm"] for r in results] == pytest.approx(holm([r["p"] for r in results]), rel=1e-5)


def test_missing_answers_stand_beside(model) -> None:
    a = model("a", UP, LAST["up"])
    b = model("b", [UP, REFUSAL, "no JSON here", Reply(status="truncated", text="{")], LAST["up"])
    pilot = compare([a, b])["pilots"][0]
    good, bad = pilot["runs"]
    assert good["calls"] == {"unparsed": 0.0, "refused": 0.0, "truncated": 0.0}
    assert good["missing_answers"]["initial"] == 0.0
    assert bad["n_calls"] == 5
    assert bad["calls"] == {"unparsed": 0.2, "refused": 0.2, "truncated": 0.2}
    assert bad["missing_answers"]["initial"] == 0.75
    initial = pilot["pairs"][0]["stages"]["initial"]["all"]
    assert initial["n"] == 12, "a missing answer is not right, and stays in"
    assert initial["second"] == pytest.approx(sum(rights(b, "initial")) / 12, abs=1e-6)


def test_repeats_are_shares_for_the_difference_and_majorities_for_mcnemar(model) -> None:
    a = model("a", FLAT, LAST["flat"], repeats=3)
    b = model("b", [UP, FLAT, UP] * 4, LAST["up"], repeats=3)
    (pair,) = compare([a, b])["pilots"][0]["pairs"]
    found = pair["stages"]["initial"]["all"]
    assert found["n"] == 12
    assert found["second"] == pytest.approx(sum(rights(b, "initial")) / 36)
    majority = found["mcnemar"]
    by_item: dict[tuple[str, str], int] = {}
    for row in _readouts(b):
        key = (row["case"], row["readout"])
        by_item[key] = by_item.get(key, 0) + (row["initial"]["label"] == row["truth"]["label"])
    assert majority["both"] + majority["only_second"] == sum(n >= 2 for n in by_item.values())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"seed": 5}, "a and b: other seed: 0 and 5; run both on the same"),
        ({"modalities": ["table", "figure"]}, "other modalities: .* compare with --vary modalities"),
        ({"budget": {"measurements": 2}}, "other budget: .*--vary budget"),
        ({"adapter": "local"}, "other adapter: .*--vary adapter"),
        ({"policy": "random"}, "other policy"),
    ],
)
def test_what_is_not_comparable_is_refused(model, changes, why) -> None:
    a, b = model("a", FLAT, LAST["flat"]), model("b", FLAT, [LAST["flat"]] * 8, **changes)
    with pytest.raises(ConfigError, match=why):
        compare([a, b])


def test_what_may_vary_is_compared_when_asked_for(model) -> None:
    a, b = model("a", FLAT, LAST["flat"]), model("b", FLAT, LAST["up"], adapter="local")
    assert compare([a, b], vary=["adapter"])["vary"] == ["adapter"]
    with pytest.raises(ConfigError, match="--vary: no key 'adaptor'. Did you mean 'adapter'"):
        compare([a, b], vary=["adaptor"])


def test_other_cases_alone_or_twice(model, make_config, tmp_path: Path) -> None:
    a = model("a", FLAT, LAST["flat"])
    with pytest.raises(ConfigError, match="given twice"):
        compare([a, tmp_path / "a" / "../a"])
    with pytest.raises(ConfigError, match="a: no other run of the setting"):
        compare([a])
    path = make_config(name="b", review=False, modalities=["table"])
    file = tmp_path / "heat.json"
    data = json.loads(file.read_text())
    data["cases"] = data["cases"][:2]
    file.write_text(json.dumps(data))
    b = model("b", FLAT, LAST["flat"], config=path, cases=2)
    with pytest.raises(ConfigError, match=r"(?s)a: other cases: it has heat.json .*b: other cases.*one case file"):
        compare([a, b])


def test_edited_cases_or_observations_are_found(model) -> None:
    a, b = model("a", FLAT, LAST["flat"]), model("b", FLAT, LAST["up"])
    events = b / "events.jsonl"
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    next(e for e in lines if e["event"] == "opened")["case"]["readouts"][2]["threshold"] = 0.31
    unmeasured = next(o for e in lines if e["event"] == "opened" for o in e["sealed"] if o["readout"] == "CDC6")
    unmeasured["value"] += 1
    events.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(ConfigError, match=r"(?s)other readouts, thresholds or menu in 1 case.*other observations"):
        compare([a, b])


def test_open_cells_are_refused_or_left_out(model) -> None:
    a = model("a", FLAT, LAST["flat"])
    b = model("b", [FLAT, FLAT, Reply(status="timeout"), FLAT], LAST["up"])
    with pytest.raises(ConfigError, match=r"b: 1 of 4 cells .* are open; .*--resume.*--finished-only"):
        compare([a, b])
    pilot = compare([a, b], finished_only=True)["pilots"][0]
    assert (pilot["n_cases"], pilot["n_cases_compared"]) == (4, 3)
    assert pilot["pairs"][0]["stages"]["revised"]["all"]["n_cases"] == 3
    c = model("c", [Reply(status="timeout")] * 4)
    with pytest.raises(ConfigError, match="no case is finished in all of them"):
        compare([a, c], finished_only=True)


def test_static_runs_are_put_beside_the_gains(model, tmp_path: Path) -> None:
    """A choice run is known by its run.json; its summary is the score. Two models give rows, and no correlation."""
    a, b = model("a", FLAT, LAST["up"]), model("b", UP, LAST["up"])
    assert compare([a, b])["static"] is None
    for name, score in (("static-a", 0.5), ("static-b", 0.75)):
        folder = tmp_path / name
        (folder / "scores").mkdir(parents=True)
        like = a if name.endswith("a") else b
        record = json.loads((like / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps({**record, "kind": "bench", "name": name}))
        asked = {"name": "openai", "model": name[-1]}
        found = {"kind": "bench", "track": "mcq", "items_sha256": "x", "run": name, "interpreter": asked}
        accuracy = {"value": score, "low": None, "high": None}
        (folder / "scores/summary.json").write_text(json.dumps({**found, "accuracy": accuracy}))
    for folder, name in ((a, "a"), (b, "b")):
        record = json.loads((folder / "run.json").read_text())
        record["interpreter"]["model"] = name
        (folder / "run.json").write_text(json.dumps(record))
    result = compare([a, tmp_path / "static-b", b, tmp_path / "static-a"])
    gains = {run["interpreter"]: run["gain"]["value"] for run in result["pilots"][0]["runs"]}
    assert {row["model"]: (row["static"]["value"], row["gain"]) for row in result["static"]["rows"]} == {
        "a": (0.5, pytest.approx(gains["a"], abs=2e-6)),
        "b": (0.75, pytest.approx(gains["b"], abs=2e-6)),
    }
    assert result["static"]["pearson"]["reason"] == "fewer than three models"
    console = Console(file=io.StringIO(), width=200)
    print_comparison(console, result)
    printed = console.file.getvalue()
    assert "static score beside loop gain" in printed
    assert "pearson over 2 models: n/a (fewer than three models)" in printed
    page = write_report([a, tmp_path / "static-a", b, tmp_path / "static-b"], tmp_path / "report").out / "index.html"
    assert "pearson over 2 models: n/a (fewer than three models)" in page.read_text()
    assert re.search(r'<th scope="row">b</th><td>0\.750', page.read_text())
    with pytest.raises(ConfigError, match="no loop run is given; compare static runs with vcloop bench compare"):
        compare([tmp_path / "static-a", tmp_path / "static-b"])

"""Runs with gaussian and refit adapters, policies that choose by information, and the figures of each case."""

import json
from pathlib import Path

import pytest
from vcloop_heat_shock.setting import TABLE, HeatShock

from adapters.gaussian import GaussianOptions, GaussianResiduals
from evidence.case_files import case_file_text
from evidence.contracts import AdapterInputs
from evidence.errors import ArchiveError, ConfigError
from evidence.values import canonical_json
from interpreters.scripted import ScriptedInterpreter
from loops.archive import Opened, Selected, read_blob, read_calls, read_events
from loops.config import load_config
from loops.prepare import prepare
from loops.rescore import rescore
from loops.runner import run

SHIPPED = Path(__file__).resolve().parents[2] / "cases"
GENES = ("HSP70", "HSP90", "CDC6")


def load(path: Path):
    return load_config(str(path), shipped=SHIPPED)


def rows_of(folder: Path, name: str = "cases"):
    return [json.loads(line) for line in (folder / f"scores/{name}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("policy", ["eig", "eag", {"name": "fixed", "options": {"order": ["CDC6", "HSP90"]}}])
def test_policies_measure_step_by_step(make_config, tmp_path: Path, policy) -> None:
    outcome = run(load(make_config(policy=policy, adapter="gaussian", budget={"measurements": 2})), tmp_path / "run")
    assert outcome.summary["outcomes"] == {"complete": 4}
    chosen: dict[str, list[str]] = {}
    for event in read_events(tmp_path / "run")[0]:
        if isinstance(event, Selected):
            chosen.setdefault(event.case, []).append(str(event.measurement))
    assert all(len(set(made)) == 2 for made in chosen.values())
    if isinstance(policy, dict):
        assert set(map(tuple, chosen.values())) == {("CDC6", "HSP90")}
    else:
        assert {row["case"]: row[policy]["measurement"] for row in rows_of(tmp_path / "run")} == {
            case: made[0] for case, made in chosen.items()
        }


def test_what_does_not_fit_is_refused_before_the_first_call(make_config, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="policy 'eig' .* adapter 'affine' does not give"):
        run(load(make_config(policy="eig")), tmp_path / "run")
    with pytest.raises(ConfigError, match="no case can measure 'nothing'"):
        run(load(make_config(policy={"name": "fixed", "options": {"order": ["nothing"]}})), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_figures_of_a_case_by_hand(make_config, tmp_path: Path) -> None:
    """Every entry tried again here, from the archive's own sealed observations."""
    run(load(make_config(adapter="gaussian")), tmp_path / "run")
    adapter = GaussianResiduals(GaussianOptions())
    opened = {e.case.id: e for e in read_events(tmp_path / "run")[0] if isinstance(e, Opened)}
    rows = rows_of(tmp_path / "run")
    assert [row["case"] for row in rows] == list(opened)
    for row in rows:
        event = opened[row["case"]]
        inputs = AdapterInputs.model_validate_json(read_blob(tmp_path / "run", event.adapter_inputs))
        right, mae = {}, {}
        for seen in event.sealed:
            made = adapter.calibrate(inputs, [seen])
            pairs = list(zip(event.case.readouts, event.truth, made, strict=True))
            right[seen.measurement] = sum(r.classify(p.mean) == t.label for r, t, p in pairs)
            mae[seen.measurement] = sum(abs(p.mean - t.value) for _, t, p in pairs) / len(pairs)
        assert {m: e["right"] for m, e in row["menu"].items()} == right
        assert {m: e["mae"] for m, e in row["menu"].items()} == pytest.approx(mae, abs=1e-6)
        best = max(right.values())
        assert row["oracle"]["right"] == best
        assert row["oracle"]["measurement"] == min((m for m in right if right[m] == best), key=lambda m: (mae[m], m))
        assert row["regret"]["right"] == best - right[row["chosen"]["measurement"]]
        assert row["regret"]["mae"] == pytest.approx(mae[row["chosen"]["measurement"]] - min(mae.values()), abs=2e-6)
        assert row["random"]["right"] == pytest.approx(sum(right.values()) / 3, abs=1e-6)
        assert row["chosen"]["gain"] == row["chosen"]["right"] - row["before"]["right"]
        assert row["eag"]["expected_gain"] == max(e["accuracy"] for e in row["menu"].values())


def test_the_summary_averages_the_cases(make_config, tmp_path: Path) -> None:
    choice = run(load(make_config(adapter="gaussian", repeats=2)), tmp_path / "run").summary["choice"]
    rows = rows_of(tmp_path / "run")
    assert choice["n_cells"] == len(rows) == 8
    assert choice["regret_right"] == pytest.approx(sum(r["regret"]["right"] for r in rows) / 8, abs=1e-6)
    assert choice["ways"]["eag"]["accuracy"] == pytest.approx(sum(r["eag"]["right"] for r in rows) / 24, abs=1e-6)
    assert choice["gain"]["chosen"]["realised"] == pytest.approx(sum(r["chosen"]["gain"] for r in rows) / 8, abs=1e-6)
    assert choice["ways"]["oracle"]["accuracy"] >= choice["ways"]["chosen"]["accuracy"]


def test_an_adapter_without_joint_is_judged_by_the_gaussian_one(make_config, tmp_path: Path) -> None:
    run(load(make_config(adapter="local")), tmp_path / "run")
    assert {row["joint"] for row in rows_of(tmp_path / "run")} == {"gaussian"}


def test_without_a_simulator_there_are_no_figures(make_config, tmp_path: Path) -> None:
    loaded = load(make_config(simulator=None, adapter=None))
    answers = {g: {"label": "up"} for g in GENES}
    said = json.dumps({"answers": answers, "explanation": "x", "measurement": "HSP70"})
    outcome = run(loaded._replace(interpreter=ScriptedInterpreter(replies=[said] * 12)), tmp_path / "run")
    assert outcome.summary["choice"] is None
    assert rows_of(tmp_path / "run") == []


def test_the_class_under_the_posterior_reaches_models_and_scores(make_config, tmp_path: Path) -> None:
    adapter = {"name": "gaussian", "options": {"decision": "posterior"}}
    run(load(make_config(adapter=adapter)), tmp_path / "run")
    asked = {c.case: c.request for c in read_calls(tmp_path / "run").records if c.step == "revise"}
    shown = {}
    for case, request in asked.items():
        table = next(
            p for m in request["messages"] for p in m["parts"] if p.get("name") == "calibrated" and "rows" in p
        )
        assert table["columns"] == ["readout", "change", "sd", "class"]
        shown |= {(case, row[0]): row[3] for row in table["rows"]}
    for row in rows_of(tmp_path / "run", "readouts"):
        key = row["case"], row["readout"]
        assert shown[key] == row["adapted"]["label"] == row["revised"]["label"]


def test_refits_are_made_for_every_set_the_budget_pays(make_config) -> None:
    for budget, sizes in (({"measurements": 1}, [1] * 3), ({"measurements": 2}, [1] * 3 + [2] * 3)):
        ready = prepare(load(make_config(adapter="refit", budget=budget)))
        for prepared in ready.cases:
            assert prepared.inputs is not None
            assert [len(r.measurements) for r in prepared.inputs.refits] == sizes
    ready = prepare(load(make_config(adapter="refit", budget={"measurements": 3, "cost": 2.0})))
    assert all(len(r.measurements) <= 2 for p in ready.cases if p.inputs for r in p.inputs.refits)


def test_too_many_sets_and_simulators_that_cannot_are_refused(make_config, monkeypatch) -> None:
    monkeypatch.setattr("loops.refits.MAX_SETS", 5)
    with pytest.raises(ConfigError, match="2 measurements from a menu of 3 are more than 5 sets"):
        prepare(load(make_config(adapter="refit", budget={"measurements": 2})))
    monkeypatch.delattr("vcloop_heat_shock.simulator.MeanResponse.refit")
    with pytest.raises(ConfigError, match="MeanResponse cannot"):
        prepare(load(make_config(adapter="refit")))


def test_a_refit_run_uses_them_and_rescores_from_the_archive(make_config, tmp_path: Path) -> None:
    run(load(make_config(adapter="refit", budget={"measurements": 2})), tmp_path / "run")
    before = {p.name: p.read_bytes() for p in (tmp_path / "run/scores").iterdir()}
    rescore(tmp_path / "run")
    assert {p.name: p.read_bytes() for p in (tmp_path / "run/scores").iterdir()} == before
    for row in rows_of(tmp_path / "run", "readouts"):
        assert row["adapted"]["mean"] != row["simulator"]["mean"]


def test_a_run_without_refits_cannot_be_rescored_with_them(make_config, tmp_path: Path) -> None:
    run(load(make_config(adapter="local")), tmp_path / "run")
    record = tmp_path / "run/run.json"
    record.write_text(record.read_text().replace('"local"', '"refit"'))
    with pytest.raises((ConfigError, ArchiveError), match="refitted"):
        rescore(tmp_path / "run")


def test_refits_shape_nothing_before_the_reveal(make_config, tmp_path: Path) -> None:
    """Requests before the measurement: the same with other hidden outcomes, and the same as without refits."""
    path = make_config(adapter="refit", policy="max_variance")
    asked = []
    for name, adapter in (("real", "refit"), ("changed", "refit"), ("plain", "none")):
        table = tmp_path / f"{name}.csv"
        rows = TABLE.read_text().splitlines(keepends=True)
        table.write_text("".join(_shifted(r) if name == "changed" else r for r in rows))
        (tmp_path / "heat.json").write_text(
            case_file_text(HeatShock.freeze(data=table, shape="all", seed=1, options={}))
        )
        path = make_config_text(path, adapter, table)
        run(load(path), tmp_path / name)
        asked.append({(c.case, c.step): canonical_json(c.request) for c in read_calls(tmp_path / name).records})
        picked = [e.measurement for e in read_events(tmp_path / name)[0] if isinstance(e, Selected)]
        asked[-1]["picked", ""] = str(picked)
    before = [key for key in asked[0] if key[1] in ("predict", "review", "")]
    assert len(before) == 9
    assert [asked[0][k] for k in before] == [asked[1][k] for k in before] == [asked[2][k] for k in before]
    assert asked[0]["wildtype", "revise"] != asked[1]["wildtype", "revise"] != asked[2]["wildtype", "revise"]


def make_config_text(path: Path, adapter: str, table: Path) -> Path:
    lines = [line for line in path.read_text().splitlines() if not line.startswith(("adapter:", "data:"))]
    path.write_text("\n".join([*lines, f"adapter: {adapter}", f"data: {table.name}"]) + "\n")
    return path


def _shifted(line: str) -> str:
    strain, gene, part, change, se = line.split(",")
    return line if part not in ("reserved", "truth") else f"{strain},{gene},{part},{1 - float(change):.3f},{se}"

"""The command line: start-up, exit codes, and one-screen errors."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loops import cli

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "scanpy", "anndata", "langgraph", "openai", "matplotlib", "numpy", "pydantic", "rich", "networkx")


def vcloop(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "loops.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd or ROOT, check=False)


def test_help_imports_nothing_heavy() -> None:
    code = f"""
import sys
sys.argv = ["vcloop", "--help"]
try:
    from loops.cli import main
    main()
except SystemExit:
    print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Run a pilot loop" in done.stdout
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    "command", ["run", "rescore", "compare", "power", "report", "show", "settings", "check", "data", "cases"]
)
def test_every_command_has_help(command: str) -> None:
    done = CliRunner().invoke(cli.app, [command, "--help"])
    assert done.exit_code == 0
    assert "Usage" in done.output


def test_bad_config_is_one_screen_and_exit_code_2(make_config, tmp_path: Path) -> None:
    path = make_config(seeed=1, budget={"measurements": 0})
    done = vcloop("run", str(path), "--results", str(tmp_path / "results"))
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) < 24
    assert "Did you mean 'seed'" in done.stderr
    assert "budget.measurements" in done.stderr
    assert not (tmp_path / "results").exists()


def test_run_rescore_show(make_config, tmp_path: Path) -> None:
    path = make_config()
    done = vcloop("run", str(path), "--results", str(tmp_path / "results"))
    assert done.returncode == 0, done.stderr
    assert "SYNTHETIC" in done.stdout
    folder = tmp_path / "results" / "heat"
    assert str(folder) in done.stdout
    scores = (folder / "scores/summary.json").read_bytes()
    again = vcloop("rescore", str(folder), "--json")
    assert json.loads(again.stdout) == json.loads(scores)
    assert (folder / "scores/summary.json").read_bytes() == scores
    shown = vcloop("show", str(folder), "--case", "wildtype")
    assert "observe" in shown.stdout
    missing = vcloop("show", str(folder), "--case", "wildtipe")
    assert missing.returncode == 2
    assert "Did you mean 'wildtype'" in missing.stderr
    second = vcloop("run", str(path), "--results", str(tmp_path / "results"))
    assert second.returncode == 2
    assert "--resume" in second.stderr


def test_the_plugin_is_listed_and_passes_its_checks(tmp_path: Path, heat_shock_cases) -> None:
    listed = json.loads(vcloop("settings", "--json").stdout)
    assert listed["components"]["evidence setting"]["heat_shock"] == "vcloop_heat_shock.setting:HeatShock"
    made = vcloop("cases", "freeze", "heat_shock", "--shape", "all", "--out", str(tmp_path / "heat.json"))
    assert made.returncode == 0, made.stderr
    done = vcloop("check", "heat_shock", "--cases", str(tmp_path / "heat.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "BROKEN" not in done.stdout
    again = vcloop("cases", "freeze", "heat_shock", "--shape", "all", "--out", str(tmp_path / "heat.json"))
    assert again.returncode == 2
    assert "not replaced" in again.stderr


def test_check_says_in_plain_words_what_is_broken(monkeypatch, tmp_path: Path, heat_shock_cases) -> None:
    from vcloop_heat_shock.setting import HeatShock

    from evidence.checks import SETTING_CHECKS, SettingUnderTest, run_checks
    from evidence.contracts import Observation, Observed

    class Forgetful(HeatShock):
        count = 0

        def observe(self, case, measurement, seed):
            Forgetful.count += 1
            return Observed(Observation(measurement="other", readout=measurement.readout, value=1.0 * self.count), {})

        def truth(self, case):
            return super().truth(case)[:-1]

    subject = SettingUnderTest(heat_shock_cases, lambda file: Forgetful.open(file, None))
    broken = {r.check: r.detail for r in run_checks(SETTING_CHECKS, subject) if not r.passed}
    assert set(broken) == {"check_observe_is_pure", "check_observations_are_whole", "check_truth_is_whole"}
    assert "expected ['HSP70', 'HSP90', 'CDC6'], got ['HSP70', 'HSP90']" in broken["check_truth_is_whole"]
    assert "expected ['HSP70', 'HSP70'], got ['other', 'HSP70']" in broken["check_observations_are_whole"]


def test_the_guard_stops_a_foreign_package(tmp_path: Path) -> None:
    (tmp_path / "adapters").mkdir()
    (tmp_path / "adapters/__init__.py").write_text("")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from loops.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "settings"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "package 'adapters' should come from" in done.stderr


def test_unknown_component_suggests() -> None:
    done = vcloop("check", "signalling")
    assert done.returncode == 2
    assert "Did you mean 'signaling'" in done.stderr


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    done = vcloop("rescore", str(tmp_path))
    assert done.returncode == 2
    assert "is not a run folder" in done.stderr


def test_fetching_for_a_case_file_of_a_setting_that_needs_whole_data_sets() -> None:
    done = vcloop("data", "fetch", "sachs2005", "--cases", "cases/signaling.json")
    assert done.returncode == 2
    assert "leave --cases out" in done.stderr


def test_fetching_for_a_case_file_goes_to_its_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("skimage", reason="needs the images extra: pip install -e '.[images]'")
    from evidence import bbbc021_fetch, case_files

    asked = []
    monkeypatch.setattr(case_files, "cache_folder", lambda name: tmp_path / name)
    monkeypatch.setattr(bbbc021_fetch, "fetch_plates", lambda file, folder, say: asked.append((file.setting, folder)))
    done = CliRunner().invoke(
        cli.app, ["data", "fetch", "bbbc021", "--cases", str(ROOT / "cases/microscopy-crops.json")]
    )
    assert done.exit_code == 0, done.output
    assert asked == [("microscopy", tmp_path / "bbbc021")]


def test_a_run_without_figures_does_not_pay_for_matplotlib(make_config, tmp_path: Path) -> None:
    code = f"""
import sys
sys.argv = ["vcloop", "run", {str(make_config())!r}, "--results", {str(tmp_path / "results")!r}]
from loops.cli import main
try:
    main()
except SystemExit:
    pass
print([m for m in ("matplotlib", "torch", "scanpy", "openai") if m in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "SYNTHETIC" in done.stdout
    assert done.stderr.strip().splitlines()[-1] == "[]"


def test_compare_what_if_and_power(make_config, tmp_path: Path) -> None:
    results = tmp_path / "results"
    for name, policy in (("a", "model"), ("b", "random")):
        path = make_config(name=name, policy=policy, modalities=["table"])
        assert vcloop("run", str(path), "--results", str(results)).returncode == 0
    refused = vcloop("compare", str(results / "a"), str(results / "b"))
    assert refused.returncode == 2
    assert "compare with --vary policy" in refused.stderr
    compared = vcloop("compare", str(results / "a"), str(results / "b"), "--vary", "policy")
    assert "first a, second b" in compared.stdout
    found = json.loads(vcloop("compare", str(results / "a"), str(results / "b"), "--vary", "policy", "--json").stdout)
    assert found["pilots"][0]["pairs"][0]["stages"]["initial"]["all"]["mcnemar"]["p"] == 1.0
    replayed = vcloop("rescore", str(results / "a"), "--adapter", "local", "--threshold", "0.5")
    assert "WHAT IF, nothing written: adapter local, threshold 0.5" in replayed.stdout
    assert vcloop("rescore", str(results / "a"), "--adapter-option", "x=1").returncode == 2
    planned = vcloop("power", "--gain", "0.1", "--from", str(results / "a"))
    assert "find a gain of 10 points" in planned.stdout


def test_ctrl_c_says_that_the_run_goes_on_with_resume(make_config, monkeypatch, capsys, tmp_path: Path) -> None:
    async def interrupted(self, request, blobs, *, repeat):
        raise KeyboardInterrupt

    path = make_config(modalities=["table"])
    monkeypatch.setattr("interpreters.rules.RulesInterpreter.ask", interrupted)
    monkeypatch.setattr(sys, "argv", ["vcloop", "run", str(path), "--results", str(tmp_path), "--name", "stopped"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130
    assert "interrupted" in (said := capsys.readouterr().err)
    assert "--resume" in said
    record = json.loads((tmp_path / "stopped/run.json").read_text())
    assert (record["status"], record["reason"]) == ("incomplete", "interrupted")

"""Whole runs against a server that misbehaves: every fault is in the archive, and none is scored silently as wrong."""

import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from vcloop_heat_shock.setting import HeatShock

from evidence.case_files import write_case_file
from evidence.errors import BudgetError
from interpreters.dry_server import REFUSALS, DryServer, Logged
from interpreters.fake_server import FakeServer
from interpreters.faults import FAULTS, fault_in
from loops import cli, fault_table
from loops.archive import Stepped, read_calls, read_events
from loops.config import load_config
from loops.runner import run

pytestmark = [
    pytest.mark.loopback,
    pytest.mark.allow_hosts(["127.0.0.1"]),
    pytest.mark.usefixtures("socket_enabled"),
]
SHARE = 0.3


class Fire(NamedTuple):
    """A run that is finished: its folder, how often it stopped and was resumed, what the server says it served."""

    folder: Path
    stops: int
    logged: list[Logged]


def fire(folder: Path, *, faults=None, refuses=(), repeats: int = 2, **options) -> Fire:
    """Run the plugin's cases against a dry server, and resume until the run is finished."""
    logged: list[Logged] = []
    script = DryServer(faults=faults, refuses=refuses, log=logged.append)
    write_case_file(folder / "heat.json", HeatShock.freeze(data=None, shape="all", seed=1, options={}))
    with FakeServer(script) as server:
        options = {"model": "dry", "base_url": server.base_url, "seed": 0, "timeout_s": 10.0, **options}
        config = {
            "version": 1,
            "name": "heat",
            "cases": "heat.json",
            "simulator": "mean_response",
            "adapter": "affine",
            "interpreter": {"name": "openai", "options": options},
            "attempts": {"backoff_s": 0},
            "modalities": ["table"],
            "repeats": repeats,
            "concurrency": 16,
        }
        path = folder / "heat.yaml"
        path.write_text(yaml.safe_dump(config))
        for stops in range(60):
            loaded = load_config(str(path), shipped=folder)
            with contextlib.suppress(BudgetError):
                if run(loaded, folder / "run", resume=stops > 0).record.status == "finished":
                    return Fire(folder / "run", stops, logged)
    raise AssertionError("the run never ended")


@pytest.fixture(scope="module")
def clean(tmp_path_factory) -> Fire:
    """The same run without faults, with more repeats than any other."""
    import pytest_socket

    pytest_socket.enable_socket()
    return fire(tmp_path_factory.mktemp("clean"), repeats=10)


def steps(folder: Path) -> dict[tuple, Stepped]:
    events, _ = read_events(folder)
    return {(e.case, e.repeat, e.step, e.turn): e for e in events if isinstance(e, Stepped)}


def assert_nothing_is_silently_wrong(made: Fire, clean: Fire) -> None:
    """Every answer is the one of a run without faults, or has a status that says that there is none."""
    without = steps(clean.folder)
    for place, stepped in steps(made.folder).items():
        for answer, right in zip(stepped.answers, without[place].answers, strict=True):
            assert answer == right or answer.status in ("missing", "invalid")
            assert stepped.status == "ok" or answer.status != "answered" or answer == right


def counted(made: Fire) -> list[fault_table.Row]:
    """The rows of the table, after checking that no request and no reply is unaccounted for."""
    records = read_calls(made.folder).records
    assert len(records) == len(made.logged)
    assert Counter(fault_in(r.reply) for r in records) == Counter(line.fault for line in made.logged)
    rows = fault_table.fault_rows(made.folder, made.logged)
    assert all(row.agrees for row in rows), fault_table.fault_table(rows)
    return rows


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_of_a_kind_is_counted_and_none_is_scored_as_wrong(clean: Fire, tmp_path: Path, name: str) -> None:
    made = fire(tmp_path, faults={name: SHARE}, **({"timeout_s": 1.0} if name == "hang" else {}))
    (row,) = counted(made)
    assert row.injected >= 4
    assert_nothing_is_silently_wrong(made, clean)
    if row.expected in ("truncated", "refused", "filtered"):
        assert (row.retried, row.repaired, row.answered) == (0, 0, 0)
    elif row.expected == "ok":
        assert (row.retried, row.repaired, row.missing) == (0, 0, 0)
    elif row.expected == "invalid":
        assert row.repaired > row.retried == 0
    else:
        assert row.retried > row.repaired == 0


def test_all_faults_in_one_run(clean: Fire, tmp_path: Path) -> None:
    kinds = [name for name in FAULTS if name != "hang"]  # which needs a short timeout
    made = fire(tmp_path, faults=dict.fromkeys(kinds, 0.8 / len(kinds)), repeats=10)
    rows = counted(made)
    assert len(rows) == len(kinds)
    assert made.stops > 0
    assert_nothing_is_silently_wrong(made, clean)


def test_a_run_without_faults_has_no_rows(clean: Fire) -> None:
    assert counted(clean) == []
    assert clean.stops == 0


@pytest.mark.parametrize("refused", [["json_schema"], ["temperature"], ["max_tokens"], [*REFUSALS]])
def test_a_setting_that_the_server_refuses_is_left_out_and_every_refusal_is_archived(
    clean: Fire, tmp_path: Path, refused: list
) -> None:
    made = fire(tmp_path, refuses=refused, output="schema", repeats=1)
    archived = [entry for call in read_calls(made.folder).records for entry in call.reply.sent["adapted"]]
    assert len(archived) == sum(line.fault is not None for line in made.logged) >= len(refused)
    assert {line.fault for line in made.logged} == {None, *refused}
    assert_nothing_is_silently_wrong(made, clean)


def test_hostile_replies_stay_text_in_the_terminal(tmp_path: Path, capfd) -> None:
    made = fire(tmp_path, faults={"markup": 1.0}, repeats=1)
    case = made.folder / "run.json"
    cli.app(["show", str(made.folder), "--case", json.loads(case.read_text())["cases"][0]], standalone_mode=False)
    shown = capfd.readouterr().out
    assert "[fault markup] <script>" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_the_table_as_a_command(clean: Fire, tmp_path: Path, capsys) -> None:
    made = fire(tmp_path, faults={"cut": 0.5}, repeats=1)
    log = tmp_path / "served.jsonl"
    log.write_text("".join(json.dumps(line._asdict()) + "\n" for line in made.logged))
    with pytest.raises(SystemExit) as ended:
        fault_table.main([str(made.folder), str(log)])
    assert ended.value.code == 0
    assert f"| cut | {sum(line.fault == 'cut' for line in made.logged)} | invalid" in capsys.readouterr().out
    log.write_text(log.read_text().replace('"cut"', '"fenced"', 1))
    with pytest.raises(SystemExit) as ended:
        fault_table.main([str(made.folder), str(log)])
    assert ended.value.code == 1
    assert "| NO |" in capsys.readouterr().out

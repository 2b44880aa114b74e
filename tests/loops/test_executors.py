"""Units of work without a cluster: what is sent, what a worker refuses, and how the calls of all are counted."""

import fcntl
import json
import os
import threading
import time
from decimal import Decimal
from pathlib import Path

import pytest

from evidence.contracts import Reply, Usage
from evidence.errors import ArchiveError, ConfigError, ContractError
from loops import units
from loops.archive import Archive
from loops.config import Limits, load_config
from loops.executors import ExecutorName, Local, find_executor
from loops.ledger import Ledger
from loops.limits import LimitReached, Meter, Used
from loops.runner import Job, run
from loops.simulate import plan
from loops.units import Made, MemberUnit, Place, RunUnit, make_member, make_run, run_unit, share, unshare


@pytest.fixture
def job(make_config, tmp_path: Path) -> Job:
    path = make_config(modalities=["table"])
    return Job(load_config(str(path), shipped=path.parent), tmp_path / "runs" / "heat")


def sent(job: Job) -> RunUnit:
    """The unit as it arrives: it has been text."""
    unit = run_unit(job, share(job.folder.parent), concurrency=2)
    return RunUnit.model_validate_json(unit.model_dump_json())


def test_a_unit_gives_the_scores_of_a_run(job: Job, tmp_path: Path) -> None:
    run(job.loaded, tmp_path / "here")
    assert make_run(sent(job), None) == Made()
    for name in ("readouts.jsonl", "summary.json"):
        assert (job.folder / "scores" / name).read_bytes() == (tmp_path / "here" / "scores" / name).read_bytes()


def test_a_worker_that_does_not_see_the_folders_refuses(job: Job) -> None:
    unit = sent(job)
    unshare(unit.place)
    made = make_run(unit, None)
    with pytest.raises(ConfigError, match=r"worker .*: .*\.shared is not the file that the sender wrote"):
        made.check()
    assert not job.folder.exists()
    share(job.folder.parent)
    assert make_run(unit, None).error == "ConfigError", "another sender's file"


def test_an_error_of_a_plugins_own_kind_arrives_as_the_nearest_of_ours(job: Job, monkeypatch) -> None:
    class Odd(ContractError):
        """A plugin's own."""

    def refuse(place: Place) -> None:
        raise Odd("not so")

    monkeypatch.setattr(units, "_check_place", refuse)
    made = make_run(sent(job), None)
    with pytest.raises(ContractError, match=r"worker .*: not so"):
        made.check()


def test_a_worker_with_other_versions_refuses(job: Job) -> None:
    unit = sent(job)
    place = unit.place.model_copy(update={"versions": {**unit.place.versions, "numpy": "0.1"}})
    with pytest.raises(ConfigError, match=r"numpy .* instead of 0\.1: scores could differ"):
        make_run(unit.model_copy(update={"place": place}), None).check()


def test_a_key_in_a_config_is_not_sent(make_config, tmp_path: Path) -> None:
    options = {"model": "m", "base_url": "http://127.0.0.1:1/v1", "api_key": "sk-secret-123"}
    path = make_config(interpreter={"name": "openai", "options": options})
    loaded = load_config(str(path), shipped=path.parent)
    with pytest.raises(ConfigError, match="environment variable of the workers") as caught:
        run_unit(Job(loaded, tmp_path / "run"), share(tmp_path), concurrency=1)
    assert "sk-secret-123" not in str(caught.value)


def test_a_limit_of_the_sweep_stops_a_unit(job: Job) -> None:
    class Strict(Meter):
        def admit(self) -> None:
            raise LimitReached("limits.calls: others made them all")

    assert make_run(sent(job), Strict(Limits())) == Made()
    record = json.loads((job.folder / "run.json").read_text())
    assert (record["status"], record["reason"]) == ("incomplete", "limits.calls: others made them all")


def test_a_folder_that_a_dying_process_holds_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    held = os.open(tmp_path / "run" / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    archive = Archive(tmp_path / "run")
    with pytest.raises(ArchiveError, match="in use by another process"):
        archive.__enter__()
    archive.patience_s = 20
    threading.Timer(0.3, os.close, [held]).start()
    began = time.monotonic()
    with archive:
        assert 0.2 < time.monotonic() - began < 10


def test_a_member_is_trained_by_another_process_and_found(heat_shock_cases, make_config, tmp_path: Path) -> None:
    make_config()
    config = tmp_path / "boot.yaml"
    config.write_text("{version: 1, name: boot, cases: heat.json, members: 3, seed: 1, out: boot.npz}")
    planned = plan("bootstrap", config, tmp_path / "work", lambda text: None)
    place = share(planned.training.folder)
    unit = MemberUnit(place=place, trainer="bootstrap", config=str(config), work=str(tmp_path / "work"), number=2)
    first, again = make_member(unit), make_member(unit)
    assert first.error == again.error == ""
    assert first.folder == again.folder
    assert "found in" in again.said[0]
    assert Path(first.folder) == planned.trainer.train_member(planned.training, 2)


def test_the_ledger_sums_runs_and_a_run_that_starts_again_replaces_its_own() -> None:
    ledger = Ledger(Limits(calls=10, tokens=100, cost=1.0))
    ledger.start("a", Used(calls=2))
    ledger.start("b", Used(calls=3))
    assert [ledger.admit("a") for _ in range(5)] == [""] * 5
    assert ledger.admit("b") == "limits.calls: 10 of 10 calls are made; raise it to go on"
    ledger.start("a", Used(calls=4))  # of the five, two reached the archive before the worker died
    assert [bool(ledger.admit("b")) for _ in range(4)] == [False, False, False, True]


@pytest.mark.parametrize(
    ("used", "words"),
    [
        (Used(prompt_tokens=60, completion_tokens=40), "limits.tokens: 100 of 100"),
        (Used(cost=Decimal("1.5")), "limits.cost: 1.5 of 1"),
        (Used(unknown=1), "came without usage"),
    ],
)
def test_the_ledger_keeps_every_limit(used: Used, words: str) -> None:
    ledger = Ledger(Limits(tokens=100, cost=1.0))
    ledger.start("a", Used())
    ledger.start("b", Used())
    ledger.add("a", used)
    assert words in ledger.admit("b")


def test_a_meter_and_a_ledger_count_alike() -> None:
    meter = Meter(Limits(tokens=100))
    meter.past([Reply(text="x", usage=Usage(prompt_tokens=50, completion_tokens=10))], None)
    ledger = Ledger(Limits(tokens=100))
    ledger.start("a", meter.used)
    for _ in range(2):
        meter.admit()
        assert ledger.admit("a") == ""
    assert meter.used == Used(calls=3, prompt_tokens=50, completion_tokens=10)


def test_executors_by_name() -> None:
    assert isinstance(find_executor(ExecutorName.local, None), Local)
    with pytest.raises(ConfigError, match="add --executor ray"):
        find_executor(ExecutorName.local, "10.0.0.1:6379")

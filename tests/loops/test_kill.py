"""A killed and resumed run ends as one left alone: random kills, kills in a write, every byte of the files' tails."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from evidence import journal
from interpreters.rules import RulesInterpreter
from loops.archive import read_calls
from loops.config import load_config
from loops.runner import run

ROOT = Path(__file__).resolve().parents[2]
TAIL = 300


@pytest.mark.slow
@pytest.mark.loopback
@pytest.mark.parametrize("processes", ["1", "2"])
def test_random_kills_of_the_command(processes: str) -> None:
    """The short form of `python tests/perf/kill_runs.py --kills 50`."""
    command = [sys.executable, "tests/perf/kill_runs.py", "--kills", "6", "--repeats", "2", "--seed", "4"]
    command += ["--processes", processes]
    made = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stdout + made.stderr
    assert "6 kills" in made.stdout
    assert "no archived reply was paid twice" in made.stdout


@pytest.fixture
def counted(make_config, monkeypatch):
    """Load the small config with an interpreter that counts its calls."""
    asked: list[str] = []
    ask = RulesInterpreter.ask

    async def counting(self, request, blobs, *, repeat):
        asked.append(request.step)
        return await ask(self, request, blobs, repeat=repeat)

    monkeypatch.setattr(RulesInterpreter, "ask", counting)
    path = make_config(modalities=["table"])

    def load():
        asked.clear()
        return load_config(str(path), shipped=path.parent)

    return load, asked


def scores(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "scores").iterdir())}


def without_damage(summary: bytes) -> dict:
    """The summary but for the torn lines, which stay in the archive and are shown."""
    return {key: value for key, value in json.loads(summary).items() if not key.startswith("damaged")}


def cut_at(whole: Path, name: str, size: int, to: Path) -> None:
    """A copy of a run whose one file was written only so far. Without calls there are no events either."""
    shutil.copytree(whole, to, ignore=shutil.ignore_patterns("scores"))
    with (to / name).open("r+b") as file:
        file.truncate(size)
    if name == "calls.jsonl":
        (to / "events.jsonl").unlink()


@pytest.mark.parametrize("name", ["calls.jsonl", "events.jsonl"])
def test_every_cut_of_the_tail_leaves_the_whole_lines_and_at_most_one_torn_one(counted, tmp_path, name) -> None:
    load, _ = counted
    run(load(), tmp_path / "whole")
    data = (tmp_path / "whole" / name).read_bytes()
    records = [json.loads(line) for line in data.splitlines()]
    file = tmp_path / name
    for size in range(len(data) - TAIL, len(data) + 1):
        file.write_bytes(data[:size])
        lines = journal.read_journal(file)
        n_whole = data[:size].count(b"\n") + (data[size : size + 1] == b"\n")
        assert [record for _, record in lines.records] == records[:n_whole]
        torn = not data[:size].endswith(b"\n") and data[size : size + 1] != b"\n"
        assert lines.damaged == ([n_whole + 1] if torn else [])


@pytest.mark.parametrize("name", ["calls.jsonl", "events.jsonl"])
def test_a_run_resumed_after_a_cut_has_the_same_scores(counted, tmp_path: Path, name: str) -> None:
    load, asked = counted
    run(load(), tmp_path / "whole")
    data = (tmp_path / "whole" / name).read_bytes()
    n_calls = len(asked)
    ends = [n for n, byte in enumerate(data) if byte == ord("\n")]
    drawn = np.random.default_rng(1).choice(len(data), 3, replace=False)
    for size in sorted({*drawn, ends[-2] + 1, len(data) - 1}):
        cut = tmp_path / f"cut{size}"
        cut_at(tmp_path / "whole", name, size, cut)
        n_archived = len(read_calls(cut).records)
        outcome = run(load(), cut, resume=True)
        assert outcome.record.status == "finished"
        assert len(asked) == n_calls - n_archived
        assert len(read_calls(cut).records) == n_calls
        after, before = scores(cut), scores(tmp_path / "whole")
        assert after["readouts.jsonl"] == before["readouts.jsonl"]
        assert without_damage(after["summary.json"]) == without_damage(before["summary.json"])


# JAX, which other tests of this process may have imported, warns of every fork; the child does nothing with it.
@pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called:RuntimeWarning")
def test_a_kill_in_the_middle_of_any_write(counted, tmp_path: Path) -> None:
    """A child process writes half of its n-th line and dies; the parent resumes. No call is made twice."""
    load, asked = counted
    run(load(), tmp_path / "whole")
    n_calls, right = len(asked), scores(tmp_path / "whole")["readouts.jsonl"]
    n_writes = sum((tmp_path / "whole" / name).read_bytes().count(b"\n") for name in ("calls.jsonl", "events.jsonl"))
    for nth in range(1, n_writes + 1, 9):
        folder = tmp_path / f"killed{nth}"
        assert dies_at_write(nth, half=nth % 2 == 0, start=lambda to=folder: run(load(), to))
        n_archived = len(read_calls(folder).records)
        run(load(), folder, resume=True)
        assert len(asked) == n_calls - n_archived
        assert scores(folder)["readouts.jsonl"] == right


def dies_at_write(nth: int, *, half: bool, start) -> bool:
    """Fork a child that runs `start` and kills itself after its nth line, or half of it; whether it died of that."""
    child = os.fork()
    if child == 0:
        written, write = itertools.count(1), os.write

        def deadly(descriptor: int, line: bytes) -> int:
            if next(written) == nth:
                write(descriptor, line[: len(line) // 2] if half else line)
                os.kill(os.getpid(), signal.SIGKILL)
            return write(descriptor, line)

        journal.os.write = deadly
        try:
            start()
        finally:
            os._exit(1)
    return os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL

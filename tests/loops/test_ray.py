"""A sweep and an ensemble on a real Ray cluster of two nodes: a worker is killed, and no byte of a score differs."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml

from evidence.errors import ConfigError
from loops.archive import read_calls
from loops.config import Limits
from loops.work import Progress

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {
    "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
    "OMP_NUM_THREADS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",  # tests beside this one may fill the memory
}
PATIENCE_S = 300


@pytest.mark.slow
@pytest.mark.loopback
def test_a_cluster_gives_the_bytes_of_one_process(make_config, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason='needs ray: pip install -e ".[ray]"')
    with cluster() as (address, environment):
        on_ray = ["--executor", "ray", "--address", address]
        killed_sweep(make_config, tmp_path, on_ray, environment)
        limited_sweep(tmp_path, on_ray, environment)
        ensemble(tmp_path, on_ray, environment)


def test_several_processes_for_each_run_are_refused() -> None:
    pytest.importorskip("ray", reason='needs ray: pip install -e ".[ray]"')
    from loops.ray_cluster import RayCluster

    with pytest.raises(ConfigError, match="processes are those of one machine"):
        RayCluster(None).runs([], limits=Limits(), concurrency=1, processes=2, resume=False, progress=Progress())


def killed_sweep(make_config, folder: Path, on_ray: list[str], environment: dict[str, str]) -> None:
    """Two settings x two models x two seeds, with SIGKILL for one of the workers in the middle of its run."""
    make_config(modalities=["table"])
    vague = {"name": "scripted", "options": {"replies": ["I cannot tell."], "at_end": "repeat_last"}}
    signaling = yaml.safe_load((ROOT / "cases" / "signaling-rules.yaml").read_text())
    signaling |= {"cases": str(ROOT / "cases" / signaling["cases"]), "modalities": ["table"]}
    (folder / "signaling.yaml").write_text(yaml.safe_dump(signaling))
    sweep = {
        "version": 1,
        "name": "wide",
        "configs": ["heat.yaml", "signaling.yaml"],
        "models": {"rules": "rules", "vague": vague},
        "seeds": [0, 1],
        "repeats": 20,
        "concurrency": 4,
    }
    (folder / "wide.yaml").write_text(yaml.safe_dump(sweep))
    command = ["sweep", str(folder / "wide.yaml"), "--json", "--results"]
    vcloop([*command, str(folder / "local")], environment)
    distributed = start([*command, str(folder / "ray"), *on_ray], environment)
    victim, run = busy_worker(folder / "ray" / "wide", distributed)
    os.kill(victim, signal.SIGKILL)
    n_archived = len(read_calls(run).records)
    finish(distributed)
    n_calls = len(read_calls(run).records)
    assert 0 < n_archived < n_calls, "the worker was killed in the middle of its run"
    same_scores(folder / "local" / "wide", folder / "ray" / "wide", n_runs=8)


def limited_sweep(folder: Path, on_ray: list[str], environment: dict[str, str]) -> None:
    """A limit of calls holds for all workers together, to the call, and a resumed sweep ends as one without it."""
    sweep = {
        "version": 1,
        "name": "limited",
        "configs": ["heat.yaml"],
        "seeds": [0, 1, 2],
        "repeats": 2,
        "limits": {"calls": 31},
    }
    path = folder / "limited.yaml"
    path.write_text(yaml.safe_dump(sweep))
    command = ["sweep", str(path), "--json", "--results", str(folder / "ray"), *on_ray]
    stopped = subprocess.run(
        [sys.executable, "-m", "loops.cli", *command], env=environment, capture_output=True, text=True, check=False
    )
    assert stopped.returncode == 1
    assert "limits.calls: 31 of 31" in stopped.stderr
    runs = sorted((folder / "ray" / "limited").iterdir())
    assert sum(len(read_calls(run).records) for run in runs) == 31
    path.write_text(yaml.safe_dump({**sweep, "limits": {"calls": 72}}))
    vcloop([*command, "--resume"], environment)
    path.write_text(yaml.safe_dump({**sweep, "limits": {}}))
    vcloop(["sweep", str(path), "--json", "--results", str(folder / "local")], environment)
    same_scores(folder / "local" / "limited", folder / "ray" / "limited", n_runs=3)


def ensemble(folder: Path, on_ray: list[str], environment: dict[str, str]) -> None:
    """Every member is trained by a worker; the table has the bytes of one trained in one process."""
    tables = {}
    for name, more in (("local", []), ("ray", on_ray)):
        config = {"version": 1, "name": "boot", "cases": "heat.json", "members": 4, "seed": 1, "out": f"{name}.npz"}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(config))
        command = ["simulate", "bootstrap", str(folder / f"{name}.yaml"), "--work", str(folder / name / "trained")]
        said = vcloop([*command, *more], environment).stderr
        tables[name] = (folder / f"{name}.npz").read_bytes()
    assert said.count("found in") == 4, "the driver found every member that the workers had trained"
    assert tables["ray"] == tables["local"]


def same_scores(one: Path, other: Path, *, n_runs: int) -> None:
    """The score files of all runs are the same bytes, and no call was made twice."""
    assert [run.name for run in sorted(one.iterdir())] == [run.name for run in sorted(other.iterdir())]
    assert len(list(one.iterdir())) == n_runs
    for run in sorted(one.iterdir()):
        for name in ("readouts.jsonl", "summary.json"):
            assert (other / run.name / "scores" / name).read_bytes() == (run / "scores" / name).read_bytes()
        made = Counter((c.case, c.repeat, c.step, c.turn, c.attempt) for c in read_calls(other / run.name).records)
        assert set(made.values()) == {1}
        assert len(made) == len(read_calls(run).records)


def busy_worker(sweep: Path, driver: subprocess.Popen) -> tuple[int, Path]:
    """The process that holds the lock of a run that is under way, and the run."""
    for_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < for_s and driver.poll() is None:
        for calls in sweep.glob("*/calls.jsonl"):
            run = calls.parent
            if calls.stat().st_size > 20_000 and json.loads((run / "run.json").read_text())["status"] == "started":
                inode = (run / ".lock").stat().st_ino
                held = re.search(
                    rf"FLOCK +ADVISORY +WRITE +(\d+) +[0-9a-f:]+:{inode} ", Path("/proc/locks").read_text()
                )
                if held:
                    return int(held[1]), run
        time.sleep(0.02)
    raise AssertionError(f"no worker was seen at work; the driver said: {driver.communicate()}")


@contextlib.contextmanager
def cluster():
    """Two nodes with one processor each; yields their address and the environment of processes that use them."""
    folder = tempfile.mkdtemp(prefix="vr", dir="/tmp")  # sockets need short paths
    environment = {**os.environ, **ENVIRONMENT, "RAY_TMPDIR": folder}
    nodes = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("ray_nodes.py"))],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = nodes.stdout.readline().strip()
        assert address, nodes.communicate()[1]
        yield address, environment
    finally:
        nodes.communicate(timeout=PATIENCE_S)
        shutil.rmtree(folder, ignore_errors=True)


def start(arguments: list[str], environment: dict[str, str]) -> subprocess.Popen:
    command = [sys.executable, "-m", "loops.cli", *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen) -> None:
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, out + err


def vcloop(arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "loops.cli", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done

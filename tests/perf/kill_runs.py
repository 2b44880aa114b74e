"""Kill `vcloop run` with SIGKILL at random moments, resume until it is finished, and compare with a run left alone.

    python tests/perf/kill_runs.py --kills 50

Runs are started on the plugin's cases, against a dry server in a process of its own, until there were so many kills.
Each must end with the scores of the run left alone, byte for byte, and no request whose reply was archived may be sent
again. Exits with 1 where that is not so. The command runs in a child forked from this process, which has imported it:
so a kill meets the run and not its imports.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp  # noqa: F401 - what a child needs is imported before it is forked
import numpy as np
import openai  # noqa: F401
import yaml
from vcloop_heat_shock.setting import HeatShock

from evidence.case_files import write_case_file
from interpreters.dry_server import request_key
from interpreters.render import chat_messages
from loops import cli, graph, runner  # noqa: F401
from loops.archive import read_calls
from loops.cells import archived_request

SEED = 7
CONCURRENCY = 4
MOST = 8
"""Kills of one run at most: a run that is killed for ever shows no more."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--delay-ms", type=float, default=40.0, help="waited by the server before each reply")
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        command = [sys.executable, "-m", "interpreters.dry_server", "--delay-ms", str(options.delay_ms)]
        command += ["--log", str(folder / "served.jsonl")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                config = write_config(folder, server.stdout.readline().strip(), options)
                rng = np.random.default_rng(options.seed)
                wrong = kill_runs(config, Log(folder / "served.jsonl"), options.kills, rng)
            finally:
                server.terminate()
    print("\n".join(wrong) or "all scores are those of the run left alone; no archived reply was paid twice")
    sys.exit(1 if wrong else 0)


class Log(list[str]):
    """The keys of the requests that the server got."""

    def __init__(self, path: Path):
        self._file = path.open()
        self._begun = ""

    def read(self) -> int:
        """Take up what was written since; how many requests there are now. A line may be there in part."""
        while line := self._file.readline():
            self._begun += line
            if line.endswith("\n"):
                self.append(json.loads(self._begun)["request"])
                self._begun = ""
        return len(self)


def write_config(folder: Path, base_url: str, options: argparse.Namespace) -> Path:
    write_case_file(folder / "heat.json", HeatShock.freeze(data=None, shape="all", seed=1, options={}))
    model = {"model": "dry", "base_url": base_url, "seed": SEED}
    config = {
        "version": 1,
        "name": "heat",
        "cases": "heat.json",
        "simulator": "mean_response",
        "adapter": "affine",
        "interpreter": {"name": "openai", "options": model},
        "modalities": ["table"],
        "repeats": options.repeats,
        "concurrency": CONCURRENCY,
        "processes": options.processes,
    }
    path = folder / "heat.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def kill_runs(config: Path, log: Log, kills: int, rng: np.random.Generator) -> list[str]:
    """What went wrong, in words. Prints a line per run."""
    alone = config.parent / "alone" / "heat"
    assert ended(start(config, alone)) == 0
    n_calls, total, wrong = log.read(), 0, []
    for n in itertools.count(1):
        if total >= kills:
            break
        folder, first, done = config.parent / f"run{n}" / "heat", log.read(), 0
        while True:
            child = start(config, folder)
            left = n_calls - n_archived(folder)
            if done < min(MOST, kills - total) and killed(child, log, left, rng):
                done += 1
                wrong += sent_again(folder, log, first)
                continue
            if (status := ended(child)) != 0:
                wrong.append(f"run {n}: exit status {status}")
            break
        wrong += sent_again(folder, log, first)
        total += done
        same = scores(folder) == scores(alone)
        sent, archived = log.read() - first, n_archived(folder)
        print(f"run {n}: {done} kills, {sent} requests for {n_calls} calls, scores {'the same' if same else 'OTHER'}")
        if not same or archived != n_calls or sent - archived > done * CONCURRENCY:
            wrong.append(f"run {n}: other scores or calls than the run left alone")
    print(f"{total} kills in {n - 1} runs")
    return wrong


def start(config: Path, folder: Path) -> int:
    """Run the command in a child of its own; its process id."""
    child = os.fork()
    if child:
        return child
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    sys.argv = ["vcloop", "run", str(config), "--results", str(folder.parent), "--resume"]
    status = 1
    try:
        cli.main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0
    finally:
        os._exit(status)


def ended(child: int, within_s: float = float("inf")) -> int | None:
    """The exit status of a child, negative for a signal; None where it is still running after so long."""
    until = time.monotonic() + within_s
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            return None
        time.sleep(0.002)


def killed(child: int, log: Log, left: int, rng: np.random.Generator) -> bool:
    """Kill at a moment drawn evenly over the calls that are left, sometimes before the first.

    False where the child ended before; it is to be waited for then.
    """
    before_the_first = rng.random() < 0.1
    until = log.read() + (0 if before_the_first else int(rng.integers(1, left + 2)))
    wait_s = rng.uniform(0, 0.5 if before_the_first else 0.06)
    deadline = time.monotonic() + 60
    while log.read() < until and time.monotonic() < deadline and running(child):
        time.sleep(0.001)
    time.sleep(wait_s)
    if not running(child):
        return False
    os.kill(child, signal.SIGKILL)
    return ended(child) == -signal.SIGKILL


def running(child: int) -> bool:
    """Whether a child has not ended; it stays to be waited for."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def n_archived(folder: Path) -> int:
    return len(read_calls(folder).records) if (folder / "calls.jsonl").exists() else 0


def scores(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "scores").iterdir())}


def sent_again(folder: Path, log: Log, first: int) -> list[str]:
    """Requests of this run that came more than once although the archive had their reply."""
    if not (folder / "calls.jsonl").exists():
        return []
    marks = folder.parent / "paid.json"
    paid: dict[str, int] = json.loads(marks.read_text()) if marks.exists() else {}
    log.read()
    again = [key for n, key in enumerate(log[first:], first) if n >= paid.get(key, len(log))]
    for record in read_calls(folder).records:
        messages = chat_messages(archived_request(record), {}, max_figure_bytes=0)
        paid.setdefault(request_key({"messages": messages, "seed": SEED + record.repeat}), len(log))
    marks.write_text(json.dumps(paid))
    return [f"{folder.name}: request {key[:12]} was sent again after its reply was archived" for key in again]


if __name__ == "__main__":
    main()

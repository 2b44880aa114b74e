"""Kill `vcloop run` with SIGKILL at random moments, resume until it is finished, and compare with a run left alone.

    python tests/perf/kill_runs.py --kills 50

Runs are started on the plugin's cases, against a dry server in this process, until there were so many kills. Each must
end with the scores of the run left alone, byte for byte, and no request whose reply was archived may be sent again.
Exits with 1 where that is not so.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import yaml
from vcloop_heat_shock.setting import HeatShock

from evidence.case_files import write_case_file
from interpreters.dry_server import DryServer, Logged, request_key
from interpreters.fake_server import FakeServer
from interpreters.render import chat_messages
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
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    log: list[Logged] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        FakeServer(DryServer(delay_s=options.delay_ms / 1000, log=log.append)) as server,
    ):
        config = write_config(Path(folder), server.base_url, options.repeats)
        wrong = kill_runs(config, log, options.kills, np.random.default_rng(options.seed))
    print("\n".join(wrong) or "all scores are those of the run left alone; no archived reply was paid twice")
    sys.exit(1 if wrong else 0)


def write_config(folder: Path, base_url: str, repeats: int) -> Path:
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
        "repeats": repeats,
        "concurrency": CONCURRENCY,
    }
    path = folder / "heat.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def kill_runs(config: Path, log: list[Logged], kills: int, rng: np.random.Generator) -> list[str]:
    """What went wrong, in words. Prints a line per run."""
    alone = config.parent / "alone" / "heat"
    assert start(config, alone).wait() == 0
    n_calls, total, wrong = len(log), 0, []
    for n in itertools.count(1):
        if total >= kills:
            break
        folder, first, done = config.parent / f"run{n}" / "heat", len(log), 0
        while True:
            process = start(config, folder)
            left = n_calls - n_archived(folder)
            if done < min(MOST, kills - total) and killed(process, log, left, rng):
                done += 1
                wrong += sent_again(folder, log, first)
                continue
            if process.wait() != 0:
                wrong.append(f"run {n}: exit status {process.returncode}")
            break
        wrong += sent_again(folder, log, first)
        total += done
        same = scores(folder) == scores(alone)
        sent, archived = len(log) - first, n_archived(folder)
        print(f"run {n}: {done} kills, {sent} requests for {n_calls} calls, scores {'the same' if same else 'OTHER'}")
        if not same or archived != n_calls or sent - archived > done * CONCURRENCY:
            wrong.append(f"run {n}: other scores or calls than the run left alone")
    print(f"{total} kills in {n - 1} runs")
    return wrong


def start(config: Path, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "loops.cli", "run", str(config), "--results", str(folder.parent), "--resume"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def killed(process: subprocess.Popen[bytes], log: list[Logged], left: int, rng: np.random.Generator) -> bool:
    """Kill at a moment drawn evenly over the calls that are left, sometimes before the first; False: it ended."""
    if rng.random() < 0.1:
        until, wait_s = len(log), rng.uniform(0, 3)
    else:
        until, wait_s = len(log) + int(rng.integers(1, left + 2)), rng.uniform(0, 0.06)
    while len(log) < until and process.poll() is None:
        time.sleep(0.001)
    try:
        process.wait(wait_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True
    return False


def n_archived(folder: Path) -> int:
    return len(read_calls(folder).records) if (folder / "calls.jsonl").exists() else 0


def scores(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "scores").iterdir())}


def sent_again(folder: Path, log: list[Logged], first: int) -> list[str]:
    """Requests of this run that came more than once although the archive had their reply."""
    if not (folder / "calls.jsonl").exists():
        return []
    marks = folder.parent / "paid.json"
    paid: dict[str, int] = json.loads(marks.read_text()) if marks.exists() else {}
    again = [line.request for n, line in enumerate(log[first:], first) if n >= paid.get(line.request, len(log))]
    for record in read_calls(folder).records:
        messages = chat_messages(archived_request(record), {}, max_figure_bytes=0)
        paid.setdefault(request_key({"messages": messages, "seed": SEED + record.repeat}), len(log))
    marks.write_text(json.dumps(paid))
    return [f"{folder.name}: request {key[:12]} was sent again after its reply was archived" for key in again]


if __name__ == "__main__":
    main()

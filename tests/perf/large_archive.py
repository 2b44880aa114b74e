"""How commands grow with the archive: processor time, wall time and peak memory at 25,000, 50,000 and 100,000 calls.

    python tests/perf/large_archive.py [--calls 25000 50000 100000] [--out DIR]

rescore, compare (two runs) and report (two runs) work on generated archives (report_page.make_archive: three calls a
case). resume works on a run of the signaling pilot of which one repeat was made and copied to all others, so that
nothing is left to do but to read it. All of it is SYNTHETIC, and says so. Every command is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from report_page import make_archive

ROOT = Path(__file__).resolve().parents[2]
CALLS_PER_CASE = 3
SIGNALING_CASES = 5


class Cost(NamedTuple):
    cpu_s: float
    wall_s: float
    peak_mb: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--calls", type=int, nargs="+", default=[25_000, 50_000, 100_000])
    parser.add_argument("--out", type=Path, help="keeps the archives and the report")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        out = options.out or Path(temporary)
        print(f"{'command':<10}{'calls':>9}{'cpu s':>9}{'us/call':>9}{'wall s':>9}{'peak MB':>9}")
        for n_calls in options.calls:
            for name, command in commands(out / str(n_calls), n_calls):
                cost = measure(command)
                per_call = 1e6 * cost.cpu_s / n_calls
                print(
                    f"{name:<10}{n_calls:>9}{cost.cpu_s:>9.2f}{per_call:>9.0f}{cost.wall_s:>9.2f}{cost.peak_mb:>9.0f}",
                    flush=True,
                )


def commands(folder: Path, n_calls: int) -> Iterator[tuple[str, list[str]]]:
    """The commands on archives of so many calls, which are made if they are not in the folder."""
    runs = [folder / f"generated-{number}" for number in (0, 1)]
    for number, run in enumerate(runs):
        if not (run / "run.json").exists():
            make_archive(run, n_calls // CALLS_PER_CASE, run.name, 0.25 + 0.1 * number)
    config = copied_run(folder, n_calls)
    vcloop = [sys.executable, "-m", "loops.cli"]
    names = [str(run) for run in runs]
    yield "start", [*vcloop, "settings"]
    yield "resume", [*vcloop, "run", str(config), "--results", str(folder), "--resume"]
    yield "rescore", [*vcloop, "rescore", names[0]]
    yield "compare", [*vcloop, "compare", *names]
    yield "report", [*vcloop, "report", *names, "--out", str(folder / "report")]


def copied_run(folder: Path, n_calls: int) -> Path:
    """A finished run of the signaling pilot in `folder`/resumed: one repeat, copied. Returns its config."""
    repeats = n_calls // (SIGNALING_CASES * CALLS_PER_CASE)
    config, run = folder / "resumed.yaml", folder / "resumed"
    text = (ROOT / "cases" / "signaling-rules.yaml").read_text()
    text = text.replace("signaling-rules", "resumed").replace("signaling.json", str(ROOT / "cases" / "signaling.json"))
    config.write_text(text + "modalities: [table]\n")
    if not (run / "run.json").exists():
        command = [sys.executable, "-m", "loops.cli", "run", str(config), "--results", str(folder)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        record = json.loads((run / "run.json").read_text())
        record |= {"title": f"SYNTHETIC: one repeat of the signaling pilot, copied {repeats} times", "synthetic": True}
        record["config"]["repeats"] = repeats
        for name in ("calls.jsonl", "events.jsonl"):
            multiply(run / name, repeats)
        (run / "run.json").write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    config.write_text(text + f"modalities: [table]\nrepeats: {repeats}\n")
    return config


def multiply(path: Path, repeats: int) -> None:
    """Copy the lines of repeat 0 to all repeats; lines that belong to no repeat stay single."""
    lines = path.read_text().splitlines()
    own = [re.split(r'"repeat":0(?=[,}])', line) for line in lines]
    assert all(len(parts) in (1, 2) for parts in own)
    with path.open("w") as file:
        file.writelines(parts[0] + "\n" for parts in own if len(parts) == 1)
        for repeat in range(repeats):
            file.writelines(f'{parts[0]}"repeat":{repeat}{parts[1]}\n' for parts in own if len(parts) == 2)


def measure(command: list[str]) -> Cost:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    began = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return Cost(used.ru_utime + used.ru_stime, time.monotonic() - began, used.ru_maxrss / 1024)


if __name__ == "__main__":
    main()

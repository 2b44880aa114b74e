"""How near the loop comes to the limit that a server sets: 1,000 cells x 3 calls, 200 ms each, 100 at once, is 6 s.

    python tests/perf/throughput.py [--cells 1000] [--places 100] [--delay-ms 200]

The server (interpreters.dry_server) runs in its own process. The signaling pilot, without figures, is repeated until
there are enough cells. Printed: wall time of the calls against cells x 3 x delay / places, and processor time per call.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from loops.config import load_config
from loops.runner import Progress, run

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--places", type=int, default=100)
    parser.add_argument("--delay-ms", type=float, default=200.0)
    parser.add_argument("--processes", type=int, help="as many as vcloop takes by itself, unless given")
    options = parser.parse_args()
    server = subprocess.Popen(
        [sys.executable, "-m", "interpreters.dry_server", "--delay-ms", str(options.delay_ms)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        url = server.stdout.readline().strip()
        with tempfile.TemporaryDirectory() as folder:
            measured = measure(Path(folder), url, options)
    finally:
        server.terminate()
        server.wait()
    print(json.dumps(measured, indent=1))


def measure(folder: Path, url: str, options: argparse.Namespace) -> dict[str, float]:
    config = folder / "throughput.yaml"
    repeats = math.ceil(options.cells / 5)
    config.write_text(
        f"""version: 1
name: throughput
cases: {ROOT / "cases" / "signaling.json"}
simulator: bayes_net
adapter: affine
modalities: [table]
repeats: {repeats}
concurrency: {options.places}
processes: {json.dumps(options.processes)}
interpreter: {{name: openai, options: {{model: dry, base_url: "{url}", seed: 1}}}}
"""
    )
    began: list[tuple[float, float]] = []
    done: list[float] = []
    calls = 0

    def prepared(total: int) -> None:
        began.append((time.perf_counter(), processor_time()))

    def call(live: bool) -> None:
        nonlocal calls
        calls += live
        done[:] = [time.perf_counter()]

    loaded = load_config(str(config), shipped=ROOT / "cases")
    start = time.perf_counter()
    outcome = run(loaded, folder / "run", progress=Progress(prepared=prepared, call=call))
    total = time.perf_counter() - start
    (wall0, cpu0), wall1 = began[0], done[0]
    limit = calls * options.delay_ms / 1000 / options.places
    assert outcome.record.status == "finished", outcome.record.reason
    return {
        "calls": calls,
        "limit_s": round(limit, 3),
        "calls_wall_s": round(wall1 - wall0, 3),
        "ratio": round((wall1 - wall0) / limit, 3),
        "client_cpu_ms_per_call": round((processor_time() - cpu0) / calls * 1000, 3),
        "whole_run_s": round(total, 3),
    }


def processor_time() -> float:
    """Seconds of this process and of those it forked and waited for; the server is still running."""
    forked = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + forked.ru_utime + forked.ru_stime


if __name__ == "__main__":
    main()

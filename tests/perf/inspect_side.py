"""The same shapes in inspect_ai, for overhead.py and rescoring.py. Runs with .venv-perf, which vcloop does not need.

.venv-perf/bin/python tests/perf/inspect_side.py run --samples 300               # seconds a sample: five model turns
.venv-perf/bin/python tests/perf/inspect_side.py score --samples 300 --calls 3   # seconds a call: log to scores
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

import inspect_ai
from inspect_ai import Task, score
from inspect_ai.dataset import Sample
from inspect_ai.log import read_eval_log
from inspect_ai.model import ChatMessageUser, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import match
from inspect_ai.solver import solver

REPLY = '{"answers": {"akt": {"label": "up", "value": 0.5, "confidence": 0.6}}, "explanation": "x"}'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["run", "score"])
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--calls", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log_file, seconds = run(options.samples, options.calls, folder)
        if options.what == "run":
            print(seconds / options.samples)
            return
        began = time.process_time()
        score(read_eval_log(log_file), match(), display="none")
        print((time.process_time() - began) / options.samples / options.calls)


def run(samples: int, calls: int, folder: str) -> tuple[str, float]:
    """Run a task with so many model turns a sample; the log file, and seconds of processor time."""
    task = Task(
        dataset=[Sample(input="What happens to Akt?", target="up") for _ in range(samples)],
        solver=turns(calls),
        scorer=match(),
    )
    model = get_model("mockllm/model", custom_outputs=_output)
    began = time.process_time()
    (log,) = inspect_ai.eval(task, model=model, log_dir=folder, display="none")
    seconds = time.process_time() - began
    assert log.status == "success"
    return log.location, seconds


def _output(*_: Any, **__: Any) -> ModelOutput:
    output = ModelOutput.from_content("mockllm/model", REPLY)
    output.usage = ModelUsage(input_tokens=100, output_tokens=50, total_tokens=150)
    return output


@solver
def turns(n: int) -> Any:
    async def solve(state: Any, generate: Any) -> Any:
        for number in range(n):
            state.messages.append(ChatMessageUser(content=f"Step {number}"))
            state = await generate(state)
        return state

    return solve


if __name__ == "__main__":
    main()

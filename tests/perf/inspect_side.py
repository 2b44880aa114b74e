"""The same shapes in inspect_ai, for overhead.py and rescoring.py. Runs with .venv-perf, which vcloop does not need.

.venv-perf/bin/python tests/perf/inspect_side.py run --samples 300     # seconds a sample: five model turns
.venv-perf/bin/python tests/perf/inspect_side.py score --chats FILE    # seconds a call: from log to scores

FILE is what rescoring.py takes from a run's archive: for each cell its calls, with all messages as they were sent, the
reply and its tokens. They are first made into a log.
"""

from __future__ import annotations

import argparse
import contextvars
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import inspect_ai
from inspect_ai import Task, score
from inspect_ai.dataset import Sample
from inspect_ai.log import read_eval_log, write_eval_log
from inspect_ai.model import (
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    ContentImage,
    ContentText,
    ModelOutput,
    ModelUsage,
    get_model,
)
from inspect_ai.scorer import match
from inspect_ai.solver import solver

REPLY = '{"answers": {"akt": {"label": "up", "value": 0.5, "confidence": 0.6}}, "explanation": "x"}'
ROLES = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}
CALL: contextvars.ContextVar[dict[str, Any]] = contextvars.ContextVar("CALL")
"""The call that a solver makes now."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["run", "score"])
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--chats", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.what == "run":
            samples = [Sample(input="What happens to Akt?", target="up") for _ in range(options.samples)]
            print(run(samples, five_turns(), folder)[1] / options.samples)
            return
        cells = json.loads(options.chats.read_text())
        samples = [Sample(id=number, input="In the calls.", target="up") for number in range(len(cells))]
        log_file, _ = run(samples, archived_turns(cells), folder)
        print(rescore(log_file) / sum(map(len, cells)))


def run(samples: list[Sample], turns: Any, folder: str) -> tuple[str, float]:
    """Run a task; the log file, and seconds of processor time."""
    model = get_model("mockllm/model", custom_outputs=_output)
    began = time.process_time()
    task = Task(dataset=samples, solver=turns, scorer=match())
    (log,) = inspect_ai.eval(task, model=model, log_dir=folder, display="none")
    seconds = time.process_time() - began
    assert log.status == "success"
    return log.location, seconds


def rescore(log_file: str) -> float:
    """What `inspect score --scorer match --action overwrite --overwrite` does; seconds of processor time."""
    began = time.process_time()
    scored = score(read_eval_log(log_file), match(), action="overwrite", display="none", copy=False)
    write_eval_log(scored, log_file)
    return time.process_time() - began


def _output(*_: Any, **__: Any) -> ModelOutput:
    call = CALL.get()
    output = ModelOutput.from_content("mockllm/model", call["reply"])
    tokens = call["prompt_tokens"], call["completion_tokens"]
    output.usage = ModelUsage(input_tokens=tokens[0], output_tokens=tokens[1], total_tokens=sum(tokens))
    return output


@solver
def five_turns() -> Any:
    async def solve(state: Any, generate: Any) -> Any:
        CALL.set({"reply": REPLY, "prompt_tokens": 100, "completion_tokens": 50})
        for number in range(5):
            state.messages.append(ChatMessageUser(content=f"Step {number}"))
            state = await generate(state)
        return state

    return solve


@solver
def archived_turns(cells: list[list[dict[str, Any]]]) -> Any:
    async def solve(state: Any, generate: Any) -> Any:
        for call in cells[state.sample_id]:
            CALL.set(call)
            state.messages = [ROLES[m["role"]](content=_content(m["content"])) for m in call["messages"]]
            state = await generate(state)
        return state

    return solve


def _content(content: str | list[dict[str, Any]]) -> str | list[ContentText | ContentImage]:
    """The content of a chat message as inspect_ai has it."""
    if isinstance(content, str):
        return content
    return [
        ContentText(text=part["text"]) if part["type"] == "text" else ContentImage(image=part["image_url"]["url"])
        for part in content
    ]


if __name__ == "__main__":
    main()

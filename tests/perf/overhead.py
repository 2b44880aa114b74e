"""What the loop itself costs: processor time of a case with five calls, beside inspect_ai and a bare LangGraph graph.

    python tests/perf/overhead.py [--cases 300] [--rounds 3]     # make perf runs it

Every side answers from memory, so that only the machinery is measured. vcloop: the five steps predict, review, select,
observe and revise with five model turns, since the model's first two proposals are not on the menu and it is asked
again, with the archive on. Three measurements: predict, review, and a revision after each of three measurements, five
turns too. inspect_ai (in .venv-perf): a solver with five model turns of its mock model, which gives usage, and its log
written. LangGraph: five nodes that add one. Graph alone: LangGraph on vcloop's own graph, one measurement, with steps
that do nothing. The sides take turns, each in a process of its own; printed is the least time of each, without imports
and preparation.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

ROOT = Path(__file__).resolve().parents[2]
INSPECT = ROOT / ".venv-perf" / "bin" / "python"
N_CASES = 5
"""Cases of the signaling pilot; they are repeated."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", choices=sorted(SIDES))
    options = parser.parse_args()
    if options.side:
        print(SIDES[options.side](options.cases))
        return
    here = [sys.executable, __file__, "--cases", str(options.cases), "--side"]
    commands = {side: [*here, side] for side in SIDES}
    if INSPECT.exists():
        script = Path(__file__).with_name("inspect_side.py")
        commands["inspect_ai"] = [str(INSPECT), str(script), "run", "--samples", str(options.cases)]
    best = least(commands, options.rounds)
    shown: dict[str, Any] = {f"{side}_ms_per_case": round(1000 * seconds, 3) for side, seconds in best.items()}
    for side in ("five_steps", "three_measurements"):
        shown[f"{side}_to_langgraph"] = round(best[side] / best["langgraph"], 2)
        if "inspect_ai" in best:
            shown[f"inspect_ai_to_{side}"] = round(best["inspect_ai"] / best[side], 1)
    print(json.dumps(shown, indent=1))


def least(sides: dict[str, list[str]], rounds: int) -> dict[str, float]:
    """The smallest number that each command prints last; the commands take turns."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    found: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, command in sides.items():
            said = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
            found[side].append(float(said.split()[-1]))
    return {side: min(times) for side, times in found.items()}


def five_steps(n_cases: int) -> float:
    """Seconds of processor time for a case."""
    return vcloop(n_cases, FromMemory(legal_from=6), measurements=1)


def three_measurements(n_cases: int) -> float:
    """Seconds of processor time for a case."""
    return vcloop(n_cases, FromMemory(), measurements=3)


def vcloop(n_cases: int, model: FromMemory, measurements: int) -> float:
    """Seconds of processor time for a case of five calls."""
    from loops.config import load_config
    from loops.runner import run
    from loops.work import Progress

    marks: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "overhead.yaml"
        config.write_text(
            f"""version: 1
name: overhead
cases: {ROOT / "cases" / "signaling.json"}
simulator: bayes_net
adapter: affine
modalities: [table]
repeats: {n_cases // N_CASES}
budget: {{measurements: {measurements}}}
interpreter: rules
"""
        )
        loaded = load_config(str(config), shipped=ROOT / "cases")._replace(interpreter=model)
        progress = Progress(
            prepared=lambda total: marks.append(time.process_time()),
            cell=lambda: marks.__setitem__(slice(1, None), [time.process_time()]),
        )
        outcome = run(loaded, Path(folder) / "run", progress=progress)
        assert outcome.summary["calls"]["n_attempts"] == 5 * n_cases // N_CASES * N_CASES
    return (marks[1] - marks[0]) / (n_cases // N_CASES * N_CASES)


class FromMemory:
    """Answers every readout with "up" and proposes the first open measurement, or none such in short talks."""

    Options = None
    modalities = frozenset({"table", "text"})
    metered = False

    def __init__(self, legal_from: int = 0):
        self.legal_from = legal_from

    def identity(self) -> dict[str, str]:
        return {"name": "memory"}

    async def ask(self, request: Any, blobs: Any, *, repeat: int) -> Any:
        from evidence.contracts import Reply, Usage

        answers = {r.id: {"label": "up", "value": 0.5, "confidence": 0.6} for r in request.readouts}
        body = {"answers": answers, "explanation": "x"}
        if request.menu:
            body["measurement"] = request.menu[0].id if len(request.messages) >= self.legal_from else "none such"
        usage = Usage(prompt_tokens=100, completion_tokens=50)
        return Reply(text=json.dumps(body), finish_reason="stop", usage=usage)


class Count(TypedDict):
    n: int


def langgraph(n_cases: int) -> float:
    """Seconds of processor time for a case."""
    from langgraph.graph import END, START, StateGraph

    async def node(state: Count) -> Count:
        return {"n": state["n"] + 1}

    graph: Any = StateGraph(Count)
    names = [f"step{n}" for n in range(5)]
    for name in names:
        graph.add_node(name, node)
    for before, after in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(before, after)
    return seconds_per_case(graph.compile(), {"n": 0}, n_cases)


def graph_alone(n_cases: int) -> float:
    """Seconds of processor time for a case."""
    from loops.graph import build_graph, initial_state

    graph = build_graph(NoSteps(), review=True, measurements=1)
    return seconds_per_case(graph, initial_state("case", 0), n_cases)


class NoSteps:
    async def predict(self, state: Any) -> dict[str, Any]:
        return {"proposal": "akt"}

    async def review(self, state: Any) -> dict[str, Any]:
        return {}

    async def select(self, state: Any) -> dict[str, Any]:
        return {"chosen": "akt", "outcome": ""}

    async def observe(self, state: Any) -> dict[str, Any]:
        return {"measured": [*state["measured"], "akt"]}

    async def revise(self, state: Any) -> dict[str, Any]:
        return {"turn": state["turn"] + 1, "outcome": "complete"}

    async def score(self, state: Any) -> dict[str, Any]:
        return {}


def seconds_per_case(graph: Any, start: dict[str, Any], n_cases: int) -> float:
    async def go() -> float:
        for _ in range(20):
            await graph.ainvoke(start)
        began = time.process_time()
        for _ in range(n_cases):
            await graph.ainvoke(start)
        return (time.process_time() - began) / n_cases

    return asyncio.run(go())


SIDES: dict[str, Callable[[int], float]] = {
    "five_steps": five_steps,
    "three_measurements": three_measurements,
    "graph_alone": graph_alone,
    "langgraph": langgraph,
}

if __name__ == "__main__":
    main()

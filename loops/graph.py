"""The wiring of the loop as one LangGraph state graph. The archive, not a checkpointer, is the source of truth."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from langgraph.graph import END, START, StateGraph

from evidence.errors import ContractError
from loops.nodes import LoopState, Steps

Node = Callable[[LoopState], Awaitable[LoopState]]


def build_graph(steps: Steps, *, review: bool, measurements: int) -> Any:
    """The compiled graph for one run."""
    graph: Any = StateGraph(LoopState)
    for node in (steps.predict, steps.select, steps.observe, steps.calibrate, steps.revise):
        graph.add_node(node.__name__, checked(node))
    graph.add_node("score", checked(steps.score), defer=True)
    after_predict = ["select", "score"]
    if review:
        graph.add_node("review", checked(steps.review))
        graph.add_edge("review", "score")
        after_predict.append("review")

    # The branches are coroutines, since LangGraph sends a plain function to a thread.
    async def branch(state: LoopState) -> list[str]:
        ended = state.get("fault") or state.get("outcome")
        return ["score"] if ended else [name for name in after_predict if name != "score"]

    async def selected(state: LoopState) -> str:
        return "observe" if state.get("chosen") and not state.get("fault") else "score"

    async def revised(state: LoopState) -> str:
        return "score" if state.get("fault") or state.get("outcome") else "select"

    graph.add_edge(START, "predict")
    graph.add_conditional_edges("predict", branch, after_predict)
    graph.add_conditional_edges("select", selected, ["observe", "score"])
    graph.add_edge("observe", "calibrate")
    graph.add_edge("calibrate", "revise")
    graph.add_conditional_edges("revise", revised, ["select", "score"])
    graph.add_edge("score", END)
    return graph.compile().with_config({"recursion_limit": step_limit(measurements)})


def step_limit(measurements: int) -> int:
    """Graph steps that a case can take: predict and score, and four for every measurement."""
    return 2 + 4 * measurements + 1


def initial_state(case: str, repeat: int) -> LoopState:
    """The state every case starts from: nothing is shared with another case, repeat or run."""
    return {"case": case, "repeat": repeat, "turn": 0, "measured": []}


def checked(node: Node) -> Node:
    """The node, refusing to return what the state does not hold: unknown keys, and values that are not plain data."""

    async def run(state: LoopState) -> LoopState:
        update = await node(state)
        for key, value in update.items():
            check_plain(getattr(node, "__name__", "node"), key, value)
        return update

    run.__name__ = getattr(node, "__name__", "node")
    return run


def check_plain(node: str, key: str, value: object) -> None:
    """Raise ContractError unless the state has the key and the value is text, a number, None or a list of these."""
    if key not in LoopState.__annotations__:
        raise ContractError(f"node {node!r} returned the unknown state key {key!r}")
    for item in value if isinstance(value, list) else [value]:
        if type(item) not in (str, int, float, bool, type(None)):
            raise ContractError(
                f"node {node!r} returned {type(item).__module__}.{type(item).__name__} under the state key {key!r}; "
                "the state holds plain text, numbers and lists"
            )

"""The wiring of the loop as one LangGraph state graph. The archive, not a checkpointer, is the source of truth."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from evidence.errors import ContractError
from loops.nodes import LoopState, Steps

Node = Callable[[LoopState], Awaitable[LoopState]]
Next = Callable[[LoopState], tuple[str, ...]]
"""Which nodes follow, by the state that a node leaves."""


def build_graph(steps: Steps, *, review: bool, measurements: int) -> Any:
    """The compiled graph for one run. Nodes name what follows themselves: branches of the graph cost as much again."""
    graph: Any = StateGraph(LoopState)
    opening = ("select", "review") if review else ("select",)

    def predicted(state: LoopState) -> tuple[str, ...]:
        return ("score",) if _ended(state) else opening

    def selected(state: LoopState) -> tuple[str, ...]:
        return ("observe",) if state.get("chosen") and not state.get("fault") else ("score",)

    def revised(state: LoopState) -> tuple[str, ...]:
        return ("score",) if _ended(state) else ("select",)

    graph.add_node("predict", checked(steps.predict, predicted), destinations=(*opening, "score"))
    graph.add_node("select", checked(steps.select, selected), destinations=("observe", "score"))
    graph.add_node("observe", checked(steps.observe))
    graph.add_node("revise", checked(steps.revise, revised), destinations=("select", "score"))
    graph.add_node("score", checked(steps.score), defer=True)
    if review:
        graph.add_node("review", checked(steps.review))
        graph.add_edge("review", "score")
    graph.add_edge(START, "predict")
    graph.add_edge("observe", "revise")
    graph.add_edge("score", END)
    compiled = graph.compile()
    for node in compiled.nodes.values():
        parts = getattr(node.node, "steps", None)
        if parts:
            node.node = Untraced(parts)
    return compiled.with_config({"recursion_limit": step_limit(measurements)})


class Untraced:
    """The parts of a node, its function and the writing of its update, one after the other.

    LangGraph's own sequence of them runs each in a task of its own and tells tracers of it, whether there are any or
    not: a quarter of what the graph costs.
    """

    def __init__(self, parts: Sequence[Any]):
        self.parts = parts

    async def ainvoke(self, state: Any, config: Any = None, **more: Any) -> Any:
        """Run the parts, each on what the one before gave."""
        for part in self.parts:
            state = await part.ainvoke(state, config, **more)
        return state


async def work_through(graph: Any, case: str, repeat: int) -> None:
    """Send one case through. Nothing is streamed: what comes of a case is in the archive and in the steps."""
    async for _ in graph.astream(initial_state(case, repeat), stream_mode=[]):
        pass


def step_limit(measurements: int) -> int:
    """Graph steps that a case can take: predict and score, and three for every measurement."""
    return 2 + 3 * measurements + 1


def initial_state(case: str, repeat: int) -> LoopState:
    """The state every case starts from: nothing is shared with another case, repeat or run."""
    return {"case": case, "repeat": repeat, "turn": 0, "measured": []}


def checked(node: Node, following: Next | None = None) -> Callable[[LoopState], Awaitable[Any]]:
    """The node, refusing to return what the state does not hold: unknown keys, and values that are not plain data.

    `following` says what comes after it; without it an edge of the graph does.
    """
    name = getattr(node, "__name__", "node")

    async def run(state: LoopState) -> Any:
        update = await node(state)
        for key, value in update.items():
            check_plain(name, key, value)
        return update if following is None else Command(update=update, goto=following({**state, **update}))

    run.__name__ = name
    return run


def _ended(state: LoopState) -> bool:
    return bool(state.get("fault") or state.get("outcome"))


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

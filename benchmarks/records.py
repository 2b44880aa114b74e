"""The events of benchmark runs: what their events.jsonl holds beside calls.jsonl, and how it is read back."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from benchmarks.items import Item
from benchmarks.judge_prompt import Judgment
from benchmarks.tracks import Shown
from evidence.contracts import Figure
from evidence.values import Value
from interpreters.letters import LetterRule
from loops.archive import Stepped


class Posed(Value):
    """An item as it is in the item file, with its key, and its figures by sha256."""

    event: Literal["posed"] = "posed"
    item: Item
    figures: tuple[Figure, ...]


class Answered(Value):
    """The end of one item in one repeat.

    `status` is "letter", "unparsed", "response" (open track), or the status of the reply that could not be read
    (refused, truncated, filtered ...). `letter` is the one shown, `option` the number of that option in the item.
    """

    event: Literal["answered"] = "answered"
    case: str
    repeat: int
    shown: Shown
    status: str
    letter: str | None = None
    option: int | None = None
    rule: LetterRule = "none"
    reason: str = ""
    text: str = ""
    calls: int


class Response(Value):
    """One response to be judged, and the run it is from. The judge is told neither run nor model."""

    event: Literal["response"] = "response"
    case: str
    repeat: int
    run: str
    model: str
    status: str
    text: str
    sha256: str


JudgedStatus = Literal["scored", "dimensions_only", "failed", "no response"]


class Judged(Value):
    """What came of judging one response. Failures have their problems and no judgment."""

    event: Literal["judged"] = "judged"
    case: str
    repeat: int
    status: JudgedStatus
    judgment: Judgment | None = None
    problems: tuple[str, ...] = ()


class Rewritten(Value):
    """What came of rewriting a group of errors (its number in the pool): a text that passed the screen, or why not."""

    event: Literal["rewritten"] = "rewritten"
    case: str
    group: int
    text: str = ""
    problem: str = ""


BenchEvent = Annotated[Posed | Stepped | Answered | Response | Judged | Rewritten, Field(discriminator="event")]
BENCH_EVENT: TypeAdapter[BenchEvent] = TypeAdapter(BenchEvent)

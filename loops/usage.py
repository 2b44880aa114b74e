"""What the calls of a run used: tokens as the servers counted them, and their price."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

from evidence.contracts import Usage
from evidence.journal import call_of
from loops import lean
from loops.archive import Stepped
from loops.config import Prices
from loops.index import LineIndex, Place
from loops.limits import cost_of

CALLS_OF = {"initial": ("predict",), "reviewed": ("review",), "revised": ("select", "revise")}
"""The calls that each scored stage took beyond the stage before it."""


class Totals:
    """Sums over calls, added one by one."""

    def __init__(self) -> None:
        self._ended: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self._unmetered = 0
        self._prompt: int | None = None
        self._completion: int | None = None
        self._priced_prompt = self._priced_completion = 0

    def add(self, step: Stepped | lean.Stepped) -> None:
        """Add a call."""
        self._ended[step.status, step.attempts] += 1
        self._unmetered += step.unmetered
        self.take(step.usage)

    def take(self, usage: Usage | lean.Usage) -> None:
        """Add tokens alone."""
        prompt, completion = usage.prompt_tokens, usage.completion_tokens
        self._prompt, self._completion = _sum(self._prompt, prompt), _sum(self._completion, completion)
        if prompt is not None and completion is not None:
            self._priced_prompt += prompt
            self._priced_completion += completion

    def __iadd__(self, other: Totals) -> Totals:
        self._ended += other._ended
        self._unmetered += other._unmetered
        self._prompt, self._completion = _sum(self._prompt, other._prompt), _sum(self._completion, other._completion)
        self._priced_prompt += other._priced_prompt
        self._priced_completion += other._priced_completion
        return self

    def calls(self, prices: Prices | None) -> dict[str, Any]:
        """How calls ended, attempt by attempt, and what they used."""
        attempts, statuses = Counter[str](), Counter[str]()
        repaired = 0
        for (status, made), n in self._ended.items():
            statuses[status] += n
            repaired += n * (status == "ok" and "invalid" in made[:-1])
            for attempt in made:
                attempts[attempt] += n
        return {
            "attempts_by_status": dict(sorted(attempts.items())),
            "calls_by_status": dict(sorted(statuses.items())),
            "repaired": repaired,
            **self.usage(prices),
        }

    def usage(self, prices: Prices | None) -> dict[str, Any]:
        """Calls, attempts, tokens and cost. Tokens are null where no server stated any; cost is null without prices.

        `unmetered` counts replies without usage: tokens and cost are then lower bounds.
        """
        priced = Usage(prompt_tokens=self._priced_prompt, completion_tokens=self._priced_completion)
        cost = cost_of(priced, prices)
        return {
            "n": self._ended.total(),
            "n_attempts": sum(n * len(made) for (_, made), n in self._ended.items()),
            "prompt_tokens": self._prompt,
            "completion_tokens": self._completion,
            "unmetered": self._unmetered,
            "cost": None if cost is None else float(round(Decimal(0) + cost, 9)),
            "currency": None if prices is None else prices.currency,
        }


def _sum(total: int | None, more: int | None) -> int | None:
    """None counts nothing; of nothing there is no sum."""
    return total if more is None else more if total is None else total + more


def open_usage(calls: Path, done: Container[Place], prices: Prices | None) -> dict[str, Any]:
    """What the attempts of cells that are not done used, from calls.jsonl. A damaged line is in no sum."""
    totals, n = Totals(), 0
    index = LineIndex(calls, None)
    with index.open() as reader:
        for place in index.places():
            if place not in done:
                for number, line in reader.lines(place):
                    call = call_of(line, calls, number, [])
                    if call is not None:
                        n += 1
                        totals.take(call.reply.usage)
    used = totals.usage(prices)
    return {"n_attempts": n, **{key: used[key] for key in ("prompt_tokens", "completion_tokens", "cost")}}


def calls_of(steps: Iterable[Stepped], prices: Prices | None) -> dict[str, Any]:
    """How calls ended, attempt by attempt, and what they used."""
    totals = Totals()
    for step in steps:
        totals.add(step)
    return totals.calls(prices)

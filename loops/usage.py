"""What the calls of a run used: tokens as the servers counted them, and their price."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evidence.contracts import Usage
from evidence.journal import call_of
from loops.archive import Stepped
from loops.config import Prices
from loops.index import LineIndex
from loops.limits import cost_of
from loops.step_columns import UNKNOWN, StepColumns

CALLS_OF = {"initial": ("predict",), "reviewed": ("review",), "revised": ("select", "revise")}
"""The calls that each scored stage took beyond the stage before it."""


class Totals:
    """Sums over calls."""

    def __init__(self) -> None:
        self._ended: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self._unmetered = 0
        self._prompt: int | None = None
        self._completion: int | None = None
        self._priced_prompt = self._priced_completion = 0

    def add(self, steps: Sequence[Stepped]) -> None:
        """Add calls."""
        self._ended.update([(step.status, step.attempts) for step in steps])
        self._unmetered += sum([step.unmetered for step in steps])
        self.take([step.usage for step in steps])

    def add_columns(self, steps: StepColumns, numbers: Sequence[int]) -> None:
        """Add calls by their numbers among the steps of a run."""
        ends, counts = np.unique(np.asarray(steps.end)[numbers], return_counts=True)
        for end, n in zip(ends.tolist(), counts.tolist(), strict=True):
            self._ended[steps.ends.things[end]] += n
        self._unmetered += sum([steps.unmetered[n] for n in numbers]) if any(steps.unmetered) else 0
        prompt, completion = (np.asarray(c)[numbers] for c in (steps.prompt, steps.completion))
        self._prompt = _sum(self._prompt, _total(prompt[prompt != UNKNOWN]))
        self._completion = _sum(self._completion, _total(completion[completion != UNKNOWN]))
        priced = (prompt != UNKNOWN) & (completion != UNKNOWN)
        self._priced_prompt += _total(prompt[priced]) or 0
        self._priced_completion += _total(completion[priced]) or 0

    def take(self, usages: Sequence[Usage]) -> None:
        """Add tokens alone."""
        self._prompt = _sum(self._prompt, *[used.prompt_tokens for used in usages])
        self._completion = _sum(self._completion, *[used.completion_tokens for used in usages])
        priced = [u for u in usages if u.prompt_tokens is not None and u.completion_tokens is not None]
        self._priced_prompt += sum([u.prompt_tokens or 0 for u in priced])
        self._priced_completion += sum([u.completion_tokens or 0 for u in priced])

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


def _sum(*numbers: int | None) -> int | None:
    """The sum of those that are known; None where none is."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _total(tokens: NDArray[np.int64]) -> int | None:
    """The sum of a column, (n,), in halves that cannot overflow; None where it is empty."""
    if not len(tokens):
        return None
    return (int((tokens >> 32).sum()) << 32) + int((tokens & 0xFFFFFFFF).sum())


def open_usage(calls: Path, done: Container[tuple[str, int | None]], prices: Prices | None) -> dict[str, Any]:
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
                        totals.take([call.reply.usage])
    used = totals.usage(prices)
    return {"n_attempts": n, **{key: used[key] for key in ("prompt_tokens", "completion_tokens", "cost")}}


def calls_of(steps: Sequence[Stepped], prices: Prices | None) -> dict[str, Any]:
    """How calls ended, attempt by attempt, and what they used."""
    totals = Totals()
    totals.add(steps)
    return totals.calls(prices)

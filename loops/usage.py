"""What the calls of a run used: tokens as the servers counted them, and their price."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from loops.archive import Stepped
from loops.config import Prices
from loops.limits import cost_of

CALLS_OF = {"initial": ("predict",), "reviewed": ("review",), "revised": ("select", "revise")}
"""The calls that each scored stage took beyond the stage before it."""


def calls_of(steps: Iterable[Stepped], prices: Prices | None) -> dict[str, Any]:
    """How calls ended, attempt by attempt, and what they used."""
    made = list(steps)
    return {
        "attempts_by_status": dict(sorted(Counter(a for s in made for a in s.attempts).items())),
        "calls_by_status": dict(sorted(Counter(s.status for s in made).items())),
        "repaired": sum(s.status == "ok" and "invalid" in s.attempts[:-1] for s in made),
        **usage_of(made, prices),
    }


def usage_of(steps: Iterable[Stepped], prices: Prices | None) -> dict[str, Any]:
    """Calls, attempts, tokens and cost. Tokens are null where no server stated any; cost is null without prices.

    `unmetered` counts replies without usage: tokens and cost are then lower bounds.
    """
    made = list(steps)
    prompt = [s.usage.prompt_tokens for s in made if s.usage.prompt_tokens is not None]
    completion = [s.usage.completion_tokens for s in made if s.usage.completion_tokens is not None]
    costs = [cost_of(s.usage, prices) for s in made]
    return {
        "n": len(made),
        "n_attempts": sum(len(s.attempts) for s in made),
        "prompt_tokens": sum(prompt) if prompt else None,
        "completion_tokens": sum(completion) if completion else None,
        "unmetered": sum(s.unmetered for s in made),
        "cost": None if prices is None else float(round(sum((c for c in costs if c is not None), Decimal(0)), 9)),
        "currency": None if prices is None else prices.currency,
    }

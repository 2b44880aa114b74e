"""Who made it help: the way from the simulator alone to the revised answers, split into its parts.

Accuracy of the revised answers minus that of the simulator alone is the sum of what the adapter adds (no model) and
what the model adds to that. The model's own way from its initial answers stands beside: review, and evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from scoring.intervals import Draws, Later, mean_of_cases
from scoring.metrics import Marks

PARTS = {
    "adapter only": ("simulator alone", "simulator + adapter"),
    "model only": ("simulator + adapter", "revised"),
    "adapter and model": ("simulator alone", "revised"),
    "review": ("initial", "reviewed"),
    "evidence": ("initial", "revised"),
}
"""Each part of the gain: from which row of the table to which."""


def gain_block(rows: Mapping[str, Mapping[str, Marks]], draws: Draws) -> Later:
    """The parts of the gain by group (all, queried, unqueried), for the parts whose two rows are there.

    rows: row name -> group -> marks, all rows of the same readouts in the same order; the draws serve every row of the
    table, so that differences are paired.
    """
    parts = {
        part: {group: _difference(rows[before][group], rows[after][group], draws) for group in rows[before]}
        for part, (before, after) in PARTS.items()
        if before in rows and after in rows
    }
    return lambda: {
        part: {"from": PARTS[part][0], "to": PARTS[part][1], **{group: result() for group, result in groups.items()}}
        for part, groups in parts.items()
    }


def _difference(before: Marks, after: Marks, draws: Draws) -> Later:
    """Changes of accuracy (a missing answer is not right) and of the mean absolute error where both have a value."""
    was, now = before.label == before.truth, after.label == after.truth
    valued = np.isfinite(before.error) & np.isfinite(after.error)
    accuracy = mean_of_cases(now.astype(float) - was, before.cluster, draws)
    mae = mean_of_cases((after.error - before.error)[valued], before.cluster[valued], draws)
    return lambda: {
        "n": len(was),
        "accuracy": accuracy(),
        "mae": mae(),
        "n_values": int(valued.sum()),
        "corrections": int((~was & now).sum()),
        "regressions": int((was & ~now).sum()),
    }


def gain_lines(block: Mapping[str, Any]) -> Iterator[str]:
    """The parts of the gain for a terminal, in percentage points of accuracy."""
    for part, found in block.items():
        if part in ("adapter only", "model only", "adapter and model"):
            split = ", ".join(f"{group} {_points(found[group])}" for group in ("all", "queried", "unqueried"))
            yield f"gain of {part}, points of accuracy ({found['from']} → {found['to']}): {split}"


def _points(found: Mapping[str, Any]) -> str:
    value, low, high = (found["accuracy"][key] for key in ("value", "low", "high"))
    if value is None:
        return "n/a"
    return f"{100 * value:+.1f}" + ("" if low is None else f" [{100 * low:+.1f}, {100 * high:+.1f}]")

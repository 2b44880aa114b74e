"""The panels under a run's tables: calibration, gain, and choice of measurement, from the blocks of its summary.

A panel is None where the run has no such block; the page then says so and draws nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from loops.report.charts import Axis, Point, Series, plot, ticks

SHARE = Axis("", 0, 1, ticks(0, 1, 0.25))
STATED = {"confidence": "Stated confidence of the chosen class", "probabilities": "Probabilities of all classes"}
WAYS = {
    "chosen": "chosen",
    "eig": "most information (EIG)",
    "eag": "most expected accuracy (EAG)",
    "random": "random, on average",
    "oracle": "oracle",
}
"""Ways of choosing the first measurement, by their keys in the summary."""
STEP = 0.25
"""Regrets and expected gains are shown in steps of this many readouts."""


class Curves(NamedTuple):
    """A reliability plot, its series in the order of their markers, and its numbers as (row, n, Brier, ECE)."""

    title: str
    drawn: Markup
    names: tuple[str, ...]
    numbers: list[tuple[str, int, float, float]]


class Covered(NamedTuple):
    """How often central intervals held the truth: (row, n, share by level)."""

    levels: tuple[str, ...]
    rows: list[tuple[str, int, tuple[float, ...]]]


class Choices(NamedTuple):
    """Cases counted by regret against the oracle for each way of choosing, and by expected and realised gain."""

    regrets: Mapping[str, Counter[float]]
    gains: Counter[tuple[float, float]]


def count_choices(rows: Iterable[Mapping[str, Any]]) -> Choices:
    """Count the rows of scores/cases.jsonl; regret is in readouts right, after the measurement and the adapter."""
    regrets: dict[str, Counter[float]] = {way: Counter() for way in WAYS if way != "oracle"}
    gains: Counter[tuple[float, float]] = Counter()
    for row in rows:
        for way, counted in regrets.items():
            if row["oracle"] is not None and row[way] is not None:
                counted[_step(row["oracle"]["right"] - row[way]["right"])] += 1
        chosen = row["chosen"]
        if chosen is not None and chosen["expected_gain"] is not None:
            gains[_step(chosen["expected_gain"]), chosen["gain"]] += 1
    return Choices({way: counted for way, counted in regrets.items() if counted}, gains)


def _step(value: float) -> float:
    return round(value / STEP) * STEP


def calibration_curves(summary: Mapping[str, Any], key: str) -> list[Curves]:
    """Reliability curves by what is stated: right answers over stated probability, before and after the evidence."""
    block = summary.get("calibration") or {}
    panels = []
    for kind, title in STATED.items():
        stated = {name: row[kind] for name, row in block.items() if (row.get(kind) or {}).get("n")}
        if stated:
            series = [
                Series(name, [Point(b["confidence"], b["accuracy"], b["n"]) for b in found["curve"]], joined=True)
                for name, found in stated.items()
            ]
            about = (
                "Points on the diagonal keep their word; below it they promise too much. The numbers are in the table."
            )
            x, y = SHARE._replace(label="stated"), SHARE._replace(label="right")
            drawn = plot(f"{key}-{kind}", title, about, x, y, series, diagonal=True)
            numbers = [(name, found["n"], found["brier"], found["ece"]) for name, found in stated.items()]
            panels.append(Curves(title, drawn, tuple(stated), numbers))
    return panels


def coverage(summary: Mapping[str, Any]) -> Covered | None:
    """How often the simulator's and the adapter's central intervals held the true change."""
    block = summary.get("calibration") or {}
    found = {name: row["coverage"] for name, row in block.items() if (row.get("coverage") or {}).get("n")}
    if not found:
        return None
    levels = tuple(sorted({level for one in found.values() for level in one["covered"]}, key=float))
    return Covered(
        levels,
        [(name, one["n"], tuple(one["covered"][level] / one["n"] for level in levels)) for name, one in found.items()],
    )


def gain_limit(gain: Mapping[str, Any]) -> float:
    """The end of the scale that holds every gain over all readouts, and its interval: 0.25, 0.5 or 1."""
    ends = [abs(part["all"]["accuracy"][key] or 0) for part in gain.values() for key in ("value", "low", "high")]
    return next(limit for limit in (0.25, 0.5, 1.0) if max(ends, default=0) <= limit)


GAIN_GROUPS = ("all", "queried", "unqueried")


def regret_plot(choices: Choices, key: str) -> Markup | None:
    """Cases by regret for each way of choosing: one line of bubbles each."""
    if not choices.regrets:
        return None
    ways = list(choices.regrets)
    high = max(1.0, max(max(counted) for counted in choices.regrets.values()))
    low = min(0.0, min(min(counted) for counted in choices.regrets.values()))
    series = [
        Series(WAYS[way], [Point(x, len(ways) - n, count) for x, count in sorted(counted.items())], sized=True)
        for n, (way, counted) in enumerate(choices.regrets.items())
    ]
    x = Axis("readouts fewer right than with the oracle", low - 0.3, high + 0.3, _whole(low, high))
    y = Axis("", 0.4, len(ways) + 0.6, [(len(ways) - n, SHORT[way]) for n, way in enumerate(ways)])
    about = (
        "One line of bubbles for each way of choosing; a bubble's area is the number of cases. The table has the means."
    )
    return plot(f"{key}-regret", "Regret of the first measurement", about, x, y, series)


SHORT = {"chosen": "chosen", "eig": "EIG", "eag": "EAG", "random": "random"}


def gain_plot(choices: Choices, key: str) -> Markup | None:
    """What the chosen measurement was expected to bring, and what it brought, in readouts right."""
    if not choices.gains:
        return None
    points = [Point(x, y, n) for (x, y), n in sorted(choices.gains.items())]
    xs, ys = [p.x for p in points], [p.y for p in points]
    x = Axis("expected gain, readouts", min(0.0, *xs) - 0.2, max(1.0, *xs) + 0.2, _whole(min(0.0, *xs), max(1.0, *xs)))
    y = Axis("realised gain", min(0.0, *ys) - 0.5, max(1.0, *ys) + 0.5, _whole(min(0.0, *ys), max(1.0, *ys)))
    about = "A bubble's area is the number of cases. The numbers are below it."
    series = [Series("cases", points, sized=True)]
    return plot(f"{key}-gain", "Expected and realised value of the chosen measurement", about, x, y, series)


def _whole(low: float, high: float) -> list[tuple[float, str]]:
    step = max(1, round((high - low) / 6))
    return ticks(int(low), int(low) + step * int((high - int(low)) // step), step)


def choice_table(summary: Mapping[str, Any]) -> Sequence[tuple[str, Any, Any, Any]]:
    """(way, its accuracy and error, expected gain, realised gain) by way of choosing; empty where there is none."""
    block = summary.get("choice")
    if not block:
        return ()
    gain = block["gain"]
    ways = [
        (words, block["ways"][way], (gain.get(way) or {}).get("expected"), (gain.get(way) or {}).get("realised"))
        for way, words in WAYS.items()
        if way in block["ways"]
    ]
    return [("before any measurement", block["ways"]["before"], None, None), *ways]

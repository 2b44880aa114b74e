"""The result table, as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from loops.calibration import calibration_lines
from loops.gain import gain_lines
from loops.trace import printable
from loops.what_if import what_if_lines

STAGES = ("initial", "reviewed", "revised")
GROUPS = ("queried", "unqueried")
COLUMNS = ("", "readouts", "right", "accuracy [95 %]", "macro-F1 [95 %]", "mean abs. error [95 %]", "missing")
USAGE_COLUMNS = ("tokens in", "out", "cost")


def print_summary(console: Console, summary: Mapping[str, Any]) -> None:
    """Print a summary (scores/summary.json): what was run, one row per answerer, then changes and calls."""
    synthetic = " (SYNTHETIC data)" if summary["synthetic"] else ""
    console.print(Text(printable(f"{summary['title']}{synthetic}"), style="bold"))
    console.print(Text(printable(_setup(summary))))
    table = Table(show_edge=False, pad_edge=False, header_style="bold")
    for column in table_columns(summary):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    for row in table_lines(summary):
        table.add_row(*(Text(printable(cell)) for cell in row))  # Text: names in brackets are shown, not styled
    print_whole(console, table)
    for line in notes(summary):
        console.print(Text(printable(line)))


def print_whole(console: Console, table: Table) -> None:
    """Print a table as wide as it is: a column that is cut for a narrow console loses digits, or the whole number."""
    shown = console.width
    console.width = max(shown, table.__rich_measure__(console, console.options.update(max_width=100_000)).maximum)
    console.print(table)
    console.width = shown


def print_overview(console: Console, summaries: Sequence[Mapping[str, Any]]) -> None:
    """Print several runs, one line each: cells done, accuracy at each stage, what is missing, tokens and cost."""
    table = Table(show_edge=False, pad_edge=False, header_style="bold")
    for column in ("run", "cells", *STAGES, "missing", *USAGE_COLUMNS):
        table.add_column(column, justify="left" if column == "run" else "right", no_wrap=True)
    for summary in summaries:
        rows = {row["name"]: row["all"] for row in summary["rows"]}
        right = ["" if stage not in rows else _percent(rows[stage]["accuracy"]["value"]) for stage in STAGES]
        missing = str(rows["revised"]["n_missing"]) if "revised" in rows else ""
        name = f"{summary['run']}{' (SYNTHETIC)' if summary['synthetic'] else ''}"
        cells = f"{summary['n_cells_scored']}/{summary['n_cells']}"
        line = (name, cells, *right, missing, *usage_cells(_all_usage(summary["calls"])))
        table.add_row(*(Text(printable(cell)) for cell in line))
    print_whole(console, table)


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.1f} %"


def _setup(summary: Mapping[str, Any]) -> str:
    parts = [
        f"interpreter {interpreter_name(summary['interpreter'])}",
        f"simulator {summary['simulator'] or 'none'}",
        f"adapter {summary['adapter']}",
    ]
    parts.append(f"policy {summary['policy']}, {summary['measurements']} measurement(s) a case")
    return " · ".join(parts)


def interpreter_name(identity: Mapping[str, Any]) -> str:
    """An interpreter and, where there is one, its model, from the archived identity."""
    return str(identity.get("name", "?")) + (f" {identity['model']}" if identity.get("model") else "")


def table_columns(summary: Mapping[str, Any]) -> tuple[str, ...]:
    """The heads of the table; tokens and cost where the model was metered."""
    return COLUMNS + (USAGE_COLUMNS if _metered(summary) else ())


def _metered(summary: Mapping[str, Any]) -> bool:
    return summary["calls"]["prompt_tokens"] is not None


def table_lines(summary: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The cells of the table: one line per answerer, then its queried and unqueried readouts, which may be shorter."""
    rows, metered = summary["rows"], _metered(summary)
    for row in rows:
        yield (*_line(row["name"], row["all"]), *(usage_cells(row["usage"]) if metered else ()))
        if row["name"] not in ("reviewed", "constant (near zero)"):
            for group in GROUPS:
                if row[group]["n"]:
                    yield _line(f"  {group}", row[group])


def usage_cells(usage: Mapping[str, Any] | None) -> tuple[str, str, str]:
    """Tokens in, tokens out and cost as shown; "≥" where replies came without usage, blank where no model was asked."""
    if usage is None:
        return "", "", ""
    at_least = "≥" if usage["unmetered"] else ""
    tokens = (usage["prompt_tokens"], usage["completion_tokens"])
    counts = ["n/a" if n is None else f"{at_least}{n:,}" for n in tokens]
    cost = "n/a" if usage["cost"] is None else f"{at_least}{usage['cost']:.4f} {usage['currency']}"
    return counts[0], counts[1], cost


def _all_usage(calls: Mapping[str, Any]) -> dict[str, Any]:
    """What all calls of a run used, those of its open cells too."""
    more = calls["in_open_cells"] or {}
    sums = {}
    for key in ("prompt_tokens", "completion_tokens", "cost"):
        known = [part[key] for part in (calls, more) if part.get(key) is not None]
        sums[key] = sum(known) if known else None
    return {**calls, **sums}


def _line(name: str, scores: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        name,
        str(scores["n"]),
        str(scores["n_right"]),
        interval(scores["accuracy"], percent=True),
        interval(scores["macro_f1"]),
        interval(scores["mae"]),
        str(scores["n_missing"]),
    )


def interval(estimate: Mapping[str, Any], *, percent: bool = False) -> str:
    """An estimate with its 95 % interval."""
    if estimate["value"] is None:
        return "n/a"
    scale, form = (100, "{:.1f}") if percent else (1, "{:.3f}")
    value, low, high = ("" if (x := estimate[k]) is None else form.format(x * scale) for k in ("value", "low", "high"))
    return f"{value} [{low}, {high}]" if low else f"{value} [no interval]"


def _change(counts: Mapping[str, int]) -> str:
    return f"+{counts['corrections']}/-{counts['regressions']}"


def notes(summary: Mapping[str, Any]) -> Iterator[str]:
    """What the table cannot show: changes between stages, how cases and calls ended, what is missing or damaged."""
    if "what_if" in summary:
        yield from what_if_lines(summary["what_if"])
    for stage, counts in summary["changes"].get("all", {}).items():
        split = ", ".join(f"{group} {_change(summary['changes'][group][stage])}" for group in GROUPS)
        yield f"corrections/regressions, initial → {stage}: {_change(counts)} ({split})"
    yield from gain_lines(summary.get("gain", {}))
    yield from calibration_lines(summary.get("calibration", {}))
    balance = ", ".join(f"{label} {n}" for label, n in summary["class_balance"].items())
    yield f"true classes: {balance}" if balance else "no case is finished yet"
    outcomes = ", ".join(f"{name} {n}" for name, n in summary["outcomes"].items())
    yield f"cases: {outcomes or 'none'}" + (
        f", not finished {summary['n_cells_open']}" if summary["n_cells_open"] else ""
    )
    yield from _choice(summary.get("choice"))
    calls = summary["calls"]
    statuses = ", ".join(f"{status} {n}" for status, n in calls["attempts_by_status"].items())
    yield f"calls: {calls['n']} in {calls['n_attempts']} attempts ({statuses or 'none'}), repaired {calls['repaired']}"
    if calls["refused_selections"]:
        yield f"selections refused: {calls['refused_selections']}"
    if calls["prompt_tokens"] is not None:
        tokens_in, tokens_out, cost = usage_cells(calls)
        unmetered = f", {calls['unmetered']} replies came without usage" if calls["unmetered"] else ""
        yield f"tokens: {tokens_in} in, {tokens_out} out; cost {cost}{unmetered}"
    more = calls["in_open_cells"]
    if more is not None:
        tokens_in, tokens_out, cost = usage_cells({**calls, **more})
        yield (
            f"in cells that are not finished: {more['n_attempts']} attempts, tokens {tokens_in} in, {tokens_out} out; "
            f"cost {cost}"
        )
    if summary["damaged_lines"]:
        listed = ", ".join(map(str, summary["damaged_lines"]))
        yield f"{len(summary['damaged_lines'])} damaged line(s) in events.jsonl: {listed}"


def _choice(choice: Mapping[str, Any] | None) -> Iterator[str]:
    """How the first measurement was chosen, beside what other choices would have given."""
    if choice is None:
        return
    ways = {w: s["accuracy"] for w, s in choice["ways"].items() if s["accuracy"] is not None and w != "before"}
    given = ", ".join(f"{way} {100 * accuracy:.1f} %" for way, accuracy in ways.items())
    yield f"simulator + adapter after the first measurement, by who chooses it: {given}"

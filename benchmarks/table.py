"""Benchmark results as a person reads them in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.rubrics import RUBRICS
from loops.table import interval, print_whole, usage_cells
from loops.trace import printable

Row = tuple[str, ...]


def print_summary(console: Console, summary: Mapping[str, Any]) -> None:
    """Print the summary of a benchmark run of any kind."""
    synthetic = " (SYNTHETIC items)" if summary["synthetic"] else ""
    _say(console, f"{summary['title']}{synthetic}", bold=True)
    asked = summary["interpreter"]
    who = " ".join(str(asked[key]) for key in ("name", "model") if asked.get(key))
    note = f" ({asked['for']})" if asked.get("for") else ""
    lines: Iterator[str]
    if summary["kind"] == "judge":
        _say(console, f"judge {who}{note} · L3 rubric {summary['l3_rubric']} · prompt {summary['judge_prompt']}")
        _table(console, ("", "responses", "overall 1-5 [95 %]", "sources"), _judge_rows(summary))
        lines = _judge_notes(summary)
    elif summary["kind"] == "mine":
        _say(console, f"rewriting by {who}")
        lines = _mine_notes(summary)
    else:
        order = f"options {summary['options']}" if summary["track"] != "open" else "open response"
        _say(console, f"interpreter {who} · track {summary['track']} · strategy {summary['strategy']} · {order}")
        if "accuracy" in summary:
            _table(console, ("", "answers", "accuracy [95 %]", "sources"), _choice_rows(summary))
        lines = _choice_notes(summary)
    for line in lines:
        _say(console, line)
    for line in _calls(summary):
        _say(console, line)


def print_pairs(console: Console, found: Mapping[str, Any]) -> None:
    """Print the pairs of a comparison: the difference, and both tests with Holm's adjustment."""
    columns = ("", "n", "second - first [95 %]", "only first", "only second", "McNemar", "Holm", "sign flip", "Holm")
    rows = [
        (
            f"{pair['first']} → {pair['second']}",
            str(pair["n"]),
            interval(pair["difference"], percent=True),
            str(pair["only_first"]),
            str(pair["only_second"]),
            *(_p(pair[f"p_{test}{tail}"]) for test in ("mcnemar", "sign_flip") for tail in ("", "_holm")),
        )
        for pair in found["pairs"]
    ]
    _table(console, columns, rows)
    for name, rates in {n: r for pair in found["pairs"] for n, r in pair["rates"].items()}.items():
        _say(
            console, f"{name}: {rates['n']} answers, {rates['not_read']} not read, {rates['refused']} of these refused"
        )


def print_agreement(console: Console, found: Mapping[str, Any]) -> None:
    """Print how judges agree."""
    rows = [
        (
            f"{pair['first']} → {pair['second']}",
            str(pair["n"]),
            "n/a" if pair["quadratic_kappa"] is None else f"{pair['quadratic_kappa']:.3f}",
            interval(pair["difference"]),
        )
        for pair in found["pairs"]
    ]
    _table(console, ("", "both scored", "quadratic kappa", "second - first [95 %]"), rows)
    alpha = found["krippendorff_ordinal"]
    _say(console, f"Krippendorff's alpha (ordinal) of all: {'n/a' if alpha is None else f'{alpha:.3f}'}")


def _choice_rows(summary: Mapping[str, Any]) -> Iterator[Row]:
    yield _row("all", summary["accuracy"], percent=True)
    yield _row("  strict replies only", summary["accuracy_strict"], percent=True)
    yield _row("  mean of sources", summary["accuracy_by_source"], percent=True)
    yield ("chance", "", "n/a" if summary["chance"] is None else f"{100 * summary['chance']:.1f}", "")
    yield from _group_rows(summary, percent=True)
    split = summary["reasoning_by_perception"]
    if split:
        yield _row("reasoning, image perceived", split["perceived"], percent=True)
        yield _row("reasoning, not perceived", split["not_perceived"], percent=True)


def _group_rows(summary: Mapping[str, Any], *, percent: bool = False) -> Iterator[Row]:
    for key, groups in summary["groups"].items():
        for name, found in groups.items():
            if name != "overall":
                yield _row(f"{key} {name}", found, percent=percent)


def _judge_rows(summary: Mapping[str, Any]) -> Iterator[Row]:
    yield _row("all", summary["overall"])
    yield _row("  mean of sources", summary["overall_by_source"])
    yield _row("  weighted dimensions", summary["weighted"])
    yield from _group_rows(summary)
    for level, dimensions in summary["dimensions"].items():
        for name, found in dimensions.items():
            yield _row(f"  {level} {name}", found)


def _row(name: str, found: Mapping[str, Any], *, percent: bool = False) -> Row:
    return name, str(found["n"]), interval(found, percent=percent), str(found["n_clusters"])


def _choice_notes(summary: Mapping[str, Any]) -> Iterator[str]:
    if not summary["shows_figures"] and summary["track"] != "no_image":
        yield "the interpreter reads no figures: none were shown"
    if "rates" in summary:
        rates = {name: n for name, n in summary["rates"].items() if name not in ("n", "right")}
        yield f"{summary['rates']['n']} answers read: " + ", ".join(f"{name} {n}" for name, n in rates.items())
    else:
        yield f"responses: {summary['responses']['n']}, with text {summary['responses']['with_text']}"
    if summary["n_cells_open"]:
        yield f"not answered yet: {summary['n_cells_open']}"


def _judge_notes(summary: Mapping[str, Any]) -> Iterator[str]:
    if not summary["shows_figures"]:
        yield "the judge reads no figures: none were shown"
    judged = ", ".join(f"{entry['model']} ({entry['run']})" for entry in summary["judged"])
    yield f"responses of {judged}: " + ", ".join(f"{name} {n}" for name, n in summary["statuses"].items())
    if not summary["valid"]:
        yield f"NOT VALID: {summary['n_unscored']} responses without an overall score, more than max_unscored allows"
    if summary["ignored_caps"]:
        caps = ", ".join(sorted({r.cap.dimension for r in RUBRICS.values() if r.cap}))
        yield f"caps ignored by the judge (flagged, nothing changed): {summary['ignored_caps']} ({caps})"
    if summary["n_cells_open"]:
        yield f"not judged yet: {summary['n_cells_open']}"


def _mine_notes(summary: Mapping[str, Any]) -> Iterator[str]:
    yield f"{summary['n_complete']} of {summary['n_items']} items have five distractors"
    yield f"wrong responses: {summary['n_wrong_responses']}; rewrites: " + (
        ", ".join(f"{name} {n}" for name, n in summary["rewrites"].items()) or "none"
    )
    if summary["short_of_distractors"]:
        listed = ", ".join(f"{item} {n}" for item, n in list(summary["short_of_distractors"].items())[:20])
        yield f"short of distractors: {listed}"


def _calls(summary: Mapping[str, Any]) -> Iterator[str]:
    calls = summary["calls"]
    statuses = ", ".join(f"{status} {n}" for status, n in calls["attempts_by_status"].items())
    yield f"calls: {calls['n']} in {calls['n_attempts']} attempts ({statuses or 'none'}), repaired {calls['repaired']}"
    if calls["prompt_tokens"] is not None:
        tokens_in, tokens_out, cost = usage_cells(calls)
        yield f"tokens: {tokens_in} in, {tokens_out} out; cost {cost}"
    if summary["damaged_lines"]:
        yield f"{len(summary['damaged_lines'])} damaged line(s) in events.jsonl"


def _p(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.4f}"


def _table(console: Console, columns: Sequence[str], rows: Iterator[Row] | Sequence[Row]) -> None:
    table = Table(show_edge=False, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    print_whole(console, table)


def _say(console: Console, line: str, *, bold: bool = False) -> None:
    console.print(Text(printable(line), style="bold" if bold else ""))

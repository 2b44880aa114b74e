"""The comparison of runs, as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from loops.table import USAGE_COLUMNS, interval, print_whole, usage_cells
from loops.trace import printable

RUN_COLUMNS = ("run", "initial", "reviewed", "revised", "gain [95 %]", "missing", "unparsed", "refused", "truncated")
PAIR_COLUMNS = ("", "readouts", "first", "second", "difference [95 %]", "McNemar p", "Holm", "sign flip p", "Holm")


def print_comparison(console: Console, found: Mapping[str, Any]) -> None:
    """Print what `compare` gives: each pilot's runs, then every pair by stage and group, in per cent and points."""
    for pilot in found["pilots"]:
        synthetic = " (SYNTHETIC data)" if pilot["synthetic"] else ""
        console.print(Text(printable(f"{pilot['title']}{synthetic}"), style="bold"))
        console.print(Text(printable(_cases(pilot))))
        metered = any(run["usage"]["prompt_tokens"] is not None for run in pilot["runs"])
        runs = _table((*RUN_COLUMNS, *(USAGE_COLUMNS if metered else ())))
        for run in pilot["runs"]:
            _add(runs, (*_run(run), *(usage_cells(run["usage"]) if metered else ())))
        print_whole(console, runs)
        for pair in pilot["pairs"]:
            console.print(Text(printable(f"\nfirst {pair['first']}, second {pair['second']}"), style="bold"))
            pairs = _table(PAIR_COLUMNS)
            for line in _pair(pair):
                _add(pairs, line)
            print_whole(console, pairs)
    if found["static"] is not None:
        print_beside(console, found["static"])
    console.print(
        "Differences are second - first. Intervals and sign flips take cases as clusters; Holm is over all pairs and "
        "pilots (docs/comparing.md).",
        highlight=False,
    )


def print_beside(console: Console, found: Mapping[str, Any]) -> None:
    """Print static scores beside loop gains, as `loops.beside` gives them."""
    console.print("\nstatic score beside loop gain", style="bold", highlight=False)
    table = _table(("model", "static score [95 %]", "loop gain (points)"))
    for row in found["rows"]:
        gain = "n/a" if row["gain"] is None else f"{100 * row['gain']:+.1f}"
        _add(table, (row["model"], interval(row["static"]), gain))
    print_whole(console, table)
    for line in beside_lines(found):
        console.print(Text(printable(line)))


def beside_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """What the table of static scores cannot show: the settings behind the gains, and the correlation over models."""
    yield f"settings that every model has: {', '.join(found['settings']) or 'none'}"
    for name in ("pearson", "spearman"):
        one = found[name]
        words = interval(one) if one["value"] is not None else f"n/a ({one['reason']})"
        p = "" if one["p"] is None else f", permutation p {one['p']:.4f}"
        yield f"{name} over {one['n_models']} models: {words}{p}"
    if found["unpaired"]:
        yield f"without a partner: {', '.join(found['unpaired'])}"


def _cases(pilot: Mapping[str, Any]) -> str:
    left = pilot["n_cases"] - pilot["n_cases_compared"]
    return f"{pilot['n_cases_compared']} cases of {pilot['case_file']}" + (
        f", {left} not finished by all" if left else ""
    )


def _table(columns: tuple[str, ...]) -> Table:
    table = Table(show_edge=False, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table


def _add(table: Table, cells: tuple[str, ...]) -> None:
    table.add_row(*(Text(printable(cell)) for cell in cells))


def _run(run: Mapping[str, Any]) -> tuple[str, ...]:
    repeats = f" x{run['repeats']}" if run["repeats"] > 1 else ""
    accuracies = (_percent(run["accuracy"].get(stage, {}).get("value")) for stage in ("initial", "reviewed", "revised"))
    calls = (_percent(run["calls"][name]) for name in ("unparsed", "refused", "truncated"))
    missing = _percent(run["missing_answers"].get("revised"))
    return f"{run['label']} ({run['interpreter']}{repeats})", *accuracies, _points(run["gain"]), missing, *calls


def _pair(pair: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for stage, groups in (*pair["stages"].items(), ("gain", pair["gain"])):
        for group, found in groups.items():
            yield (
                stage if group == "all" else f"  {group}",
                f"{found['n']} in {found['n_cases']}",
                _percent(found["first"]),
                _percent(found["second"]),
                _points(found["difference"]),
                *_p(found.get("mcnemar")),
                *_p(found["sign_flip"]),
            )


def _percent(share: float | None) -> str:
    return "n/a" if share is None else f"{100 * share:.1f}"


def _points(found: Mapping[str, float | None]) -> str:
    value, low, high = found["value"], found["low"], found["high"]
    if value is None:
        return "n/a"
    return f"{100 * value:+.1f}" + (
        " [none]" if low is None or high is None else f" [{100 * low:+.1f}, {100 * high:+.1f}]"
    )


def _p(test: Mapping[str, Any] | None) -> tuple[str, str]:
    if test is None:
        return "", ""
    p, adjusted = ("n/a" if test[key] is None else f"{test[key]:.3g}" for key in ("p", "p_holm"))
    return p, adjusted

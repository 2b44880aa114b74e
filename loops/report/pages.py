"""The two pages, rendered with everything escaped, and a policy that lets nothing run but our own script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from loops.compare_table import beside_lines
from loops.report import charts, panels
from loops.report.collect import Pilot, Run
from loops.report.published import SOURCE
from loops.table import interval, notes, table_columns, table_lines, usage_cells
from loops.trace import printable

STAGES = ("initial", "reviewed", "revised")


class Beside(NamedTuple):
    """A row that stands beside the model: a simulator, an adapter or a baseline."""

    name: str
    accuracy: float


class Pages:
    """Renders the pages of one report."""

    def __init__(self) -> None:
        self._style, self._script = _static("page.css"), _static("traces.js")
        self._environment = Environment(
            loader=PackageLoader("loops.report"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_readable,
        )
        self._environment.globals.update(
            bar=charts.bar,
            marker=charts.marker,
            markers=charts.markers,
            signed_bar=charts.signed_bar,
            stages=STAGES,
            policy=self._policy,
        )
        self._environment.filters.update(percent=_percent, interval=_interval, points=_points, number=_number)

    def index(self, shown: Sequence[Pilot], n_cases: int, static: Mapping[str, Any] | None) -> str:
        """The overview with the pilots' tables and charts, and static scores beside loop gains where there are any."""
        runs = sorted((run for pilot in shown for run in pilot.runs), key=lambda run: run.number)
        return self._render(
            "index.html.j2",
            script=None,
            pilots=shown,
            runs=runs,
            n_cases=n_cases,
            source=SOURCE,
            table_columns=table_columns,
            table_lines=table_lines,
            notes=notes,
            beside=beside,
            row_of=row_of,
            calls_of=calls_of,
            panels=panels,
            static=static,
            beside_lines=beside_lines,
            plain_interval=interval,
        )

    def traces(self) -> str:
        """The trace browser, which reads its cases from data/."""
        return self._render("traces.html.j2", script=self._script)

    def _render(self, name: str, *, script: str | None, **values: Any) -> str:
        return self._environment.get_template(name).render(
            style=Markup(self._style),  # noqa: S704 - our own file
            script=None if script is None else Markup(script),  # noqa: S704 - our own file
            **values,
        )

    def _policy(self, script: str | None) -> str:
        """The content security policy: our style and script by their hashes, scripts that ours loads, local images."""
        scripts = "'none'" if script is None else f"{_source(script)} 'strict-dynamic'"
        return (
            f"default-src 'none'; script-src {scripts}; style-src {_source(self._style)}; img-src 'self' file:; "
            "base-uri 'none'; form-action 'none'"
        )


def row_of(run: Run, name: str) -> dict[str, Any] | None:
    """The scores of one row of a run's table over all readouts; None where the run has no such row."""
    return next((row["all"] for row in run.summary["rows"] if row["name"] == name), None)


def beside(run: Run) -> list[Beside]:
    """What stands beside the model in a run's table, with its accuracy."""
    return [
        Beside(row["name"], row["all"]["accuracy"]["value"])
        for row in run.summary["rows"]
        if row["name"] not in STAGES and row["all"]["accuracy"]["value"] is not None
    ]


READ_AS = {
    "refused or filtered": ("refused", "filtered"),
    "unreadable": ("malformed", "invalid", "empty"),
    "cut": ("truncated", "truncated_in_reasoning"),
    "no reply": ("timeout", "connection", "rate_limited", "server_error", "quota", "bad_request"),
}
"""How the last attempt of a call ended, in the groups of the page."""


def calls_of(run: Run) -> Iterator[tuple[str, str]]:
    """How the calls of a run ended and what they used, as (name, value). Unknown is said, not guessed."""
    calls = run.summary["calls"]
    ended = calls["calls_by_status"]
    yield "calls", f"{calls['n']:,}"
    yield "attempts", f"{calls['n_attempts']:,}"
    yield "read", f"{ended.get('ok', 0):,}"
    for name, statuses in READ_AS.items():
        yield name, f"{sum(ended.get(status, 0) for status in statuses):,}"
    yield "repaired", f"{calls['repaired']:,}"
    yield from zip(("tokens in", "tokens out", "cost"), usage_cells(calls), strict=True)


def _static(name: str) -> str:
    return (resources.files("loops.report") / "static" / name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _readable(value: object) -> object:
    """Text without control characters, direction marks and lone surrogates; markup of our own as it is."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.1f} %"


def _interval(estimate: dict[str, float | None]) -> str:
    if estimate["low"] is None or estimate["high"] is None:
        return "no interval"
    return f"{100 * estimate['low']:.0f}\N{EN DASH}{100 * estimate['high']:.0f}"


def _points(estimate: dict[str, float | None]) -> str:
    """A difference of accuracies in percentage points, with its interval."""
    value, low, high = (estimate[key] for key in ("value", "low", "high"))
    if value is None:
        return "n/a"
    return f"{100 * value:+.1f}" + ("" if low is None or high is None else f" [{100 * low:+.1f}, {100 * high:+.1f}]")


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3f}"

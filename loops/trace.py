"""One case of a run, step by step, as it was archived."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from evidence.errors import ArchiveError, did_you_mean
from loops.archive import Opened, read_calls, read_events, read_run

SHOWN = 2000
"""Characters of a raw reply that are printed."""


def case_trace(folder: Path, case: str) -> dict[str, Any]:
    """The opened case, its events and its raw replies. Raises ArchiveError for a case the run does not have."""
    known = read_run(folder).cases
    if case not in known:
        raise ArchiveError(f"{folder} has no case {case!r}.{did_you_mean(case, known)}")
    events = read_events(folder)[0]
    opened = next((e for e in events if isinstance(e, Opened) and e.case.id == case), None)
    return {
        "opened": None if opened is None else opened.model_dump(mode="json"),
        "events": [e.model_dump(mode="json") for e in events if not isinstance(e, Opened) and e.case == case],
        "replies": [
            {
                "step": c.step,
                "repeat": c.repeat,
                "turn": c.turn,
                "attempt": c.attempt,
                **c.reply.model_dump(mode="json"),
            }
            for c in read_calls(folder)
            if c.case == case
        ],
    }


def print_trace(console: Console, trace: dict[str, Any]) -> None:
    """Print a trace. Replies are shown as plain text: nothing in them is executed."""
    opened = trace["opened"]
    if opened is None:
        console.print("the case was not opened")
        return
    console.print(Text(opened["case"]["title"], style="bold"))
    for truth in opened["truth"]:
        value = "" if truth["value"] is None else f" ({truth['value']:+.3f} ± {truth['se'] or 0:.3f})"
        console.print(Text(f"  truth {truth['readout']}: {truth['label']}{value}"))
    for event in trace["events"]:
        for line in _event_lines(event):
            console.print(Text(line))
    for reply in trace["replies"]:
        console.print(Text(f"reply to {reply['step']} (attempt {reply['attempt']}): {reply['status']}", style="bold"))
        console.print(Text(printable(reply["text"][:SHOWN])))


def _event_lines(event: dict[str, Any]) -> list[str]:
    where = f"repeat {event['repeat']}, " if event["repeat"] else ""
    match event["event"]:
        case "stepped":
            answers = [f"    {a['readout']}: {a['label'] or a['status']} {_value(a)}" for a in event["answers"]]
            return [f"{where}{event['step']}: {event['status']}", *answers]
        case "selected":
            return [f"{where}select: {event['measurement'] or event['reason']}"]
        case "observed":
            seen = event["observation"]
            return [f"{where}observe {seen['measurement']}: {seen['status']} {_value(seen)}"]
        case _:
            return [f"{where}closed: {event['outcome']}"]


def _value(row: dict[str, Any]) -> str:
    return "" if row.get("value") is None else f"{row['value']:+.3f}"


def printable(text: str) -> str:
    """Text without control characters, so that a terminal shows it and does nothing else."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)

"""What every command prints with: consoles, progress, JSON, and the one way to stop. Imports rich when it is used."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from loops.work import Progress

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
TABLE_WIDTH = 130
"""Narrower terminals wrap lines; no column is cut."""


def print_json(value: object) -> None:
    """Print a value as JSON."""
    typer.echo(json.dumps(value, indent=1, ensure_ascii=True, allow_nan=False))


def console(*, stderr: bool = False) -> Console:
    """A console at least as wide as a table."""
    from rich.console import Console

    found = Console(stderr=stderr, soft_wrap=True)
    if found.is_terminal and found.width >= TABLE_WIDTH:
        return found
    return Console(stderr=stderr, width=TABLE_WIDTH, soft_wrap=True)


@contextlib.contextmanager
def progress(shown_on: Console) -> Iterator[Progress]:
    """Progress on a terminal's error stream: cases done, calls made now, calls taken from the archive."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    from loops.work import Progress

    columns = (TextColumn("cases"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Bar(*columns, TimeElapsedColumn(), console=shown_on, transient=True, disable=not shown_on.is_terminal) as bar:
        task = bar.add_task("preparing", total=None)
        calls = {True: 0, False: 0}

        def call(live: bool) -> None:
            calls[live] += 1
            bar.update(task, description=f"{calls[True]} calls made, {calls[False]} from the archive")

        yield Progress(
            prepared=lambda total: bar.update(task, total=total),
            cell=lambda: bar.advance(task),
            call=call,
        )


def stop(message: str, code: int) -> NoReturn:
    """End the program with one message on the error stream."""
    from rich.text import Text

    from loops.trace import printable

    with contextlib.suppress(OSError):  # a closed or full stream cannot be told anything
        console(stderr=True).print(Text.assemble(("vcloop: ", "bold red"), printable(message)))
    sys.exit(code)

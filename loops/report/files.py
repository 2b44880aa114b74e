"""The files of a report: a folder that appears whole or not at all, and data that scripts can read safely."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from evidence.errors import ArchiveError
from evidence.values import canonical_json

MARKER = "report.json"
"""Its presence tells a report from any other folder."""
CONTENTS = frozenset({MARKER, "index.html", "traces.html", "data", "figures"})


def check_out(out: Path, runs: list[Path]) -> Path:
    """The resolved folder of the report. Raises ArchiveError where something else is there, or inside a run."""
    resolved = out.resolve()
    for run in runs:
        if resolved == run or run in resolved.parents:
            raise ArchiveError(f"{out} is inside the run folder {run}; choose another --out")
    if not resolved.exists():
        return resolved
    if not resolved.is_dir():
        raise ArchiveError(f"{out} is a file; choose another --out")
    there = {path.name for path in resolved.iterdir()}
    if there and MARKER not in there:
        raise ArchiveError(f"{out} exists and is not a report; choose another --out")
    if there - CONTENTS:
        names = ", ".join(sorted(there - CONTENTS)[:5])
        raise ArchiveError(
            f"{out} is a report with files of yours in it ({names}); move them away, or choose another --out"
        )
    return resolved


@contextlib.contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """A folder to write into, which takes the place of `out` (an earlier report, or nothing) when all is written."""
    temporary, replaced = (out.with_name(f".{out.name}.{os.getpid()}.{end}") for end in ("tmp", "old"))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        yield temporary
        if out.exists():
            out.rename(replaced)
        try:
            temporary.rename(out)
        except OSError:
            if replaced.exists():
                replaced.rename(out)
            raise
        shutil.rmtree(replaced, ignore_errors=True)
    except OSError as error:
        raise ArchiveError(f"cannot write the report {out}: {error.strerror or error}; choose another --out") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def script(function: str, *values: object) -> bytes:
    """A script that hands plain data to `vcloop.<function>`. ASCII; no character of the data can end a script element.

    Objects may have fixed keys only: a key of `__proto__` would be no key.
    """
    arguments = ",".join(canonical_json(value) for value in values)
    safe = arguments.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return f"vcloop.{function}({safe});\n".encode("ascii")


def marker(version: int, runs: list[str]) -> bytes:
    """The content of report.json."""
    return (json.dumps({"report": version, "runs": runs}, indent=1) + "\n").encode()

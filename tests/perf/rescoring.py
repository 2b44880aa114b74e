"""From archive to scores: calls per second of processor time, beside `inspect score` on a log of the same calls.

    python tests/perf/rescoring.py [--calls 100000] [--samples 300] [--rounds 3]     # make perf runs it

Two archives are generated (report_page.make_archive, SYNTHETIC, three calls a cell) in the real format: one with many
repeats of few cases, and one with one repeat of each case, which opens a case, calibrates and tries its whole menu for
every three calls. Scored is every readout of every stage, with intervals, and the scores are written. inspect_ai (in
.venv-perf) has the first cells of the same archive as samples of its log, with the same messages, figures, replies and
tokens; it reads the log, scores one exact match a sample and writes the log, as `inspect score` does. The sides take
turns, each in a process of its own; imports and generating are not counted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from overhead import INSPECT, least
from report_page import make_archive

from evidence.contracts import Figure
from evidence.journal import call_of
from interpreters.render import chat_messages
from loops.archive import read_blob
from loops.cells import archived_request

CALLS_PER_CELL = 3
REPEATS = {"repeats": 100, "cases": 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--score", type=Path, help="score this archive once, and print seconds a call")
    options = parser.parse_args()
    if options.score:
        print(seconds_per_call(options.score))
        return
    with tempfile.TemporaryDirectory() as folder:
        sides = {}
        for name, repeats in REPEATS.items():
            archive = Path(folder) / name
            n_cases = max(1, options.calls // CALLS_PER_CELL // repeats)
            make_archive(archive, n_cases, name, 0.25, repeats)
            sides[f"vcloop_{name}"] = [sys.executable, __file__, "--score", str(archive)]
        if INSPECT.exists():
            chats = Path(folder) / "chats.json"
            chats.write_text(json.dumps(chats_of(Path(folder) / "cases", options.samples)))
            script = Path(__file__).with_name("inspect_side.py")
            sides["inspect_ai"] = [str(INSPECT), str(script), "score", "--chats", str(chats)]
        best = least(sides, options.rounds)
    shown = {f"{side}_calls_per_core_second": round(1 / seconds) for side, seconds in best.items()}
    if "inspect_ai" in best:
        for name in REPEATS:
            shown[f"vcloop_{name}_to_inspect_ai"] = round(best["inspect_ai"] / best[f"vcloop_{name}"], 1)
    print(json.dumps(shown, indent=1))


def seconds_per_call(archive: Path) -> float:
    """Seconds of processor time for a call."""
    import scipy.special  # noqa: F401 - what choices are worth needs it

    from loops.rescore import rescore

    with (archive / "calls.jsonl").open("rb") as lines:
        n_calls = sum(1 for _ in lines)
    began = time.process_time()
    rescore(archive)
    return (time.process_time() - began) / n_calls


def chats_of(archive: Path, n_cells: int) -> list[list[dict[str, Any]]]:
    """The calls of the first cells of an archive: the messages as they were sent, the reply, its tokens."""
    cells: dict[tuple[str, int], list[dict[str, Any]]] = {}
    with (archive / "calls.jsonl").open("rb") as lines:
        for number, line in enumerate(itertools.islice(lines, n_cells * CALLS_PER_CELL), start=1):
            call = call_of(line, archive, number, [])
            assert call is not None
            request = archived_request(call)
            figures = [part for m in request.messages for part in m.parts if isinstance(part, Figure)]
            blobs = {figure.sha256: read_blob(archive, figure.sha256) for figure in figures}
            cells.setdefault((call.case, call.repeat), []).append(
                {
                    "messages": chat_messages(request, blobs, max_figure_bytes=1 << 20),
                    "reply": call.reply.text,
                    "prompt_tokens": call.reply.usage.prompt_tokens,
                    "completion_tokens": call.reply.usage.completion_tokens,
                }
            )
    return list(cells.values())


if __name__ == "__main__":
    main()

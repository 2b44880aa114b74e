"""Runs of the tracks: each item of each repeat goes through a prompting strategy, and its last reply is read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.archived import read_answer, read_bench, rescore_bench
from benchmarks.config import BenchConfig, LoadedBench
from benchmarks.images import read_image
from benchmarks.prompts import PROMPT_VERSION, figures_of, puzzle, request
from benchmarks.records import Posed
from benchmarks.strategies import STRATEGIES, Ask, Heard, follow
from benchmarks.tracks import show
from evidence.contracts import Reply, Request
from evidence.errors import DataError
from interpreters.reply import Parsed
from interpreters.secrets import collect_secrets
from loops.archive import TRANSPORT_FAULTS
from loops.caller import Asked, Caller, Place, stepped
from loops.records import started
from loops.work import Cell, Work


class Answering(Work):
    """One run over an item file."""

    def __init__(self, loaded: LoadedBench, folder: Path):
        config, interpreter = loaded.config, loaded.interpreter
        items = loaded.items.items
        self.shows_figures = config.track != "no_image" and "figure" in interpreter.modalities
        record = started(
            config,
            interpreter,
            collect_secrets(interpreter),
            kind="bench",
            setting=f"static {config.track}",
            title=config.title or loaded.items_file,
            synthetic=any(item.synthetic for item in items),
            case_file=loaded.items_file,
            case_file_sha256=loaded.items.sha256,
            data={"prompts": str(PROMPT_VERSION), "figures": "shown" if self.shows_figures else "not shown"},
            cases=tuple(item.id for item in items),
        )
        super().__init__(config, interpreter, record, folder)
        self.bench: BenchConfig = config
        self.set = loaded.items
        self.items = {item.id: item for item in items}
        self.figures = {item.id: figures_of(item, loaded.items.images) for item in items}

    def prepare(self) -> None:
        """Items, images and track were checked when the config was loaded."""

    def open(self) -> list[Cell]:
        """Write items and figures into the archive; the cells without an answer."""
        for name, image in self.set.images.items():
            found, data = read_image(self.set.folder, name)
            if found != image:
                raise DataError(f"image {name!r} has changed since it was checked; start again")
            self.archive.add_blob(data)
        for item in self.items.values():
            self.archive.add_event(Posed(item=item, figures=self.figures[item.id]))
        done = {(a.case, a.repeat) for a in read_bench(self.folder, self.record).answers}
        cells = [(item, repeat) for item in self.items for repeat in range(self.bench.repeats)]
        return [cell for cell in cells if cell not in done]

    def worker(self, caller: Caller) -> Callable[[str, int], Awaitable[str]]:
        """Answer one item."""

        async def one(item_id: str, repeat: int) -> str:
            item = self.items[item_id]
            shown = show(item, self.bench.track, self.bench.options, self.bench.seed, repeat)
            figures = self.figures[item_id] if self.shows_figures else ()
            made: list[Asked] = []

            async def ask(number: int, what: Ask) -> Heard:
                place = Place(item_id, repeat, what.step, number)
                asked = await caller.ask(place, request(what, figures), read=read_any)
                self.archive.add_event(stepped(place, asked))
                made.append(asked)
                return Heard(asked.parsed.status, asked.reply.text)

            heard = await follow(STRATEGIES[self.bench.strategy], puzzle(item, shown), ask)
            if heard.status in TRANSPORT_FAULTS:
                return f"{heard.status}: {made[-1].reply.error}"
            self.archive.add_event(read_answer(item, shown, repeat, heard, len(made)))
            return ""

        return one

    def score(self) -> dict[str, Any]:
        """Write the scores."""
        return rescore_bench(self.folder)


def read_any(request: Request, reply: Reply) -> Parsed:
    """Any text is a reply that can be read; what it says is read at the end of the item."""
    return Parsed(status=reply.status)

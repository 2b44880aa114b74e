"""Benchmark archives read back, and rescored from themselves alone: no model, no network, no item file, no image."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.config import BenchConfig
from benchmarks.items import Item
from benchmarks.records import BENCH_EVENT, Answered, Judged, Posed, Response, Rewritten, Wrong
from benchmarks.scores import answer_rows, choice_summary
from benchmarks.strategies import Heard
from benchmarks.tracks import Shortcut, Shown, shortcuts
from evidence.errors import ArchiveError, ConfigError
from evidence.files import write_atomic
from evidence.values import canonical_json
from interpreters.letters import read_letter
from loops.archive import RunRecord, Stepped, read_calls, read_events_as, read_run
from loops.config import CommonConfig
from loops.usage import calls_of

C = TypeVar("C", bound=CommonConfig)


@dataclass
class Archived:
    """The events of a benchmark run by what they are; of events for the same place the last one counts."""

    run: RunRecord
    posed: dict[str, Posed] = field(default_factory=dict)
    steps: list[Stepped] = field(default_factory=list)
    by_cell: dict[tuple[str, int], Answered] = field(default_factory=dict)
    responses: dict[tuple[str, int], Response] = field(default_factory=dict)
    judged: dict[tuple[str, int], Judged] = field(default_factory=dict)
    rewritten: dict[tuple[str, int], Rewritten] = field(default_factory=dict)
    wrong: list[Wrong] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)

    @property
    def items(self) -> dict[str, Item]:
        """The items by id, in the order of the run. Raises ArchiveError where one was lost."""
        lost = [case for case in self.run.cases if case not in self.posed]
        if lost:
            raise ArchiveError(f"run {self.run.name}: the archive has lost item {lost[0]!r}; resume the run")
        return {case: self.posed[case].item for case in self.run.cases}

    @property
    def answers(self) -> list[Answered]:
        """The answers, one a cell."""
        return list(self.by_cell.values())


def read_bench(folder: Path, run: RunRecord | None = None) -> Archived:
    """Read a benchmark run of any kind. Raises ArchiveError where it is none or names an item it does not have."""
    record = run or read_run(folder, None)
    if record.kind == "loop":
        raise ArchiveError(f"{folder} is a run of the loop, not of a benchmark; see vcloop --help")
    events, damaged = read_events_as(BENCH_EVENT, folder)
    found = Archived(record, damaged=damaged)
    steps: dict[tuple[str, int, str, int], Stepped] = {}
    for event in events:
        case = event.item.id if isinstance(event, Posed) else event.case
        if case not in record.cases:
            raise ArchiveError(f"{folder / 'events.jsonl'} names {case!r}, which is no item of run.json")
        match event:
            case Posed():
                found.posed[event.item.id] = event
            case Stepped():
                steps[event.case, event.repeat, event.step, event.turn] = event
            case Answered():
                found.by_cell[event.case, event.repeat] = event
            case Response():
                found.responses[event.case, event.repeat] = event
            case Judged():
                found.judged[event.case, event.repeat] = event
            case Rewritten():
                found.rewritten[event.case, event.group] = event
            case Wrong():
                found.wrong.append(event)
    found.steps = list(steps.values())
    return found


def archived_config(run: RunRecord, kind: type[C]) -> C:
    """The resolved config of a run. Raises ArchiveError where this version cannot read it."""
    try:
        return kind.model_validate_json(json.dumps(run.config))
    except ValueError as error:
        raise ArchiveError(f"run {run.name}: the archived config cannot be read: {error}") from error


def read_answer(item: Item, shown: Shown, repeat: int, heard: Heard, calls: int) -> Answered:
    """The end of an item from its last reply: by the one letter parser, or as it is in the open track."""
    base = Answered(case=item.id, repeat=repeat, shown=shown, status=heard.status, calls=calls)
    if heard.status != "ok":
        return base
    if not shown.order:
        return base.model_copy(update={"status": "response", "text": heard.text})
    reading = read_letter(heard.text, shown.letters, shown.texts(item))
    found = {"status": reading.status, "letter": reading.letter, "option": shown.chosen(reading.letter)}
    return base.model_copy(update={**found, "rule": reading.rule, "reason": reading.reason})


def rescore_bench(folder: Path, *, reparse: bool = False) -> dict[str, Any]:
    """Rewrite `scores/` of a run over items and return its summary. `reparse` reads the archived replies again."""
    found = read_bench(folder, read_run(folder, "bench"))
    config = archived_config(found.run, BenchConfig)
    items = found.items
    answers = _reparsed(folder, items, found.answers) if reparse else found.answers
    rows = answer_rows(items, answers)
    expected = len(items) * config.repeats
    summary: dict[str, Any] = {
        **header(found),
        "track": config.track,
        "strategy": config.strategy,
        "options": config.options,
        "shows_figures": found.run.data["figures"] == "shown",
        "repeats": config.repeats,
        "n_items": len(items),
        "n_cells": expected,
        "n_cells_open": expected - len(rows),
        "calls": calls_of(found.steps, config.interpreter.prices),
    }
    if config.track == "open":
        texts = sum(row["status"] == "response" for row in rows)
        summary["responses"] = {"n": len(rows), "with_text": texts}
    else:
        summary.update(choice_summary(rows, config.seed))
    return write_scores(folder, summary, {"items.jsonl": rows})


def shortcut_items(folder: Path) -> tuple[list[Item], list[Shortcut]]:
    """The items that the text-only filter keeps, and how often each was right. Raises ConfigError for another run."""
    found = read_bench(folder, read_run(folder, "bench"))
    config = archived_config(found.run, BenchConfig)
    if (config.track, config.options) != ("no_image", "shuffled"):
        raise ConfigError(
            f"{folder} is a run of the track {config.track!r} with options {config.options!r}; the shortcut filter "
            "takes the track 'no_image' with options 'shuffled'"
        )
    items = found.items
    counts = shortcuts(answer_rows(items, found.answers))
    return [items[one.item] for one in counts if not one.discard], counts


def header(found: Archived) -> dict[str, Any]:
    """What every summary of a benchmark run begins with."""
    run = found.run
    return {
        "format": 1,
        "kind": run.kind,
        "run": run.name,
        "title": run.title,
        "synthetic": run.synthetic,
        "items_sha256": run.case_file_sha256,
        "interpreter": run.interpreter,
        "damaged_lines": found.damaged,
    }


def write_scores(
    folder: Path, summary: dict[str, Any], tables: Mapping[str, Iterable[Mapping[str, Any]]]
) -> dict[str, Any]:
    """Write the score files of a run, each whole; returns the summary."""
    for name, rows in tables.items():
        lines = "".join(canonical_json(row) + "\n" for row in rows)
        write_atomic(folder / "scores" / name, lines.encode(), error=ArchiveError)
    text = json.dumps(summary, indent=1, sort_keys=True, ensure_ascii=True, allow_nan=False)
    write_atomic(folder / "scores" / "summary.json", (text + "\n").encode(), error=ArchiveError)
    return summary


def _reparsed(folder: Path, items: Mapping[str, Item], answers: Iterable[Answered]) -> list[Answered]:
    """The answers read again from the last reply of each cell, as it stands in calls.jsonl."""
    last: dict[tuple[str, int], Heard] = {}
    for call in read_calls(folder).records:
        if call.step == "answer":
            last[call.case, call.repeat] = Heard(call.reply.status, call.reply.text)
    return [
        read_answer(items[a.case], a.shown, a.repeat, last[a.case, a.repeat], a.calls)
        if (a.case, a.repeat) in last and a.status in ("letter", "unparsed")
        else a
        for a in answers
    ]

"""Runs that turn low-scored responses into distractors: an item file, and the trace of each option."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.archived import Archived, archived_config, header, read_bench, write_scores
from benchmarks.config import MineConfig
from benchmarks.distractors import (
    DISTRACTORS,
    REWRITE_VERSION,
    WORST,
    ErrorGroup,
    Trace,
    WrongResponse,
    assemble,
    pool,
    read_rewrite,
    rewrite_request,
    screen,
)
from benchmarks.items import Item
from benchmarks.records import Posed, Rewritten, Wrong
from evidence.contracts import Interpreter, Reply, Request
from evidence.errors import ArchiveError
from evidence.values import sha256_of
from interpreters.reply import Parsed
from interpreters.secrets import collect_secrets
from loops.archive import TRANSPORT_FAULTS, read_run
from loops.caller import Caller, Place, stepped
from loops.records import started
from loops.usage import calls_of
from loops.work import Cell, Work


class Mining(Work):
    """One rewriting model over the low-scored responses of one or more judge runs on the same items."""

    def __init__(self, config: MineConfig, interpreter: Interpreter, judge_runs: Sequence[Path], folder: Path):
        judges = [read_bench(run, read_run(run, "judge")) for run in judge_runs]
        first = judges[0].run
        for run, judge in zip(judge_runs, judges, strict=True):
            if judge.run.case_file_sha256 != first.case_file_sha256:
                raise ArchiveError(f"{run} judges other items than {judge_runs[0]}; mine one item set at a time")
        _check_once(judge_runs, judges)
        self.items = judges[0].items
        self.wrong = [wrong for judge in judges for wrong in _low_scored(judge)]
        record = started(
            config,
            interpreter,
            collect_secrets(interpreter),
            kind="mine",
            setting="static distractors",
            title=f"distractors from {', '.join(judge.run.name for judge in judges)}",
            synthetic=first.synthetic,
            case_file=first.case_file,
            case_file_sha256=first.case_file_sha256,
            data={
                "responses": sha256_of({"wrong": [w.model_dump(mode="json") for w in self.wrong]}),
                "rewrite prompt": str(REWRITE_VERSION),
            },
            cases=first.cases,
        )
        super().__init__(config, interpreter, record, folder)
        self.miner: MineConfig = config
        self.groups = _groups(self.items, self.wrong, config.candidates)

    def prepare(self) -> None:
        """Everything was checked when the judge runs were read."""

    def open(self) -> list[Cell]:
        """Write items and wrong responses into the archive; the items that still want distractors."""
        for item in self.items.values():
            self.archive.add_event(Posed(item=item, figures=()))
        for wrong in self.wrong:
            self.archive.add_event(Wrong(case=wrong.item, response=wrong))
        found = read_bench(self.folder, self.record)
        return [(case, 0) for case in self.items if not _complete(found, case, self.groups[case])]

    def worker(self, caller: Caller) -> Callable[[str, int], Awaitable[str]]:
        """Rewrite the error groups of one item, the most recurrent first, until five pass the screen."""

        async def one(case: str, repeat: int) -> str:
            item = self.items[case]
            kept: list[str] = []

            def read(request: Request, reply: Reply) -> Parsed:
                problem = _problem(reply, item, kept)
                invalid = reply.status == "ok" and problem
                return Parsed(status="invalid" if invalid else reply.status, problems=(problem,) if problem else ())

            for number, group in enumerate(self.groups[case]):
                place = Place(case, repeat, "rewrite", number)
                asked = await caller.ask(place, rewrite_request(item, group), read=read)
                self.archive.add_event(stepped(place, asked))
                if asked.reply.status in TRANSPORT_FAULTS:
                    return f"{asked.reply.status}: {asked.reply.error}"
                problem = _problem(asked.reply, item, kept)
                text = "" if problem else read_rewrite(asked.reply.text) or ""
                self.archive.add_event(Rewritten(case=case, group=number, text=text, problem=problem))
                kept += [text] if text else []
                if len(kept) == DISTRACTORS:
                    break
            return ""

        return one

    def score(self) -> dict[str, Any]:
        """Write the items and the traces."""
        return rescore_mining(self.folder)


def rescore_mining(folder: Path) -> dict[str, Any]:
    """Rewrite `scores/` of a mining run: items.jsonl (whole six-option items), trace.jsonl, summary.json."""
    found = read_bench(folder, read_run(folder, "mine"))
    config = archived_config(found.run, MineConfig)
    items = found.items
    groups = _groups(items, [w.response for w in found.wrong], config.candidates)
    made: list[Item] = []
    traces: list[Trace] = []
    short: dict[str, int] = {}
    for case, item in items.items():
        tried = [found.rewritten[case, n] for n in range(len(groups[case])) if (case, n) in found.rewritten]
        chosen = [(r.text, groups[case][r.group]) for r in tried if r.text][:DISTRACTORS]
        if len(chosen) < DISTRACTORS:
            short[case] = len(chosen)
            continue
        whole, of_item = assemble(item, chosen, config.seed)
        made.append(whole)
        traces += of_item
    summary = {
        **header(found),
        "n_items": len(items),
        "n_complete": len(made),
        "short_of_distractors": short,
        "n_wrong_responses": len(found.wrong),
        "rewrites": dict(
            sorted(Counter("kept" if r.text else "screened out" for r in found.rewritten.values()).items())
        ),
        "positions": dict(sorted(Counter(item.answer for item in made).items())),
        "calls": calls_of(found.steps, config.interpreter.prices),
    }
    tables = {
        "items.jsonl": [item.model_dump(mode="json", exclude_defaults=True) for item in made],
        "trace.jsonl": [trace.model_dump(mode="json") for trace in traces],
    }
    return write_scores(folder, summary, tables)


def _check_once(judge_runs: Sequence[Path], judges: Sequence[Archived]) -> None:
    """Responses that are given twice would count as errors that were made twice. Raises ArchiveError."""
    seen: dict[tuple[str, ...], Path] = {}
    for folder, judge in zip(judge_runs, judges, strict=True):
        key = (judge.run.data["responses"], *sorted({response.run for response in judge.responses.values()}))
        if key in seen:
            raise ArchiveError(f"{folder} judges the same responses as {seen[key]}; give one judge run for each model")
        seen[key] = folder


def _low_scored(judge: Archived) -> list[WrongResponse]:
    """The responses of one judge run with a low overall score, in the order of items and repeats."""
    found = []
    for (case, repeat), judged in sorted(judge.judged.items()):
        response = judge.responses[case, repeat]
        overall = judged.judgment.overall if judged.judgment is not None else None
        if overall is not None and overall <= WORST:
            found.append(
                WrongResponse(
                    item=case,
                    repeat=repeat,
                    run=response.run,
                    judge_run=judge.run.name,
                    model=response.model,
                    overall=overall,
                    response=response.text,
                    response_sha256=response.sha256,
                )
            )
    return found


def _groups(items: Mapping[str, Item], wrong: Sequence[WrongResponse], candidates: int) -> dict[str, list[ErrorGroup]]:
    of_item: dict[str, list[WrongResponse]] = defaultdict(list)
    for response in wrong:
        of_item[response.item].append(response)
    return {case: pool(item, of_item[case])[:candidates] for case, item in items.items()}


def _complete(found: Archived, case: str, groups: Sequence[ErrorGroup]) -> bool:
    tried = [rewritten for (item, _), rewritten in found.rewritten.items() if item == case]
    return len(tried) >= len(groups) or sum(bool(r.text) for r in tried) >= DISTRACTORS


def _problem(reply: Reply, item: Item, kept: Sequence[str]) -> str:
    """Why a rewriting reply gives no distractor; "" if it does."""
    if reply.status != "ok":
        return f"{reply.status} {reply.error}".strip()
    text = read_rewrite(reply.text)
    if text is None:
        return "expected the rewritten text between <option> and </option>"
    return screen(text, item, kept)

"""Runs of a judge over the responses of an open run, and their scores. Failures are kept apart and never scored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.archived import archived_config, header, read_bench, write_scores
from benchmarks.config import BenchConfig, JudgeConfig
from benchmarks.items import Item
from benchmarks.judge_prompt import JUDGE_VERSION, Reading, judge_request, read_judgment
from benchmarks.records import Judged, Response
from benchmarks.rubrics import L3Rubric, rubric_of
from benchmarks.scores import judge_rows, judge_summary
from evidence.contracts import Interpreter, Reply, Request
from evidence.errors import ArchiveError, ConfigError
from evidence.values import sha256_of
from interpreters.reply import Parsed
from interpreters.secrets import collect_secrets
from loops.archive import TRANSPORT_FAULTS, read_blob, read_calls, read_run
from loops.caller import Caller, Place, stepped
from loops.records import started
from loops.usage import calls_of
from loops.work import Cell, Work


class Judging(Work):
    """One judge over the responses of one finished open run."""

    def __init__(self, config: JudgeConfig, interpreter: Interpreter, run: Path, folder: Path):
        self.source = read_bench(run, read_run(run, "bench"))
        if self.source.run.status != "finished":
            raise ArchiveError(
                f"{run} is {self.source.run.status}; finish it (vcloop bench run --resume) and judge then"
            )
        if archived_config(self.source.run, BenchConfig).track != "open":
            raise ConfigError(f"{run} has no open responses to judge; run the track 'open'")
        self.items = self.source.items
        for item in self.items.values():
            rubric_of(item, config.l3)
        self.responses = {(r.case, r.repeat): r for r in map(self._response, self.source.answers)}
        self.shows_figures = "figure" in interpreter.modalities
        record = started(
            config,
            interpreter,
            collect_secrets(interpreter),
            kind="judge",
            setting="static judge",
            title=f"judge of {self.source.run.name}: {self.source.run.title}",
            synthetic=self.source.run.synthetic,
            case_file=self.source.run.name,
            case_file_sha256=self.source.run.case_file_sha256,
            data={
                "responses": sha256_of({f"{case} {n}": r.sha256 for (case, n), r in self.responses.items()}),
                "judge prompt": str(JUDGE_VERSION),
                "figures": "shown" if self.shows_figures else "not shown",
            },
            cases=self.source.run.cases,
        )
        super().__init__(config, interpreter, record, folder)
        self.judge: JudgeConfig = config
        self.run_folder = run

    def _response(self, answer: Any) -> Response:
        asked = self.source.run.interpreter
        return Response(
            case=answer.case,
            repeat=answer.repeat,
            run=self.source.run.name,
            model=str(asked.get("model") or asked.get("name")),
            status=answer.status,
            text=answer.text,
            sha256=sha256_of(answer.text),
        )

    def prepare(self) -> None:
        """Everything was checked when the run was read."""

    def open(self) -> list[Cell]:
        """Write items, figures and responses into the archive; the responses that are not judged."""
        for case in self.items:
            posed = self.source.posed[case]
            for figure in posed.figures:
                self.archive.add_blob(read_blob(self.run_folder, figure.sha256))
            self.archive.add_event(posed)
        done = read_bench(self.folder, self.record).judged
        cells: list[Cell] = []
        for cell, response in self.responses.items():
            self.archive.add_event(response)
            if response.status != "response":
                words = (f"the candidate gave none: {response.status}",)
                self.archive.add_event(Judged(case=cell[0], repeat=cell[1], status="no response", problems=words))
            elif cell not in done:
                cells.append(cell)
        return cells

    def worker(self, caller: Caller) -> Callable[[str, int], Awaitable[str]]:
        """Judge one response."""

        async def one(case: str, repeat: int) -> str:
            item, response = self.items[case], self.responses[case, repeat]
            rubric = rubric_of(item, self.judge.l3)
            figures = self.source.posed[case].figures if self.shows_figures else ()
            readings: list[Reading] = []

            def read(request: Request, reply: Reply) -> Parsed:
                if reply.status != "ok":
                    readings.append(Reading(None, (f"the judge's reply: {reply.status} {reply.error}".strip(),)))
                    return Parsed(status=reply.status)
                readings.append(read_judgment(reply.text, rubric))
                problems = readings[-1].problems
                return Parsed(status="invalid" if problems else "ok", problems=problems)

            place = Place(case, repeat, "judge", 0)
            asked = await caller.ask(place, judge_request(item, rubric, response.text, figures), read=read)
            self.archive.add_event(stepped(place, asked))
            if asked.reply.status in TRANSPORT_FAULTS:
                return f"{asked.reply.status}: {asked.reply.error}"
            self.archive.add_event(_judged(case, repeat, readings))
            return ""

        return one

    def score(self) -> dict[str, Any]:
        """Write the scores."""
        return rescore_judge(self.folder)


def rescore_judge(folder: Path, *, reparse: bool = False) -> dict[str, Any]:
    """Rewrite `scores/` of a judge's run and return its summary. `reparse` reads the archived replies again."""
    found = read_bench(folder, read_run(folder, "judge"))
    config = archived_config(found.run, JudgeConfig)
    items = found.items
    judged = list(found.judged.values())
    if reparse:
        judged = _reparsed(folder, items, judged, config.l3)
    rows = judge_rows(items, judged, config.l3)
    failures = [
        {"item": j.case, "repeat": j.repeat, "status": j.status, "problems": j.problems}
        for j in sorted(judged, key=lambda j: (j.case, j.repeat))
        if j.judgment is None
    ]
    asked = sorted({(r.run, r.model) for r in found.responses.values()})
    summary = {
        **header(found),
        "judged": [{"run": run, "model": model} for run, model in asked],
        "l3_rubric": config.l3,
        "judge_prompt": found.run.data["judge prompt"],
        "shows_figures": found.run.data["figures"] == "shown",
        "n_responses": len(found.responses),
        "n_cells_open": len(found.responses) - len(judged),
        "calls": calls_of(found.steps, config.interpreter.prices),
        **judge_summary(rows, Counter(j.status for j in judged), config.seed, config.max_unscored),
    }
    return write_scores(folder, summary, {"items.jsonl": rows, "failures.jsonl": failures})


def _judged(case: str, repeat: int, readings: Sequence[Reading]) -> Judged:
    """What came of all attempts at one response: the first whole judgment, else the last one with dimensions."""
    whole = next((r for r in readings if r.judgment is not None and not r.problems), None)
    partial = next((r for r in reversed(readings) if r.judgment is not None), None)
    best = whole or partial or readings[-1]
    status = "scored" if whole else "dimensions_only" if partial else "failed"
    return Judged.model_validate(
        {"case": case, "repeat": repeat, "status": status, "judgment": best.judgment, "problems": best.problems}
    )


def _reparsed(folder: Path, items: Mapping[str, Item], judged: Iterable[Judged], l3: L3Rubric) -> list[Judged]:
    readings: dict[Cell, list[Reading]] = {}
    for call in read_calls(folder).records:
        if call.step == "judge" and call.reply.status == "ok":
            rubric = rubric_of(items[call.case], l3)
            readings.setdefault((call.case, call.repeat), []).append(read_judgment(call.reply.text, rubric))
    return [
        _judged(j.case, j.repeat, readings[j.case, j.repeat]) if (j.case, j.repeat) in readings else j for j in judged
    ]

"""Runs that are to be compared: read from their archives, grouped by pilot, refused where they are no pair."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evidence.errors import ConfigError, did_you_mean
from loops.archive import Opened, RunRecord, read_run
from loops.cells import Cells, archived_config
from loops.config import RunConfig
from loops.rescore import Scored, Scoring, score_cells
from loops.run_events import OpenedCases

MAY_VARY = ("simulator", "adapter", "policy", "modalities", "budget", "review", "repairs")
"""What decides what models are shown and asked. Runs that differ in it are compared only if that is asked for."""

_OPENED: dict[str, Callable[[Opened], Any]] = {
    "readouts, thresholds or menu": lambda opened: opened.case,
    "hidden outcome": lambda opened: opened.truth,
    "observations (another seed, or other data)": lambda opened: opened.sealed,
    "simulator predictions": lambda opened: opened.adapter_inputs,
}


class Contender(NamedTuple):
    """One run of a pilot. `label` is its name where that is its own among the runs compared, else its folder.

    `finished` are the cases with all their repeats.
    """

    label: str
    folder: Path
    run: RunRecord
    config: RunConfig
    finished: frozenset[str]
    events: OpenedCases
    scored: Scored


class Pilot(NamedTuple):
    """Runs on the same case file, the cases that all of them finished, in its order."""

    contenders: tuple[Contender, ...]
    cases: tuple[str, ...]


def read_pilots(folders: Sequence[Path], *, vary: Sequence[str] = (), finished_only: bool = False) -> list[Pilot]:
    """Read runs and group them by setting and case file, in the order given.

    vary: keys of MAY_VARY in which the runs of a pilot may differ. finished_only: compare what all have finished.
    Raises ConfigError that lists everything that makes runs not comparable, and ArchiveError for an unreadable one.
    """
    unknown = [key for key in vary if key not in MAY_VARY]
    if unknown:
        raise ConfigError(f"--vary: no key {unknown[0]!r}.{did_you_mean(unknown[0], MAY_VARY)}")
    if not folders:
        raise ConfigError("no loop run is given; compare static runs with vcloop bench compare")
    twice = [str(f) for n, f in enumerate(folders) if f.resolve() in {other.resolve() for other in folders[:n]}]
    if twice:
        raise ConfigError(f"{twice[0]} is given twice; a run is not compared with itself")
    pilots: dict[tuple[str, str], list[Contender]] = defaultdict(list)
    for contender in read_contenders(folders):
        pilots[contender.run.setting, contender.run.case_file_sha256].append(contender)
    problems = [*_alone(pilots)]
    for group in pilots.values():
        for first, other in itertools.pairwise(group):
            problems += _differences(first, other, vary)
        problems += [p for c in group for p in _open(c)] if not finished_only else []
    found = [_pilot(group) for group in pilots.values()]
    problems += [
        f"{', '.join(c.label for c in pilot.contenders)}: no case is finished in all of them"
        for pilot in found
        if finished_only and not pilot.cases
    ]
    if problems:
        raise ConfigError("these runs cannot be compared:\n  " + "\n  ".join(problems))
    return found


def read_contenders(folders: Sequence[Path]) -> Iterator[Contender]:
    """Read runs from their archives, in the order given. Raises ArchiveError."""
    records = [read_run(folder) for folder in folders]
    names = [record.name for record in records]
    for folder, record in zip(folders, records, strict=True):
        config = archived_config(record, folder)
        label = record.name if names.count(record.name) == 1 else str(folder)
        cells = Cells(folder, record, config)
        scored = score_cells(Scoring(record, config, cells), cells)
        done = scored.columns.done
        finished = frozenset(case for case in record.cases if done[case] == config.repeats)
        yield Contender(label, folder, record, config, finished, cells.events, scored)


def _pilot(group: Sequence[Contender]) -> Pilot:
    done = frozenset.intersection(*(c.finished for c in group))
    return Pilot(tuple(group), tuple(case for case in group[0].run.cases if case in done))


def _alone(pilots: Mapping[tuple[str, str], Sequence[Contender]]) -> Iterator[str]:
    """A run whose pilot has no other run, and why the runs of its setting are not of its pilot."""
    for (setting, sha256), group in pilots.items():
        if len(group) > 1:
            continue
        others = [c for (s, h), g in pilots.items() if s == setting and h != sha256 for c in g]
        why = f"no other run of the setting {setting!r} is given"
        if others:
            listed = ", ".join(f"{c.label} has {_file(c)}" for c in others)
            why = f"other cases: it has {_file(group[0])}, {listed}; run all of them on one case file"
        yield f"{group[0].label}: {why}"


def _file(contender: Contender) -> str:
    return f"{contender.run.case_file} ({contender.run.case_file_sha256[:12]})"


def _differences(first: Contender, other: Contender, vary: Sequence[str]) -> Iterator[str]:
    """Why two runs on one case file are no pair. What was shown or measured must be the same."""
    who = f"{first.label} and {other.label}"
    for key, (a, b) in {
        "data": (first.run.data, other.run.data),
        "cases": (first.run.cases, other.run.cases),
        "seed": (first.config.seed, other.config.seed),
    }.items():
        if a != b:
            yield f"{who}: other {key}: {_short(a)} and {_short(b)}; run both on the same"
    for key in MAY_VARY:
        a, b = _evidence(first, key), _evidence(other, key)
        if a != b and key not in vary:
            yield f"{who}: other {key}: {_short(a)} and {_short(b)}; run both with one, or compare with --vary {key}"
    for what, unlike in _opened_otherwise(first, other).items():
        if unlike and not (what == "simulator predictions" and "simulator" in vary):
            yield f"{who}: other {what} in {len(unlike)} case(s), first {unlike[0]!r}; run both on the same"


def _opened_otherwise(first: Contender, other: Contender) -> dict[str, list[str]]:
    """The cases that two runs opened with something else, by what that is."""
    unlike: dict[str, list[str]] = {what: [] for what in _OPENED}
    with first.events.index.open() as a, other.events.index.open() as b:
        for case in first.run.cases:
            was, now = first.events.opened(a, case), other.events.opened(b, case)
            for what, part in _OPENED.items():
                if was is not None and now is not None and part(was) != part(now):
                    unlike[what].append(case)
    return unlike


def _evidence(contender: Contender, key: str) -> Any:
    found = contender.config.model_dump(mode="json")[key]
    return [found, contender.run.simulator] if key == "simulator" else found


def _open(contender: Contender) -> Iterator[str]:
    summary = contender.scored.summary
    if summary["n_cells_open"]:
        yield (
            f"{contender.label}: {summary['n_cells_open']} of {summary['n_cells']} cells (case and repeat) are open; "
            "finish it with vcloop run CONFIG --resume, or compare what all have with --finished-only"
        )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else text[:117] + "..."

"""What settings on programs and held-out pairs share: the frozen part, thresholds, cases, observation and truth.

A setting says which conditions are known, what a pair's effect on every program is in a part of the cells, and shows
evidence in its own words; `ProgramSetting` makes cases, observations, truths and responses of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from evidence.case_files import frozen_part
from evidence.cell_split import PartName
from evidence.conditions import Condition
from evidence.contracts import (
    Case,
    CaseFile,
    Measurement,
    Observation,
    Observed,
    Perturbation,
    Readout,
    Response,
    Table,
    Truth,
)
from evidence.errors import ConfigError, ContractError, DataError
from evidence.programs import Effect, Programs, Scores
from evidence.values import Value

Z = 1.96


class ProgramFrozen(Value):
    """What every case file on programs fixes.

    held_out: ids of pairs that no simulator may have trained on. thresholds: program -> class threshold.
    split: condition -> part -> number of cells. rules: how it was all made, in words.
    """

    programs: Programs
    thresholds: dict[str, float]
    held_out: tuple[str, ...]
    split: dict[str, dict[str, int]]
    rules: dict[str, str]

    @property
    def pairs(self) -> tuple[Condition, ...]:
        """The held-out pairs."""
        return tuple(Condition(tuple(name.split("+"))) for name in self.held_out)


F = TypeVar("F", bound=ProgramFrozen)


class Change(NamedTuple):
    """What happens to a program's mean score, in log1p units, and its standard error."""

    value: float
    se: float


def thresholds(programs: Programs, control: Scores, per_cell: float) -> dict[str, float]:
    """Program -> class threshold: what stays below it in 95 % of repeats if nothing happens.

    control: scores of training control cells. per_cell: the sum of 1 / n over the groups of cells compared.
    """
    spread = np.sqrt(control.var * per_cell)
    return {p.id: round(Z * float(s), 4) for p, s in zip(programs.programs, spread, strict=True)}


def perturbation_of(condition: Condition, action: str = "") -> Perturbation:
    """The perturbation of a condition of the data."""
    targets = condition.targets
    return Perturbation(id=condition.id, name=" + ".join(targets), targets=targets, action=action)


def make_case(perturbation: Perturbation, title: str, readouts: tuple[Readout, ...], measure: str) -> Case:
    """A case with one menu entry a readout. measure: the entry in words, `{}` for the readout's id."""
    menu = tuple(
        Measurement(id=f"measure_{r.id}", name=f"Measure {r.name}", description=measure.format(r.id), readout=r.id)
        for r in readouts
    )
    return Case(id=perturbation.id, title=title, perturbation=perturbation, readouts=readouts, menu=menu)


def read_program_frozen(case_file: CaseFile, kind: type[F], action: str = "") -> F:
    """The frozen part, checked against the cases. Raises ConfigError naming field or case."""
    frozen = frozen_part(case_file, kind)
    expected = {c.id: perturbation_of(c, action) for c in frozen.pairs}
    problems = [problem for case in case_file.cases for problem in _case_problems(case, frozen, expected)]
    if problems:
        raise ConfigError(f"case file {case_file.title!r}: " + "; ".join(problems))
    return frozen


def check_data(case_file: CaseFile, sha256: str) -> None:
    """Raise DataError unless this is the data that the case file was frozen on."""
    name, expected = next(iter(case_file.data.items()), ("", "nothing"))
    if sha256 != expected:
        raise DataError(
            f"expected the data {name!r} that the case file {case_file.title!r} was frozen on, sha256 {expected}, "
            f"got {sha256}. Use that data (`vcloop data`), or freeze a case file on this one"
        )


def named(programs: Programs, effect: Effect) -> dict[str, Change]:
    """An effect by program."""
    numbers = zip(programs.programs, effect.mean, effect.se, strict=True)
    return {p.id: Change(float(mean), float(se)) for p, mean, se in numbers}


def program_table(
    case: Case, programs: Programs, n_genes: int, column: str, values: Mapping[str, str | float]
) -> Table:
    """The case's readouts with their strongest genes, one column of the setting's own, and the thresholds."""
    known = {p.id: ", ".join(p.genes[:n_genes]) for p in programs.programs}
    rows = tuple((r.id, known[r.id], values[r.id], r.threshold) for r in case.readouts)
    return Table(name="programs", columns=("readout", "strongest genes", column, "threshold"), rows=rows)


@dataclass(frozen=True, eq=False)
class ProgramSetting(ABC, Generic[F]):
    """A setting on held-out pairs, opened on a case file. A subclass says what is known and what pairs do."""

    case_file: CaseFile
    frozen: F

    def cases(self) -> tuple[Case, ...]:
        """The held-out pairs, in the order of the case file."""
        return self.case_file.cases

    def observe(self, case: Case, measurement: Measurement, seed: int) -> Observed:
        """One program in the pair's reserved cells. The seed changes nothing: the cells are frozen."""
        if measurement not in case.menu or measurement.readout is None:
            raise ContractError(f"measurement {measurement.id!r} is not on the menu", case=case.id, step="observe")
        pair = Condition(case.perturbation.targets)
        found = self._changes(pair, "reserved")[measurement.readout]
        observation = Observation(
            measurement=measurement.id,
            readout=measurement.readout,
            value=found.value,
            se=found.se,
            n_cells=self._reserved_cells(pair),
        )
        return Observed(observation, {})

    def truth(self, case: Case) -> tuple[Truth, ...]:
        """Every program in truth cells, compared with truth cells. For scoring only."""
        found = self._changes(Condition(case.perturbation.targets), "truth")
        return tuple(
            Truth(readout=r.id, label=r.classify(found[r.id].value), value=found[r.id].value, se=found[r.id].se)
            for r in case.readouts
        )

    def responses(self, case: Case) -> tuple[Response, ...]:
        """Every program in training cells, under each known condition that shares no target with the case."""
        return tuple(
            Response(perturbation=self._told(condition), readout=name, value=value, se=se)
            for condition in self._known_conditions()
            if not set(condition.targets) & set(case.perturbation.targets)
            for name, (value, se) in self._changes(condition, "training").items()
        )

    def _changes(self, condition: Condition, part: PartName) -> dict[str, Change]:
        return named(self.frozen.programs, self._effect(condition, part))

    def _told(self, condition: Condition) -> Perturbation:
        """The perturbation of a response."""
        return perturbation_of(condition)

    @abstractmethod
    def _effect(self, condition: Condition, part: PartName) -> Effect:
        """What the condition does to every program, in one part of the cells."""

    @abstractmethod
    def _reserved_cells(self, pair: Condition) -> int | None:
        """Cells behind an observation; None where there are no cells."""

    @abstractmethod
    def _known_conditions(self) -> Collection[Condition]:
        """Conditions whose responses in training cells may be told."""


def _case_problems(case: Case, frozen: ProgramFrozen, expected: Mapping[str, Perturbation]) -> Sequence[str]:
    if case.perturbation.id not in expected:
        return [f"case {case.id!r}: {case.perturbation.id!r} is not among the held-out pairs"]
    found = {r.id: r.threshold for r in case.readouts}
    problems = [
        f"case {case.id!r}: readout {name!r} has a threshold that is not in frozen.thresholds"
        for name, limit in found.items()
        if name not in frozen.thresholds or limit != frozen.thresholds[name]
    ]
    absent = [name for name in frozen.thresholds if name not in found]
    if absent:
        problems.append(f"case {case.id!r}: no readout for {', '.join(absent)} of frozen.thresholds")
    if case.perturbation != expected[case.perturbation.id]:
        problems.append(f"case {case.id!r}: the perturbation is not that of its pair")
    return problems

"""Drug-combination case files: made from cells by the frozen rules, and checked when they are read."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from evidence.combination_cells import CombinationCells
from evidence.combination_rules import (
    N_PROGRAMS,
    RESERVED_CELLS,
    RULES,
    CombinationFrozen,
    Shape,
    choose_pairs,
    split_cells,
    threshold,
    training_rows,
)
from evidence.conditions import CONTROL, Condition, normalise_condition
from evidence.contracts import Case, CaseFile, Measurement, Perturbation, Readout
from evidence.errors import ConfigError
from evidence.programs import Program, learn_programs, score_cells
from evidence.values import canonical_json, derive_seed

SETTING = "drug_combination"
CHANGE_UNIT = "log1p change from control"
N_BOOTSTRAP = 10


def freeze(
    opened: CombinationCells, shape: Shape, seed: int = 1, held_out: Sequence[Condition] | None = None
) -> CaseFile:
    """Make a case file. Pairs are chosen by label (`held_out` overrules); no value of a hidden cell is looked at."""
    cells = opened.cells
    pairs = tuple(sorted(held_out)) if held_out else choose_pairs(cells.rows, shape)
    parts = split_cells(cells, pairs, seed)
    training = cells.select(training_rows(parts))
    programs = learn_programs(
        training, n_programs=N_PROGRAMS, seed=derive_seed(seed, "programs"), n_bootstrap=N_BOOTSTRAP
    )
    control = score_cells(training.of(CONTROL), programs.matrix(training.genes))
    limits = threshold(control)
    frozen = CombinationFrozen(
        source=opened.source,
        shape=shape,
        held_out=tuple(pair.id for pair in pairs),
        programs=programs,
        control={p.id: round(float(m), 6) for p, m in zip(programs.programs, control.mean, strict=True)},
        thresholds={p.id: limit for p, limit in zip(programs.programs, limits, strict=True)},
        reserved_cells=RESERVED_CELLS,
        split={c.id: {part: len(taken) for part, taken in three._asdict().items()} for c, three in parts.items()},
        rules=dict(RULES),
    )
    readouts = tuple(_readout(p, frozen.thresholds[p.id]) for p in programs.programs)
    said = " (synthetic)" if opened.synthetic else ""
    return CaseFile(
        version=1,
        setting=SETTING,
        title=f"Drug combinations ({shape}): {len(pairs)} pairs, {cells.card.name}, {cells.card.cell_line}{said}",
        data={opened.source: cells.data_sha256},
        synthetic=opened.synthetic,
        seed=seed,
        frozen=frozen.model_dump(mode="json"),
        cases=tuple(_case(pair, readouts, cells.card.cell_line) for pair in pairs),
    )


def read_frozen(case_file: CaseFile) -> CombinationFrozen:
    """The frozen part of a drug-combination case file, checked. Raises ConfigError naming the field."""
    try:
        frozen = CombinationFrozen.model_validate_json(canonical_json(case_file.frozen))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        raise ConfigError(f"case file {case_file.title!r}, field frozen.{where}: {first['msg']}") from error
    problems = [problem for case in case_file.cases for problem in _case_problems(case, frozen)]
    if problems:
        raise ConfigError(f"case file {case_file.title!r}: " + "; ".join(problems))
    return frozen


def perturbation_of(condition: Condition) -> Perturbation:
    """The perturbation of a condition of the data."""
    return Perturbation(id=condition.id, name=" + ".join(condition.targets), targets=condition.targets)


def _case_problems(case: Case, frozen: CombinationFrozen) -> list[str]:
    if case.perturbation.id not in frozen.held_out:
        return [f"case {case.id!r}: {case.perturbation.id!r} is not among the held-out pairs"]
    problems = [
        f"case {case.id!r}: readout {r.id!r} has a threshold that is not in frozen.thresholds"
        for r in case.readouts
        if r.id not in frozen.thresholds or r.threshold != frozen.thresholds[r.id]
    ]
    if case.perturbation != perturbation_of(normalise_condition(case.perturbation.id)):
        problems.append(f"case {case.id!r}: the perturbation is not that of its pair")
    return problems


def _case(pair: Condition, readouts: tuple[Readout, ...], cell_line: str) -> Case:
    return Case(
        id=pair.id,
        title=f"{' + '.join(pair.targets)} on {cell_line} cells",
        perturbation=perturbation_of(pair),
        readouts=readouts,
        menu=tuple(_measurement(readout) for readout in readouts),
    )


def _readout(program: Program, limit: float) -> Readout:
    return Readout(
        id=program.id,
        name=f"{program.id} ({program.name})",
        description="change of the mean program score under the pair, against control cells",
        threshold=limit,
        unit=CHANGE_UNIT,
    )


def _measurement(readout: Readout) -> Measurement:
    return Measurement(
        id=f"measure_{readout.id}",
        name=f"Measure {readout.name}",
        description=f"measure {readout.id} in {RESERVED_CELLS} reserved cells treated with the pair",
        readout=readout.id,
        cost=1.0,
    )

"""Drug-combination case files: made from cells by the frozen rules, and checked when they are read."""

from __future__ import annotations

from collections.abc import Sequence

from evidence.cell_responses import CellResponses, training_cells
from evidence.cell_split import part_sizes
from evidence.combination_cells import CombinationCells
from evidence.combination_rules import (
    N_PROGRAMS,
    RESERVED_CELLS,
    RULES,
    CombinationFrozen,
    Shape,
    choose_pairs,
    split_cells,
)
from evidence.conditions import CONTROL, Condition
from evidence.contracts import CaseFile, Readout
from evidence.program_cases import make_case, perturbation_of, read_program_frozen, thresholds
from evidence.programs import Program, learn_programs
from evidence.values import derive_seed

SETTING = "drug_combination"
CHANGE_UNIT = "log1p change from control"
N_BOOTSTRAP = 10
MEASURE = f"measure {{}} in {RESERVED_CELLS} reserved cells treated with the pair"


def freeze(
    opened: CombinationCells, shape: Shape, seed: int = 1, held_out: Sequence[Condition] | None = None
) -> CaseFile:
    """Make a case file. Pairs are chosen by label (`held_out` overrules); no value of a hidden cell is looked at."""
    cells = opened.cells
    pairs = tuple(sorted(held_out)) if held_out else choose_pairs(cells.rows, shape)
    parts = split_cells(cells, pairs, seed)
    training = training_cells(cells, parts)
    programs = learn_programs(
        training, n_programs=N_PROGRAMS, seed=derive_seed(seed, "programs"), n_bootstrap=N_BOOTSTRAP
    )
    control = CellResponses(cells, parts, programs).scores(CONTROL, "training")
    frozen = CombinationFrozen(
        source=opened.source,
        shape=shape,
        held_out=tuple(pair.id for pair in pairs),
        programs=programs,
        control={p.id: round(float(m), 6) for p, m in zip(programs.programs, control.mean, strict=True)},
        thresholds=thresholds(programs, control, 1 / RESERVED_CELLS + 1 / control.n),
        reserved_cells=RESERVED_CELLS,
        split=part_sizes(parts),
        rules=dict(RULES),
    )
    readouts = tuple(_readout(p, frozen.thresholds[p.id]) for p in programs.programs)
    line = cells.card.cell_line
    said = " (synthetic)" if opened.synthetic else ""
    return CaseFile(
        version=1,
        setting=SETTING,
        title=f"Drug combinations ({shape}): {len(pairs)} pairs, {cells.card.name}, {line}{said}",
        data={opened.source: cells.data_sha256},
        synthetic=opened.synthetic,
        seed=seed,
        frozen=frozen.model_dump(mode="json"),
        cases=tuple(
            make_case(perturbation_of(pair), f"{' + '.join(pair.targets)} on {line} cells", readouts, MEASURE)
            for pair in pairs
        ),
    )


def read_frozen(case_file: CaseFile) -> CombinationFrozen:
    """The frozen part of a drug-combination case file, checked. Raises ConfigError naming the field."""
    return read_program_frozen(case_file, CombinationFrozen)


def _readout(program: Program, limit: float) -> Readout:
    return Readout(
        id=program.id,
        name=f"{program.id} ({program.name})",
        description="change of the mean program score under the pair, against control cells",
        threshold=limit,
        unit=CHANGE_UNIT,
    )

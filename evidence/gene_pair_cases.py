"""Gene-pair case files: which pairs are held out, the programs, the thresholds. No hidden outcome is looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import Literal

import numpy as np
from pydantic import Field

from evidence.annotations import Terms
from evidence.cell_responses import CellResponses, training_cells
from evidence.cell_split import HALF, Parts, Share, SplitRule, part_sizes, split_conditions
from evidence.conditions import CONTROL, Condition
from evidence.contracts import Case, CaseFile, Readout
from evidence.errors import ConfigError
from evidence.perturbed import DataCard, PerturbedCells
from evidence.program_cases import ProgramFrozen, make_case, perturbation_of, read_program_frozen, thresholds
from evidence.programs import Programs, enriched_terms, learn_programs
from evidence.values import derive_seed

SETTING = "gene_pair"
N_PROGRAMS = 4
UNIT = "log1p units"
ACTION = "activate"
MEASURE = "measure the response of {} in reserved cells with both genes perturbed"
MIN_PART = 8
"""Fewest cells of a part: below it a standard error means little."""
SPLIT = SplitRule(
    case=Share(reserved=48, at_most=Fraction(1, 3), truth=HALF),
    pair=Share(),
    single=Share(truth=HALF),
    control=Share(truth=HALF),
)
Subgroup = Literal["combo_seen0", "combo_seen1", "combo_seen2"]

RULES = {
    "split": "rows of each condition are permuted with a seed derived from (seed, 'split', condition). A case pair: up "
    "to 48 reserved cells, at most a third; of the rest, half training (for other cases' adapters), half truth. "
    "Singles and control: one half training, one half truth. Other pairs: all training",
    "cases": "pairs with both singles and at least 24 cells of each, drawn with the seed",
    "programs": "learned from training cells of the control, the singles and the pairs that are no case",
    "value": "AB - A - B of program scores, each a change from control. Truth: truth cells of all four. Observation: "
    "reserved AB cells against training cells. Response: training cells of all four",
    "threshold": "1.96 standard errors of an interaction measured in the reserved cells, from the variance of the "
    "program's score in training control cells, and the median sizes of the parts; rounded to 4 decimals",
}


class GenePairFrozen(ProgramFrozen):
    """What a gene-pair case file fixes.

    source: "cells", or "tables" of mean changes, whose measurements have the noise given (`noise_sd`, log1p units).
    terms: program -> GO terms over-represented among its genes, where annotations were given.
    """

    source: Literal["cells", "twin", "tables"]
    card: DataCard
    noise_sd: float | None = Field(default=None, gt=0)
    terms: dict[str, tuple[str, ...]] = {}
    split: dict[str, dict[str, int]] = {}


def split_cells(cells: PerturbedCells, cases: Collection[Condition], seed: int) -> dict[Condition, Parts]:
    """Disjoint parts of every condition, by this setting's rule."""
    return split_conditions(cells.rows, cases, SPLIT, seed)


def freeze_cells(
    cells: PerturbedCells,
    *,
    source: Literal["cells", "twin"],
    n_cases: int,
    seed: int,
    title: str,
    annotations: Terms | None = None,
) -> CaseFile:
    """Choose cases, learn programs from training cells, set thresholds. Raises ConfigError for too few pairs."""
    held_out = choose_pairs(cells, n_cases, seed)
    parts = split_cells(cells, held_out, seed)
    training = training_cells(cells, parts, held_out)
    programs = learn_programs(training, n_programs=N_PROGRAMS, seed=derive_seed(seed, "programs") % 2**31)
    frozen = GenePairFrozen(
        source=source,
        card=cells.card,
        programs=programs,
        thresholds=_thresholds(CellResponses(cells, parts, programs), held_out),
        held_out=tuple(c.id for c in held_out),
        terms={} if annotations is None else _terms(programs, cells, annotations),
        split=part_sizes(parts),
        rules=RULES,
    )
    return make_case_file(frozen, held_out, {cells.card.name: cells.data_sha256}, seed, title)


def make_case_file(
    frozen: GenePairFrozen, pairs: Sequence[Condition], data: dict[str, str], seed: int, title: str
) -> CaseFile:
    """The case file of these pairs: one readout and one menu entry for every program."""
    return CaseFile(
        version=1,
        setting=SETTING,
        title=title,
        data=data,
        synthetic=frozen.source == "twin",
        seed=seed,
        frozen=frozen.model_dump(mode="json"),
        cases=tuple(_case(pair, frozen) for pair in pairs),
    )


def read_frozen(case_file: CaseFile) -> GenePairFrozen:
    """The frozen part, checked against the cases. Raises ConfigError naming the field."""
    return read_program_frozen(case_file, GenePairFrozen, ACTION)


def choose_pairs(cells: PerturbedCells, n_cases: int, seed: int) -> tuple[Condition, ...]:
    """`n_cases` usable pairs, drawn with the seed. Raises ConfigError that says how many there are, of which kind."""
    usable = usable_pairs(cells)
    if len(usable) < n_cases or n_cases < 1:
        counts: Counter[str] = Counter(subgroup(pair, cells.rows) for pair in cells.rows if pair.double)
        others = ", ".join(f"{counts[f'combo_seen{n}']} in combo_seen{n}" for n in (2, 1, 0))
        raise ConfigError(
            f"asked for {n_cases} pairs with both singles, available {len(usable)} with enough cells "
            f"(pairs in the data: {others}); ask for fewer with n_cases"
        )
    order = np.random.default_rng(derive_seed(seed, "cases")).permutation(len(usable))
    return tuple(sorted(usable[i] for i in order[:n_cases]))


def subgroup(pair: Condition, known: Collection[Condition]) -> Subgroup:
    """GEARS' name for a pair by how many of its singles are in the data."""
    seen = sum(single in known for single in pair.singles)
    return ("combo_seen0", "combo_seen1", "combo_seen2")[seen]


def usable_pairs(cells: PerturbedCells) -> tuple[Condition, ...]:
    """Pairs with both singles and enough cells for three parts, sorted."""
    enough = {c for c, rows in cells.rows.items() if len(rows) >= 3 * MIN_PART}
    return tuple(c for c in sorted(enough) if c.double and set(c.singles) <= enough)


def _thresholds(known: CellResponses, held_out: Sequence[Condition]) -> dict[str, float]:
    control = known.scores(CONTROL, "training")
    singles = [len(known.parts[single].training) for pair in held_out for single in pair.singles]
    reserved = [len(known.parts[pair].reserved) for pair in held_out]
    per_cell = 1 / np.median(reserved) + 2 / np.median(singles) + 1 / control.n
    return thresholds(known.programs, control, float(per_cell))


def _terms(programs: Programs, cells: PerturbedCells, annotations: Terms) -> dict[str, tuple[str, ...]]:
    """The three most over-represented terms of every program, against all measured genes."""
    return {p.id: tuple(t.id for t in enriched_terms(p, cells.genes, annotations)[:3]) for p in programs.programs}


def _case(pair: Condition, frozen: GenePairFrozen) -> Case:
    a, b = pair.targets
    readouts = tuple(
        Readout(
            id=p.id,
            name=p.name,
            description=f"non-additive response AB - A - B of the program of {', '.join(p.genes[:8])} ...",
            threshold=frozen.thresholds[p.id],
            unit=UNIT,
        )
        for p in frozen.programs.programs
    )
    title = f"{a} and {b} together, {frozen.card.cell_line}, {frozen.card.modality}"
    return make_case(perturbation_of(pair, ACTION), title, readouts, MEASURE)

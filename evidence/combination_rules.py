"""The rules that freeze a drug-combination case file: which pairs, the split, thresholds. None looks at a hidden cell.

Pairs are chosen from labels alone, then cells are split by a seed and the condition's id, then programs and thresholds
come from training cells.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from evidence.cell_split import Parts, Share, SplitRule, split_conditions
from evidence.combination_cells import SourceName
from evidence.conditions import Condition
from evidence.errors import DataError
from evidence.perturbed import PerturbedCells
from evidence.program_cases import ProgramFrozen
from evidence.programs import Effect

Shape = Literal["published", "extended"]

RESERVED_CELLS = 48
MIN_TRUTH_CELLS = 40
N_PROGRAMS = 3
N_CASES = 10
SPLIT = SplitRule(
    case=Share(reserved=RESERVED_CELLS, truth=Fraction(1), least=RESERVED_CELLS + 2),
    pair=Share(),
    single=Share(),
    control=Share(truth=Fraction(1, 3), least=6),
)
RIDGE = 0.05
"""Prior weight of a drug's effect being zero in the additive rule, in units of one condition."""

RULES: Mapping[str, str] = {
    "cases": "pairs with at least 88 cells, those with both drugs measured alone first, then with one, then by name; a "
    "pair is taken while every drug of the pairs taken is left in a training condition. published: the first ten. "
    "extended: all that can be taken",
    "split": "rows of each condition are permuted with a seed derived from (seed, 'split', condition). A case's pair: "
    "48 reserved cells, the rest truth, none training. Control: two thirds training, one third truth. Every other "
    "condition: training",
    "programs": "learned from training cells of training conditions; a score is a weighted mean of log1p expression",
    "value": "mean score under the pair minus mean score of control cells. Truth: truth cells of both. Observation: 48 "
    "reserved cells against training control. Response: training cells of both. Standard errors from cells",
    "threshold": "1.96 sqrt(v0 (1/48 + 1/n0)) rounded to 4 decimals; v0 the variance of the score in the n0 training "
    "control cells",
    "baselines": "additive: sum of the two drugs' changes on the log1p scale. mean of singles: half of it. A drug not "
    "measured alone has the change that fits the training pairs best (ridge 0.05). no change: 0",
}


class CombinationFrozen(ProgramFrozen):
    """What a drug-combination case file fixes. control: mean score of training control cells by program."""

    source: SourceName
    shape: Shape
    control: dict[str, float]
    scale: Literal["log1p"] = "log1p"
    reserved_cells: int


def choose_pairs(rows: Mapping[Condition, Collection[int]], shape: Shape) -> tuple[Condition, ...]:
    """The pairs that become cases, sorted. rows: condition -> its rows; only their number is looked at."""

    def rank(c: Condition) -> tuple[int, str]:
        return -sum(single in rows for single in c.singles), c.id

    wanted = N_CASES if shape == "published" else len(rows)
    enough = [c for c in rows if c.double and len(rows[c]) >= RESERVED_CELLS + MIN_TRUTH_CELLS]
    taken: list[Condition] = []
    for pair in sorted(enough, key=rank):
        left = {t for c in rows if c not in taken and c != pair for t in c.targets}
        if len(taken) < wanted and all(t in left for c in (*taken, pair) for t in c.targets):
            taken.append(pair)
    if not taken:
        raise DataError("no pair can be held out: too few cells, or its drugs are in no other condition")
    return tuple(sorted(taken))


def split_cells(cells: PerturbedCells, held_out: Collection[Condition], seed: int) -> dict[Condition, Parts]:
    """Disjoint parts of every condition, by this setting's rule: no cell of a held-out pair is for training."""
    parts = split_conditions(cells.rows, held_out, SPLIT, seed)
    if any(len(parts[c].training) for c in held_out):
        raise AssertionError("a held-out combination has training cells")
    return parts


def drug_effects(responses: Mapping[Condition, Effect]) -> dict[str, NDArray[np.float64]]:
    """Drug -> (n_programs,) change on the log scale, from training conditions.

    A drug measured alone has its own change. The others have the ridge solution of "a pair is the sum of its drugs".
    """
    known = {c.targets[0]: effect.mean for c, effect in responses.items() if len(c.targets) == 1}
    pairs = [c for c in responses if c.double]
    unknown = sorted({t for c in pairs for t in c.targets} - set(known))
    if not unknown:
        return known
    design = np.array([[float(drug in c.targets) for drug in unknown] for c in pairs])
    rest = np.array([responses[c].mean - sum(known[t] for t in c.targets if t in known) for c in pairs])
    solved = np.linalg.solve(design.T @ design + RIDGE * np.eye(len(unknown)), design.T @ rest)
    return known | dict(zip(unknown, solved, strict=True))


def naive(condition: Condition, effects: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    """The setting's naive predictions for a pair, (n_programs,) each. Raises DataError for a drug never trained on."""
    unknown = [t for t in condition.targets if t not in effects]
    if unknown:
        raise DataError(f"{condition.id}: no training condition holds {', '.join(unknown)}")
    total = np.sum([effects[t] for t in condition.targets], axis=0)
    return {"no change": np.zeros_like(total), "additive (log scale)": total, "mean of singles": total / 2}

"""What settings on expression data offer to simulators: programs, the contrast scored, and what is held out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

from evidence.conditions import Condition
from evidence.perturbed import PerturbedCells

Weights = Mapping[str, Mapping[str, float]]
"""Readout id -> gene -> weight."""


@dataclass(frozen=True)
class ExpressionPrograms:
    """Readouts as weighted sums of genes.

    contrast: "interaction" (AB - A - B) or "change" (from control) of each readout. held_out: ids of perturbations
    whose cells no simulator may have seen. singles: target -> readout -> known response of the single perturbation,
    for tables that hold pairs only.
    """

    weights: Weights
    contrast: Literal["interaction", "change"]
    held_out: tuple[str, ...]
    singles: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    kind: ClassVar[str] = "expression_programs"


class CellData(NamedTuple):
    """Cells for training a simulator: training cells of every condition, held-out perturbations among them.

    held_out: conditions whose cells a trainer leaves out. wanted: conditions to predict. terms: gene -> annotation
    terms where the setting has its own (a generated twin); else the trainer reads a file. synthetic: a generated twin.
    """

    cells: PerturbedCells
    held_out: tuple[Condition, ...]
    wanted: tuple[Condition, ...]
    terms: Mapping[str, tuple[str, ...]] | None
    synthetic: bool

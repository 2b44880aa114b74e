"""Training data for simulators that learn from perturbed cells, with programs as readouts: the kind "program_cells"."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from evidence.conditions import CONTROL, normalise_condition
from evidence.errors import ContractError, DataError
from evidence.perturbed import PerturbedCells
from evidence.programs import Programs

CHANGE_UNIT = "log1p change from control"
"""The unit of a program's change: a difference of mean log1p expression."""


@dataclass(frozen=True, eq=False)
class ProgramCells:
    """Training cells and the programs that are read out of them. Cells of held-out conditions are not in it.

    cells: log1p expression, control cells among them. held_out: ids of whole combinations that were left out.
    doses: one tuple a cell, in the order of its condition's sorted targets; None where the dose was constant.
    """

    kind: ClassVar[str] = "program_cells"
    cells: PerturbedCells
    programs: Programs
    held_out: tuple[str, ...] = ()
    doses: tuple[tuple[float, ...], ...] | None = None
    synthetic: bool = False

    def __post_init__(self) -> None:
        hidden = {normalise_condition(name) for name in self.held_out}
        both = sorted(condition.id for condition in self.cells.rows if condition in hidden)
        if both:
            raise ContractError(f"held-out combinations with cells in the training part: {', '.join(both)}")
        if CONTROL not in self.cells.rows:
            raise DataError("no control cell among the training cells")
        if self.doses is not None:
            check_doses(self.cells, self.doses)


def check_doses(cells: PerturbedCells, doses: tuple[tuple[float, ...], ...]) -> None:
    """Raise DataError unless there is one finite dose of at least 0 for every target of every cell."""
    if len(doses) != len(cells.conditions):
        raise DataError(f"expected doses of {len(cells.conditions)} cells, got {len(doses)}")
    for barcode, condition, dose in zip(cells.barcodes, cells.conditions, doses, strict=True):
        if len(dose) != len(condition.targets) or not all(math.isfinite(d) and d >= 0 for d in dose):
            raise DataError(f"cell {barcode}: expected one dose for each of {list(condition.targets)}, got {dose}")

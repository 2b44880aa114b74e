"""What the cells of each part say of programs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from evidence.cell_split import PartName, Parts, training_rows
from evidence.conditions import CONTROL, Condition
from evidence.errors import DataError
from evidence.perturbed import PerturbedCells
from evidence.programs import Effect, Programs, Scores, interaction, response, score_cells


def training_cells(
    cells: PerturbedCells, parts: Mapping[Condition, Parts], held_out: Collection[Condition] = ()
) -> PerturbedCells:
    """Training cells of every condition, but for those held out."""
    return cells.select(training_rows({c: three for c, three in parts.items() if c not in held_out}))


@dataclass(frozen=True)
class CellResponses:
    """Responses of programs from cells. Truth compares truth cells; the other parts compare with training cells."""

    cells_: PerturbedCells
    parts: Mapping[Condition, Parts]
    programs: Programs

    def change(self, condition: Condition, part: PartName) -> Effect:
        """Change from control."""
        return response(*self._against(part, condition, CONTROL))

    def interaction(self, pair: Condition, part: PartName) -> Effect:
        """AB - A - B of a pair."""
        a, b = pair.singles
        return interaction(*self._against(part, pair, a, b, CONTROL))

    def single(self, gene: str) -> Effect:
        """Change of a single perturbation from control in training cells."""
        return self.change(Condition((gene,)), "training")

    def cells(self, pair: Condition) -> int | None:
        """Reserved cells."""
        return len(self.parts[pair].reserved)

    def scores(self, condition: Condition, part: PartName) -> Scores:
        """Program scores of one part. Raises DataError for a condition without cells."""
        if condition not in self.parts:
            raise DataError(f"no cell of {condition.id!r}")
        if (condition, part) not in self._seen:
            rows = getattr(self.parts[condition], part)
            self._seen[condition, part] = score_cells(self.cells_.X[rows], self._weights)
        return self._seen[condition, part]

    def _against(self, part: PartName, first: Condition, *others: Condition) -> Sequence[Scores]:
        other: PartName = "truth" if part == "truth" else "training"
        return [self.scores(first, part), *(self.scores(c, other) for c in others)]

    @cached_property
    def _seen(self) -> dict[tuple[Condition, PartName], Scores]:
        return {}

    @cached_property
    def _weights(self) -> NDArray[np.float64]:
        return self.programs.matrix(self.cells_.genes)

"""Interactions of gene pairs, from cells or from tables of mean changes, in disjoint parts.

Cells of every condition are split by a seeded permutation: a case pair into reserved, training and truth cells; singles
and the control into halves for training and truth. Training cells alone learn programs and thresholds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from evidence.conditions import CONTROL, Condition
from evidence.errors import DataError
from evidence.perturbed import PerturbedCells
from evidence.programs import Effect, Programs, Scores, interaction, response, score_cells
from evidence.values import derive_seed

Part = Literal["training", "truth", "reserved"]
Rows = NDArray[np.intp]
MAX_RESERVED = 48
MIN_PART = 8
"""Fewest cells of a part: below it a standard error means little."""


class Parts(NamedTuple):
    """Row numbers of one condition; reserved is empty but for case pairs."""

    training: Rows
    truth: Rows
    reserved: Rows


class PairResponses(Protocol):
    """What the setting needs to know of pairs, one entry a program."""

    def interaction(self, pair: Condition, part: Part) -> Effect:
        """AB - A - B of a pair."""
        ...

    def single(self, gene: str) -> Effect:
        """Known change of a single perturbation, from training cells."""
        ...

    def cells(self, pair: Condition) -> int | None:
        """Reserved cells of a pair; None where there are no cells."""
        ...


def split_cells(cells: PerturbedCells, cases: Collection[Condition], seed: int) -> dict[Condition, Parts]:
    """Disjoint parts of every condition, by seed and condition id alone. Raises DataError for too few cells."""
    parts = {}
    for condition, rows in cells.rows.items():
        mixed = np.random.default_rng(derive_seed(seed, "split", condition.id)).permutation(rows)
        if condition in cases:
            n = min(MAX_RESERVED, len(rows) // 3)
            half = (len(rows) - n) // 2
            made = Parts(mixed[n : n + half], mixed[n + half :], mixed[:n])
        elif condition.double:
            made = Parts(mixed, mixed[:0], mixed[:0])
        else:
            at = len(rows) // 2
            made = Parts(mixed[:at], mixed[at:], mixed[:0])
        parts[condition] = Parts(*(np.sort(part) for part in made))
    return parts


def usable_pairs(cells: PerturbedCells) -> tuple[Condition, ...]:
    """Pairs with both singles and enough cells for three parts, sorted."""
    enough = {c for c, rows in cells.rows.items() if len(rows) >= 3 * MIN_PART}
    return tuple(c for c in sorted(enough) if c.double and set(c.singles) <= enough)


@dataclass(frozen=True)
class CellResponses:
    """Responses from cells."""

    cells_: PerturbedCells
    parts: Mapping[Condition, Parts]
    programs: Programs

    def interaction(self, pair: Condition, part: Part) -> Effect:
        """Truth compares truth cells of all four conditions; the other parts compare with training cells."""
        other: Part = "truth" if part == "truth" else "training"
        a, b = pair.singles
        return interaction(*(self._scores(c, p) for c, p in ((pair, part), (a, other), (b, other), (CONTROL, other))))

    def single(self, gene: str) -> Effect:
        """Change from control in training cells."""
        return response(self._scores(Condition((gene,)), "training"), self._scores(CONTROL, "training"))

    def cells(self, pair: Condition) -> int | None:
        """Reserved cells."""
        return len(self.parts[pair].reserved)

    def _scores(self, condition: Condition, part: Part) -> Scores:
        if condition not in self.parts:
            raise DataError(f"no cell of {condition.id!r}")
        rows = getattr(self.parts[condition], part)
        return score_cells(self.cells_.X[rows], self._weights)

    @cached_property
    def _weights(self) -> NDArray[np.float64]:
        return self.programs.matrix(self.cells_.genes)


@dataclass(frozen=True)
class TableResponses:
    """Responses from tables of mean changes (no cells): noise of a given standard deviation stands for sampling.

    pairs, singles: id -> (n_programs,) change. noise: (n_programs,) standard deviation of a measurement.
    """

    pairs: Mapping[str, NDArray[np.float64]]
    singles: Mapping[str, NDArray[np.float64]]
    noise: NDArray[np.float64]
    seed: int

    def interaction(self, pair: Condition, part: Part) -> Effect:
        """The table's value; a reserved measurement adds seeded noise. The noise is given as standard error."""
        a, b = pair.targets
        value = self.pairs[pair.id] - self.singles[a] - self.singles[b]
        if part != "reserved":
            return Effect(value, self.noise)
        rng = np.random.default_rng(derive_seed(self.seed, "noise", pair.id))
        return Effect(value + rng.normal(scale=self.noise), self.noise)

    def single(self, gene: str) -> Effect:
        """The table's value, with the given noise as standard error."""
        return Effect(self.singles[gene], self.noise)

    def cells(self, pair: Condition) -> int | None:
        """None: there are no cells."""
        return None

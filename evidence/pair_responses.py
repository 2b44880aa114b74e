"""What the gene-pair setting needs to know of pairs, and its answer from tables of mean changes (no cells).

The answer from cells is evidence.cell_responses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from evidence.cell_split import PartName
from evidence.conditions import Condition
from evidence.programs import Effect
from evidence.values import derive_seed


class PairResponses(Protocol):
    """What the setting needs to know of pairs, one entry a program."""

    def interaction(self, pair: Condition, part: PartName) -> Effect:
        """AB - A - B of a pair."""
        ...

    def single(self, gene: str) -> Effect:
        """Known change of a single perturbation, from training cells."""
        ...

    def cells(self, pair: Condition) -> int | None:
        """Reserved cells of a pair; None where there are no cells."""
        ...


@dataclass(frozen=True)
class TableResponses:
    """Responses from tables of mean changes (no cells): noise of a given standard deviation stands for sampling.

    pairs, singles: id -> (n_programs,) change. noise: (n_programs,) standard deviation of a measurement.
    """

    pairs: Mapping[str, NDArray[np.float64]]
    singles: Mapping[str, NDArray[np.float64]]
    noise: NDArray[np.float64]
    seed: int

    def interaction(self, pair: Condition, part: PartName) -> Effect:
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

"""Training data for simulators that learn from cells in discrete states: the kind "discrete_cells"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from evidence.errors import DataError

LOW, MIDDLE, HIGH = 0, 1, 2
N_LEVELS = 3


@dataclass(frozen=True, eq=False)
class DiscreteCells:
    """Baseline cells in three states, and the graph over their proteins.

    proteins: names of the columns. levels: (n_cells, n_proteins) int8 in {0 low, 1 middle, 2 high}.
    edges: (parent, child) pairs, acyclic. graph: the graph's name.
    """

    kind: ClassVar[str] = "discrete_cells"
    proteins: tuple[str, ...]
    levels: NDArray[np.int8]
    edges: tuple[tuple[str, str], ...]
    graph: str

    def __post_init__(self) -> None:
        width = len(self.proteins)
        if self.levels.ndim != 2 or self.levels.shape[1] != width or len(self.levels) == 0:
            raise DataError(f"expected levels of shape (n > 0, {width}), got {self.levels.shape}")
        if not np.isin(self.levels, (LOW, MIDDLE, HIGH)).all():
            raise DataError(f"expected levels 0, 1, 2, got {sorted(set(self.levels.ravel().tolist()))}")
        unknown = sorted({node for edge in self.edges for node in edge} - set(self.proteins))
        if unknown:
            raise DataError(f"graph {self.graph!r} has nodes that were not measured: {', '.join(unknown)}")

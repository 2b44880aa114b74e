"""2,000 cluster-bootstrap draws over 6,077 items of 1,080 papers, beside a plain vectorised numpy implementation.

    python tests/perf/cluster_bootstrap.py

Both sides get the per-paper sums and counts and draw from the same generator; they take turns, the median counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from scoring.clusters import cluster_sums
from scoring.intervals import drawn_ratios

PAPERS, ITEMS, DRAWS, TURNS = 1080, 6077, 2000, 25


def plain(sums: NDArray[np.float64], counts: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Draw all papers of all draws at once, gather both columns, divide."""
    picks = np.random.default_rng(seed).integers(0, len(sums), size=(DRAWS, len(sums)))
    ratios: NDArray[np.float64] = sums[picks].sum(axis=1) / counts[picks].sum(axis=1)
    return ratios


def ours(sums: NDArray[np.float64], counts: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """What every cluster-bootstrap interval of vcloop is made with."""
    return drawn_ratios(sums, counts, seed, DRAWS)


def main() -> None:
    """Print both times and their ratio."""
    rng = np.random.default_rng(0)
    papers = np.sort(np.concatenate([np.arange(PAPERS), rng.integers(0, PAPERS, ITEMS - PAPERS)]))
    by = cluster_sums(rng.random(ITEMS) < 0.35, papers)
    np.testing.assert_allclose(ours(by.sums, by.counts, 1), plain(by.sums, by.counts, 1))
    taken: dict[Callable[..., object], list[float]] = {plain: [], ours: []}
    for turn in range(TURNS):
        for side, times in taken.items():
            started = time.perf_counter()
            side(by.sums, by.counts, turn)
            times.append(time.perf_counter() - started)
    medians = {side: 1000 * statistics.median(times) for side, times in taken.items()}
    print(f"{DRAWS} draws over {ITEMS} items of {PAPERS} papers, median of {TURNS} turns, same draws to 1e-7")
    ratio = medians[ours] / medians[plain]
    print(f"plain numpy {medians[plain]:.1f} ms, vcloop {medians[ours]:.1f} ms, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()

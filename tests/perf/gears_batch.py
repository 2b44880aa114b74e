"""GEARS in batches against upstream's `predict`, one pair after the other: same network, same control cells, one run.

    python tests/perf/gears_batch.py                                       generated cells, 500 genes
    python tests/perf/gears_batch.py --cells devel.h5ad --go gene2go.json.gz

Exits 1 unless ours is at least 5 times as fast and every gene of every pair agrees within 1e-5.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from evidence.cells import read_cells
from evidence.conditions import Condition
from evidence.perturbed import DataCard, PerturbedCells, make_cells
from simulators.gears.dataset import prepare
from simulators.gears.go import GoAnnotations, make_go, read_go
from simulators.gears.model import Gears, upstream_expression
from simulators.gears.training import GearsOptions

PAIRS, GOAL_RATIO, GOAL_DIFFERENCE, SEED = 131, 5.0, 1e-5, 7


def generated(n_genes: int = 500, n_conditions: int = 20, n_cells: int = 40) -> tuple[PerturbedCells, GoAnnotations]:
    """Cells and annotations of the size of the real subset."""
    rng = np.random.default_rng(1)
    genes = [f"G{n:03d}" for n in range(n_genes)]
    labels = ["ctrl", *genes[:n_conditions]]
    x = np.maximum(rng.normal(0.3, 0.6, (len(labels) * n_cells, n_genes)), 0)
    card = DataCard(name="generated", cell_line="none", modality="none")
    cells = make_cells(x, genes, [label for label in labels for _ in range(n_cells)], card=card)
    terms = {gene: {f"GO:{t}" for t in rng.integers(0, 150, 8)} for gene in genes}
    return cells, make_go(terms, source="generated")


def main() -> int:
    """Train one epoch, predict 131 pairs both ways, print and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, help="an .h5ad file; generated cells without it")
    parser.add_argument("--go", type=Path, help="GO annotations for it")
    parser.add_argument("--hidden", type=int, default=64, help="hidden size; 64 is GEARS' own")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    cells, go = (read_cells(given.cells), read_go(given.go)) if given.cells else generated()
    options = GearsOptions(epochs=1, hidden_size=given.hidden, threads=given.threads)
    with tempfile.TemporaryDirectory() as folder:
        dataset = prepare(cells, held_out=[c for c in cells.perturbations if c.double], go=go, root=Path(folder))
        gears = Gears.train(dataset, options, seeds=[1])
    pairs = [Condition(p) for p in itertools.islice(itertools.combinations(dataset.facts.graph_genes, 2), PAIRS)]
    after_training = _peak_gb()

    gears.predict_expression(pairs[:1], seed=SEED)  # both sides start warm
    upstream_expression(gears.members[0], pairs[0], seed=SEED)
    start = time.perf_counter()
    ours = gears.predict_expression(pairs, seed=SEED)[0]
    ours_s = time.perf_counter() - start
    after_ours = _peak_gb()
    start = time.perf_counter()
    theirs = np.array([upstream_expression(gears.members[0], p, seed=SEED) for p in pairs])
    theirs_s = time.perf_counter() - start

    ratio, difference = theirs_s / ours_s, float(np.abs(ours - theirs).max())
    print(f"{len(pairs)} pairs x {len(gears.genes)} genes, {given.threads} thread(s), hidden size {given.hidden}")
    print(f"upstream one by one {theirs_s:.2f} s, ours {ours_s:.2f} s: {ratio:.1f} times as fast (goal {GOAL_RATIO:g})")
    print(f"largest difference {difference:.2e} log1p units (goal {GOAL_DIFFERENCE:g})")
    print(
        f"peak memory: {after_training:.2f} GB after training, {after_ours:.2f} after ours, {_peak_gb():.2f} at the end"
    )
    return 0 if ratio >= GOAL_RATIO and difference <= GOAL_DIFFERENCE else 1


def _peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    sys.exit(main())

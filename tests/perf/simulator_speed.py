"""GEARS and CPA, upstream as it is against ours: training and prediction, same cells, same seeds, in turns, one run.

    python tests/perf/simulator_speed.py                                       generated cells, about four minutes
    python tests/perf/simulator_speed.py --cells devel.h5ad --go gene2go.json.gz

Training: upstream's own, with and without `lean`. Prediction: upstream's passes, one condition after the other, against
ours, on the same network. Printed is the least time of each side, processor and wall. Exits 1 unless every prediction
agrees within 1e-5 and ours takes less processor time everywhere, a fifth for predictions.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evidence.cells import read_cells
from evidence.conditions import Condition
from evidence.expression import CellData
from evidence.perturbed import DataCard, PerturbedCells, make_cells
from simulators.cpa import lean as cpa_lean
from simulators.cpa import training as cpa_training
from simulators.cpa.counterfactual import predict_change, upstream_change
from simulators.cpa.facts import CpaOptions, training_cells
from simulators.gears import lean as gears_lean
from simulators.gears import training as gears_training
from simulators.gears.dataset import prepare
from simulators.gears.go import GoAnnotations, make_go, read_go
from simulators.gears.model import Gears, upstream_expression
from simulators.gears.training import GearsOptions
from simulators.replaced import replaced

SEED, GOAL_DIFFERENCE, GOAL_TRAINING, GOAL_PREDICTION = 7, 1e-5, 1.0, 5.0
Side = Callable[[], Any]


class Timed(NamedTuple):
    """Seconds of the processor and of the wall, and what was made."""

    processor: float
    wall: float
    made: Any


def main() -> int:
    """Run both sides of each part in turns, print and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, help="an .h5ad file; generated cells without it")
    parser.add_argument("--go", type=Path, help="GO annotations for it")
    parser.add_argument("--epochs", type=int, nargs=2, default=(2, 10), metavar=("GEARS", "CPA"))
    parser.add_argument("--pairs", type=int, default=30, help="pairs that are predicted")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    cells, go = (read_cells(given.cells), read_go(given.go)) if given.cells else generated()
    shape = f"{len(cells.conditions)} cells x {len(cells.genes)} genes, {len(cells.rows)} conditions"
    print(f"{shape}; {given.rounds} round(s), {given.threads} thread(s)", flush=True)
    good = [
        *gears(cells, go, GearsOptions(epochs=given.epochs[0], threads=given.threads), given),
        *cpa(cells, CpaOptions(epochs=given.epochs[1], threads=given.threads), given),
    ]
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")
    return 0 if all(good) else 1


def gears(cells: PerturbedCells, go: GoAnnotations, options: GearsOptions, given: argparse.Namespace) -> list[bool]:
    """GEARS with every second pair held out."""
    held = [c for c in cells.perturbations if c.double][::2]
    with tempfile.TemporaryDirectory() as folder:
        dataset = prepare(cells, held_out=held, go=go, root=Path(folder))

        def train() -> Gears:
            return Gears([gears_training.train_member(dataset, options, SEED)])

        theirs, ours = turns(upstream(gears_lean, train), train, given.rounds)
    wanted = [c for c in cells.perturbations if ours.made.can_predict(c)]
    trained = [side.made.predict(wanted).mean for side in (theirs, ours)]
    good = shown(f"GEARS training, {options.epochs} epochs", theirs, ours, *trained, goal=GOAL_TRAINING)
    pairs = [Condition(p) for p in itertools.islice(itertools.combinations(dataset.facts.graph_genes, 2), given.pairs)]
    member = ours.made.members[0]
    one_by_one, batched = turns(
        lambda: np.array([upstream_expression(member, pair, seed=SEED) for pair in pairs]),
        lambda: ours.made.predict_expression(pairs, seed=SEED)[0],
        given.rounds,
    )
    name = f"GEARS prediction, {len(pairs)} pairs"
    return [good, shown(name, one_by_one, batched, one_by_one.made, batched.made, goal=GOAL_PREDICTION)]


def cpa(cells: PerturbedCells, options: CpaOptions, given: argparse.Namespace) -> list[bool]:
    """CPA with every second pair held out."""
    held = tuple([c for c in cells.perturbations if c.double][::2])
    data = training_cells(CellData(cells, held, cells.perturbations, None, synthetic=True))

    def train() -> Any:
        return cpa_training.train_member(data, options, SEED)

    cpa_training.train_member(data, options.model_copy(update={"epochs": 1}), SEED)  # imports are nobody's
    theirs, ours = turns(upstream(cpa_lean, train), train, given.rounds)
    drugs = ours.made.facts.drugs
    wanted = [c for c in cells.perturbations if set(c.targets) <= set(drugs)]
    trained = [predict_change(side.made, wanted) for side in (theirs, ours)]
    good = shown(f"CPA training, {options.epochs} epochs", theirs, ours, *trained, goal=GOAL_TRAINING)
    pairs = [Condition(p) for p in itertools.islice(itertools.combinations(drugs, 2), given.pairs)]
    one_by_one, batched = turns(
        lambda: upstream_change(ours.made, pairs), lambda: predict_change(ours.made, pairs), given.rounds
    )
    name = f"CPA prediction, {len(pairs)} pairs"
    return [good, shown(name, one_by_one, batched, one_by_one.made, batched.made, goal=GOAL_PREDICTION)]


def upstream(lean: Any, train: Side) -> Side:
    """The same training without what `lean` leaves out."""

    def trained() -> Any:
        with replaced(lean, training=nullcontext):
            return train()

    return trained


def turns(theirs: Side, ours: Side, rounds: int) -> tuple[Timed, Timed]:
    """The fastest of `rounds` runs of each side."""
    runs = [(timed(theirs), timed(ours)) for _ in range(rounds)]
    return min((t for t, _ in runs), key=lambda t: t.processor), min((o for _, o in runs), key=lambda o: o.processor)


def timed(side: Side) -> Timed:
    """Run it once."""
    processor, wall = time.process_time(), time.perf_counter()
    made = side()
    return Timed(time.process_time() - processor, time.perf_counter() - wall, made)


def shown(name: str, theirs: Timed, ours: Timed, expected: Any, got: Any, *, goal: float) -> bool:
    """Print one line, and whether the goals are reached."""
    ratio, difference = theirs.processor / ours.processor, float(np.abs(got - expected).max())
    print(
        f"{name:28s} upstream {theirs.processor:7.2f} s (wall {theirs.wall:7.2f}), ours {ours.processor:7.3f} s "
        f"(wall {ours.wall:7.3f}): {ratio:6.2f} times as fast (wall {theirs.wall / ours.wall:6.2f}); "
        f"largest difference {difference:.1e} of {np.abs(expected).max():.2f}",
        flush=True,
    )
    return ratio >= goal and difference <= GOAL_DIFFERENCE


def generated(n_genes: int = 500, n_singles: int = 20, n_cells: int = 60) -> tuple[PerturbedCells, GoAnnotations]:
    """Cells and annotations of the size of the real subset: a control, singles, and ten pairs of them."""
    rng = np.random.default_rng(1)
    genes = [f"G{n:03d}" for n in range(n_genes)]
    effects = {gene: rng.normal(0, 0.3, n_genes) * (rng.random(n_genes) < 0.1) for gene in genes[:n_singles]}
    pairs = ["+".join(genes[n : n + 2]) for n in range(0, n_singles, 2)]
    labels = ["ctrl"] * (5 * n_cells) + [label for label in (*effects, *pairs) for _ in range(n_cells)]
    changes = np.array(
        [sum((effects[t] for t in label.split("+") if t in effects), np.zeros(n_genes)) for label in labels]
    )
    x = np.maximum(rng.normal(0.3, 0.6, changes.shape) + changes, 0)
    cells = make_cells(x, genes, labels, card=DataCard(name="generated", cell_line="none", modality="none"))
    terms = {gene: {f"GO:{t}" for t in rng.integers(0, 150, 8)} for gene in genes}
    return cells, make_go(terms, source="generated")


if __name__ == "__main__":
    sys.exit(main())

"""Train GEARS on real Norman cells with pairs held out, and score it on change from control beside naive predictions.

    python tests/perf/gears_norman.py --cells devel.h5ad --go gene2go.json.gz --out work --hold doubles

--hold doubles   hides every pair: only singles are trained on
--hold testable  hides the pairs whose two singles are measured (the cases of the pilot); other pairs are trained on
Members already in --out are not trained again. The table of predictions is written to <out>/<hold>/responses.npz.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import numpy as np

from evidence.cells import read_cells
from evidence.conditions import CONTROL, Condition
from evidence.perturbed import PerturbedCells
from evidence.programs import condition_scores, interaction, learn_programs
from scoring.change import compare_predictors, naive_predictions
from simulators.gears.dataset import prepare
from simulators.gears.go import read_go
from simulators.gears.model import Gears
from simulators.gears.training import GearsOptions
from simulators.response_table import ResponseTable, save_table


def main() -> None:
    """Read, train, predict, score, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, required=True)
    parser.add_argument("--go", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--hold", choices=("doubles", "testable"), default="doubles")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=1e-3)
    given = parser.parse_args()
    cells, out = read_cells(given.cells), given.out / given.hold
    doubles = [c for c in cells.perturbations if c.double]
    testable = [c for c in doubles if all(single in cells.rows for single in c.singles)]
    held = doubles if given.hold == "doubles" else testable
    start = time.monotonic()
    dataset = prepare(cells, held_out=held, go=read_go(given.go), root=out / "data")
    options = GearsOptions(epochs=given.epochs, batch_size=given.batch, learning_rate=given.rate)
    gears = Gears.train(dataset, options, seeds=given.seeds, out=out / "members", say=_epochs)
    minutes = (time.monotonic() - start) / 60
    table = gears.table([c for c in cells.perturbations if gears.can_predict(c)])
    save_table(table, out / "responses.npz")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{len(held)} pairs held out, {len(given.seeds)} members: {minutes:.1f} minutes, peak {peak:.2f} GB")
    print(f"left out: {dataset.facts.left_out}; validation: {[m.facts.validation for m in gears.members]}")
    for name, group in (("held-out pairs", held), ("held-out pairs with both singles", testable)):
        _expression(name, cells, table, group, held)
    _interactions(cells, table, testable, held)


def _epochs(text: str) -> None:
    if text.startswith(("member", "Epoch")) and "Step" not in text:
        print(f"  {text}", flush=True)


def _expression(
    name: str, cells: PerturbedCells, table: ResponseTable, group: list[Condition], held: list[Condition]
) -> None:
    mean = {c: np.asarray(cells.of(c).mean(axis=0)).ravel() for c in cells.rows}
    training = {c.id: x for c, x in mean.items() if not c.control and c not in held}
    ids = [c.id for c in group]
    gears = {c.id: mean[CONTROL] + table.estimate(c.id).mean for c in group if c.id in table.perturbations}
    predicted = {"gears": gears} | naive_predictions(ids, control=mean[CONTROL], training=training)
    truth = {c.id: mean[c] for c in group}
    print(f"\n{name}: Pearson, MAE and RMSE of the change from control (log1p units)")
    for r in compare_predictors(control=mean[CONTROL], truth=truth, predicted=predicted):
        shown = " ".join("    null" if v is None else f"{v:8.4f}" for v in (r.pearson, r.mae, r.rmse))
        absolute = np.mean(
            [s.absolute_pearson.value for s in r.each if s.absolute_pearson.value is not None] or [np.nan]
        )
        counts = f"n {r.n:2d}, undefined {r.n_undefined:2d}, missing {r.n_missing:2d}"
        print(f"  {r.predictor:10s} {counts}: {shown}  (absolute expression {absolute:.4f})")


def _interactions(cells: PerturbedCells, table: ResponseTable, group: list[Condition], held: list[Condition]) -> None:
    programs = learn_programs(cells.without(held), n_programs=4, seed=1)
    scores, readouts = condition_scores(cells, programs), table.project(programs.weights)
    true, guessed = [], []
    print("\nAB - A - B per program, truth (standard error) | GEARS (sd over members)")
    for program in programs.programs:
        print(f"  {program.id} {program.name}: stability {program.stability:.2f}")
    for c in group:
        found = interaction(scores[c], *(scores[single] for single in c.singles), scores[CONTROL])
        said = readouts.interaction(c.id, (c.singles[0].id, c.singles[1].id))
        sd = np.zeros(4) if said.sd is None else said.sd
        cells_text = " ".join(
            f"{t:+.3f} ({e:.3f}) | {g:+.3f} ({s:.3f});"
            for t, e, g, s in zip(found.mean, found.se, said.mean, sd, strict=True)
        )
        print(f"  {c.id:16s} {cells_text}")
        true.append(found.mean)
        guessed.append(said.mean)
    error = np.abs(np.array(guessed) - true).mean()
    print(f"  mean absolute error: GEARS {error:.4f}, additive {np.abs(true).mean():.4f}")


if __name__ == "__main__":
    main()

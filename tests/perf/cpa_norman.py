"""Train CPA on real Norman cells with pairs held out, and score it on change from control beside naive predictions.

    python tests/perf/cpa_norman.py --cells devel.h5ad --out work

The pairs whose two singles are measured are held out, every cell of them; other pairs are trained on. Predictions are
counterfactual: control cells decoded under the pair. Members already in --out are not trained again.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from functools import partial
from pathlib import Path

import numpy as np

from evidence.cells import read_cells
from evidence.conditions import CONTROL
from evidence.expression import CellData
from evidence.programs import condition_scores, learn_programs, response
from scoring.change import compare_predictors, naive_predictions
from simulators.cpa.facts import CpaOptions
from simulators.cpa.model import Cpa
from simulators.response_table import save_table


def main() -> None:
    """Read, train, predict, score, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--options", default="{}", help="CPA's options as JSON")
    parser.add_argument("--members", type=int, default=2)
    given = parser.parse_args()
    cells = read_cells(given.cells)
    held = [c for c in cells.perturbations if c.double and all(single in cells.rows for single in c.singles)]
    training = cells.without(held)
    programs = learn_programs(training, n_programs=3, seed=1)
    options = CpaOptions.model_validate_json(given.options)
    start = time.monotonic()
    genes = frozenset(gene for program in programs.programs for gene in program.genes)
    data = CellData(cells, tuple(held), cells.perturbations, None, False, readout_genes=genes)
    say = partial(print, " ", flush=True)
    cpa = Cpa.train(data, options, members=given.members, seed=1, out=given.out / "members", say=say)
    minutes = (time.monotonic() - start) / 60
    table = cpa.table(c for c in cells.perturbations if cpa.can_predict(c))
    save_table(table, given.out / "responses.npz")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{len(held)} pairs held out, {len(cpa.members)} members: {minutes:.1f} minutes, peak {peak:.2f} GB")
    print(json.dumps(options.model_dump()))
    mean = {c: np.asarray(cells.of(c).mean(axis=0)).ravel() for c in cells.rows}
    known = {c.id: x for c, x in mean.items() if not c.control and c not in held}
    naive = naive_predictions([c.id for c in held], control=mean[CONTROL], training=known)
    guessed = {"cpa": {c.id: mean[CONTROL] + table.estimate(c.id).mean for c in held}} | naive
    print("Pearson, MAE and RMSE of the change from control (log1p units), over genes")
    for r in compare_predictors(control=mean[CONTROL], truth={c.id: mean[c] for c in held}, predicted=guessed):
        shown = " ".join("    null" if v is None else f"{v:8.4f}" for v in (r.pearson, r.mae, r.rmse))
        print(f"  {r.predictor:10s} n {r.n:2d}, undefined {r.n_undefined:2d}, missing {r.n_missing:2d}: {shown}")
    scores, readouts = condition_scores(cells, programs), table.project(programs.weights)
    print("change of programs, truth (standard error) | CPA (sd over members)")
    for c in held:
        true, predicted = response(scores[c], scores[CONTROL]), readouts.estimate(c.id)
        pairs = zip(true.mean, true.se, predicted.mean, predicted.sd, strict=True)
        print(f"  {c.id:16s} " + "; ".join(f"{t:+.2f} ({se:.2f}) | {p:+.2f} ({sd:.2f})" for t, se, p, sd in pairs))


if __name__ == "__main__":
    main()

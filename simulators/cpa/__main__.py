"""Train CPA for a case file and store its predictions: `python -m simulators.cpa CASES --out TABLE`."""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path

from evidence.conditions import normalise_condition
from evidence.contracts import CaseFile
from evidence.registry import SETTINGS
from evidence.strict_yaml import parse_value, read_value
from simulators.cpa.facts import CpaOptions
from simulators.cpa.model import Cpa
from simulators.response_table import save_table


def main() -> None:
    """Train, or find trained members, and write the table of every condition that can be predicted."""
    parser = argparse.ArgumentParser(prog="python -m simulators.cpa", description=__doc__)
    parser.add_argument("cases", type=Path, help="a case file of a setting that offers program cells")
    parser.add_argument("--out", type=Path, required=True, help="the response table to write (.npz)")
    parser.add_argument("--members", type=Path, help="folder that keeps trained members; found ones are not retrained")
    parser.add_argument("--data", type=Path, help="where the cells are; searched for by default")
    parser.add_argument("--options", default="{}", help="CPA's options as JSON")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    options = parse_value(given.options, CpaOptions, where="--options", as_json=True)
    case_file = read_value(given.cases, CaseFile, what="case file")
    setting = SETTINGS.get(case_file.setting).open(case_file, given.data)
    training = setting.training()
    start = time.monotonic()
    cpa = Cpa(options)
    cpa.fit(training, seed=given.seed, out=given.members, say=lambda text: print(text, file=sys.stderr))  # noqa: T201
    hidden = [setting_case.perturbation.id for setting_case in setting.cases()]
    conditions = set(training.cells.perturbations) | {normalise_condition(name) for name in hidden}
    table = cpa.table(sorted(c for c in conditions if cpa.can_predict(c)))
    save_table(table, given.out)
    made = {
        "table": str(given.out),
        "sha256": table.sha256,
        "conditions": len(table.perturbations),
        "minutes": round((time.monotonic() - start) / 60, 2),
        "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
    }
    print(json.dumps(made))  # noqa: T201 - a command's output


if __name__ == "__main__":
    main()

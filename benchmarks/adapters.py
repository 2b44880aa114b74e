"""What one measurement says about the readouts that were not measured, adapter by adapter; rerun with

    python -m benchmarks.adapters [--devel-table TABLE.npz [--devel-members FOLDER]] [--only NAME ...] [--out FILE.json]

Two tables. "cases": the held-out truth of every case, each menu entry measured in turn. "training": each adapter's
training perturbations of every case, one left out and predicted from the others; this is what models were chosen by,
and it never looks at the truth of the case. Means are over unmeasured readouts; intervals are 95 % percentiles of
2,000 draws of cases with all their readouts and menu entries.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from adapters.affine import Affine
from adapters.gaussian import DOF, GaussianOptions, GaussianResiduals
from adapters.local import Local
from adapters.refit import Refitted
from evidence.contracts import (
    Adapter,
    AdapterInputs,
    Case,
    CaseFile,
    EvidenceSetting,
    NoOptions,
    Observation,
    Prediction,
    Readout,
    Refit,
    Truth,
)
from evidence.datasets import locate
from evidence.errors import ConfigError, DataError
from evidence.registry import SETTINGS, SIMULATORS
from evidence.residuals import Predictor, adapter_inputs
from evidence.strict_yaml import read_value
from evidence.values import derive_seed
from scoring.intervals import draw_cases

CASES = Path(__file__).resolve().parent.parent / "cases"
LEVELS = (0.5, 0.8, 0.95)
Array = NDArray[np.float64]


class Dataset(NamedTuple):
    """A case file and the simulator whose predictions are adapted. synthetic: generated, not measured."""

    cases: str
    simulator: str
    options: Callable[[], Mapping[str, Any]] = dict
    synthetic: bool = False


class Trial(NamedTuple):
    """One perturbation with one readout measured: what an adapter is given, and what comes out."""

    readouts: tuple[Readout, ...]
    inputs: AdapterInputs
    observation: Observation
    truth: tuple[Truth, ...]


class Result(NamedTuple):
    """Unmeasured readouts of one case, summed over its trials.

    before: the adapter without the measurement. right: by the class of the mean; right_posterior: by the most probable
    class of a Student t with DOF degrees of freedom. within: readouts inside the interval of each level, of that t for
    `gaussian`, else normal.
    """

    n: int
    raw_error: float
    before_error: float
    error: float
    raw_right: int
    before_right: int
    right: int
    right_posterior: int
    within: tuple[int, ...]


def main() -> None:
    """Measure, print both tables, and write them as JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devel-table", type=Path, help="GEARS' table for cases/gene-pair-devel.json")
    parser.add_argument("--devel-members", type=Path, help="the trained members behind that table, for refit")
    parser.add_argument("--only", nargs="+", help="names of data sets")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    report: dict[str, Any] = {}
    for name, dataset in datasets(given.devel_table, given.devel_members).items():
        if given.only and name not in given.only:
            continue
        try:
            setting, predict = opened(dataset)
        except DataError as error:
            sys.stderr.write(f"{name}: left out ({error})\n")
            continue
        report[name] = measure(setting, predict, synthetic=dataset.synthetic)
        sys.stdout.write("\n".join(_lines(name, report[name])) + "\n")
        sys.stdout.flush()
    if given.out is not None:
        given.out.write_text(json.dumps(report, indent=1, sort_keys=True, allow_nan=False) + "\n")


def datasets(devel_table: Path | None, devel_members: Path | None = None) -> dict[str, Dataset]:
    """Every data set by name."""

    def published() -> dict[str, Any]:
        table = locate("norman_changes", None) / "gears_pred_delta_doubles.csv"
        return {"table": str(table), "sd": 0.05, "singles": "observed", "trust_held_out": True}

    found = {
        "sachs": Dataset("signaling.json", "bayes_net"),
        "sachs extended": Dataset("signaling-extended.json", "bayes_net"),
        "sachs bnlearn": Dataset("signaling-bnlearn.json", "bayes_net"),
        "norman pseudobulk": Dataset("gene-pair-tables.json", "gears", published),
        "oneil synergy": Dataset("drug-synergy.json", "pair_ridge"),
        "gene-pair twin": Dataset(
            "gene-pair-twin.json", "gears", lambda: {"table": str(CASES / "gene-pair-twin-gears.npz")}, synthetic=True
        ),
        "drug-pair twin": Dataset(
            "drug-combination.json", "cpa", lambda: {"table": str(CASES / "drug-combination-cpa.npz")}, synthetic=True
        ),
    }
    if devel_table is not None:
        options = {"table": str(devel_table), **({"members": str(devel_members)} if devel_members else {})}
        found["norman cells"] = Dataset("gene-pair-devel.json", "gears", lambda: options)
    return found


def opened(dataset: Dataset) -> tuple[EvidenceSetting, Predictor]:
    """The setting on its data, and the fitted simulator. Raises DataError where the data is not here."""
    case_file = read_value(CASES / dataset.cases, CaseFile, what="case file")
    setting: EvidenceSetting = SETTINGS.get(case_file.setting).open(case_file, None)
    kind = SIMULATORS.get(dataset.simulator)
    simulator = kind(kind.Options.model_validate_json(json.dumps(dict(dataset.options()))))
    simulator.fit(setting.training(), seed=derive_seed(0, "simulator"))
    return setting, Predictor(simulator)


def measure(setting: EvidenceSetting, predict: Predictor, *, synthetic: bool = False) -> dict[str, Any]:
    """Both tables of one data set."""
    adapters: dict[str, Adapter] = {
        "local": Local(NoOptions()),
        "affine": Affine(NoOptions()),
        "gaussian": GaussianResiduals(GaussianOptions()),
    }
    inputs = {case.id: adapter_inputs(setting, predict, case) for case in setting.cases()}
    held_out = [list(case_trials(setting, case, inputs[case.id])) for case in setting.cases()]
    left_out = [list(training_trials(case, inputs[case.id])) for case in setting.cases()]
    tables = {
        "cases": {name: summary([result(a, trials) for trials in held_out]) for name, a in adapters.items()},
        "training": {name: summary([result(a, trials) for trials in left_out]) for name, a in adapters.items()},
    }
    with contextlib.suppress(ConfigError):  # GEARS without its members
        refitted = [[_refit(predict, case, trial) for trial in trials] for case, trials in _paired(setting, held_out)]
        tables["cases"]["refit"] = summary([result(Refitted(NoOptions()), trials) for trials in refitted])
    return {"synthetic": synthetic, "n_cases": len(held_out), "n_trials": sum(map(len, held_out)), **tables}


def case_trials(setting: EvidenceSetting, case: Case, inputs: AdapterInputs) -> Iterator[Trial]:
    """The case with each entry of its menu measured in turn, seeded as in a run with seed 0."""
    truth = setting.truth(case)
    for entry in case.menu:
        seen = setting.observe(case, entry, derive_seed(0, case.id, entry.id)).observation
        if seen.informs(inputs.readouts):
            yield Trial(case.readouts, inputs, seen, truth)


def training_trials(case: Case, inputs: AdapterInputs) -> Iterator[Trial]:
    """Each training perturbation as if it were the case: adapters learn from the others, one readout is measured.

    Measured value and truth are the same responses, so the noise of the measured readout is the training response's.
    """
    by_id = {r.id: r for r in case.readouts}
    for left_out in sorted({row.perturbation for row in inputs.training}):
        mine = [row for row in inputs.training if row.perturbation == left_out]
        rest = tuple(row for row in inputs.training if row.perturbation != left_out)
        if len({row.perturbation for row in rest}) < 2 or len(mine) < 2:
            continue
        readouts = tuple(by_id[row.readout] for row in mine)
        posed = AdapterInputs(
            readouts=tuple(row.readout for row in mine),
            predictions=tuple(Prediction(readout=row.readout, mean=row.predicted, sd=row.sd) for row in mine),
            training=rest,
        )
        truth = tuple(
            Truth(readout=r.id, label=r.classify(row.value), value=row.value, se=row.se)
            for r, row in zip(readouts, mine, strict=True)
        )
        for row in mine:
            seen = Observation(measurement=row.readout, readout=row.readout, value=row.value, se=row.se)
            yield Trial(readouts, posed, seen, truth)


def result(adapter: Adapter, trials: Sequence[Trial]) -> Result:
    """Sums over the unmeasured readouts of the trials of one case."""
    sums = np.zeros(8 + len(LEVELS))
    dof = DOF if isinstance(adapter, GaussianResiduals) else None
    for trial in trials:
        stages = (trial.inputs.predictions, *(adapter.calibrate(trial.inputs, o) for o in ([], [trial.observation])))
        for readout, truth, raw, before, made in zip(trial.readouts, trial.truth, *stages, strict=True):
            if readout.id == trial.observation.readout or truth.value is None:
                continue
            spread = float(np.hypot(made.sd, truth.se or 0.0))
            miss = abs(made.mean - truth.value)
            sums += [
                1,
                abs(raw.mean - truth.value),
                abs(before.mean - truth.value),
                miss,
                *(readout.classify(p.mean) == truth.label for p in (raw, before, made)),
                readout.decide(made.model_copy(update={"dof": DOF})) == truth.label,
                *(miss <= reach(level, dof) * spread for level in LEVELS),
            ]
    whole = [round(x) for x in sums]
    errors = sums[1], sums[2], sums[3]
    return Result(whole[0], *errors, whole[4], whole[5], whole[6], whole[7], within=tuple(whole[8:]))


def reach(level: float, dof: float | None) -> float:
    """Half the width of the central interval of this level, in standard deviations."""
    if dof is None:
        return float(student.ppf(0.5 + level / 2, 1e9))
    return float(student.ppf(0.5 + level / 2, dof) * np.sqrt((dof - 2) / dof))


def summary(results: Sequence[Result]) -> dict[str, Any] | None:
    """Ratios of sums over cases, and intervals over drawn cases; None without an unmeasured readout.

    Changes are of the adapter after the measurement, against the raw simulator and against the adapter before it.
    """
    rows = np.array([(*r[:-1], *r.within) for r in results], dtype=float)
    names = [*Result._fields[:-1], *(f"{level:.0%}" for level in LEVELS)]
    total = dict(zip(names, rows.sum(axis=0), strict=True))
    if total["n"] == 0:
        return None
    drawn = draw_cases(len(rows), derive_seed(0, "bootstrap")) @ rows
    draws = dict(zip(names, drawn[drawn[:, 0] > 0].T, strict=True))

    def mean(name: str) -> float:
        return _round(total[name] / total["n"])

    def error_change(since: str) -> dict[str, float]:
        return _interval(
            100 * (total["error"] / total[since] - 1), 100 * (draws["error"] / np.maximum(draws[since], 1e-12) - 1)
        )

    def accuracy_change(since: str) -> dict[str, float]:
        return _interval((total["right"] - total[since]) / total["n"], (draws["right"] - draws[since]) / draws["n"])

    return {
        "n": int(total["n"]),
        "mae": {"raw": mean("raw_error"), "before": mean("before_error"), "after": mean("error")},
        "mae_change_percent": error_change("raw_error"),
        "mae_change_percent_by_measuring": error_change("before_error"),
        "accuracy": {"raw": mean("raw_right"), "before": mean("before_right"), "after": mean("right")},
        "accuracy_change": accuracy_change("raw_right"),
        "accuracy_change_by_measuring": accuracy_change("before_right"),
        "accuracy_most_probable": mean("right_posterior"),
        "coverage": {f"{level:.0%}": mean(f"{level:.0%}") for level in LEVELS},
    }


def _paired(setting: EvidenceSetting, trials: Sequence[list[Trial]]) -> Iterator[tuple[Case, list[Trial]]]:
    return zip(setting.cases(), trials, strict=True)


def _refit(predict: Predictor, case: Case, trial: Trial) -> Trial:
    refit: Any = getattr(predict.simulator, "refit", None)
    if refit is None:
        raise ConfigError(f"{type(predict.simulator).__name__} cannot be refitted")
    made = refit(case.perturbation, trial.inputs.readouts, [trial.observation])
    refits = (Refit(measurements=(trial.observation.measurement,), predictions=made),)
    return trial._replace(inputs=trial.inputs.model_copy(update={"refits": refits}))


def _interval(value: float, draws: Array) -> dict[str, float]:
    low, high = np.percentile(draws, [2.5, 97.5])
    return {"value": _round(value), "low": _round(low), "high": _round(high)}


def _round(value: float) -> float:
    return round(float(value), 4) + 0.0


def _lines(name: str, report: Mapping[str, Any]) -> Iterator[str]:
    yield f"\n{name}{' (SYNTHETIC)' if report['synthetic'] else ''}: {report['n_cases']} cases"
    for table in ("cases", "training"):
        for adapter, s in report[table].items():
            if s is None:
                yield f"  {table:9} {adapter:9} too few training perturbations"
                continue
            covered = " ".join(f"{v:.2f}" for v in s["coverage"].values())
            yield f"  {table:9} {adapter:9} MAE {_stages(s['mae'], 4)} {_text(s['mae_change_percent'], 1)} %"
            yield f"    by measuring {_text(s['mae_change_percent_by_measuring'], 1)} %; coverage {covered}"
            yield f"    accuracy {_stages(s['accuracy'], 3)} {_text(s['accuracy_change'], 3)}"
            yield f"    by measuring {_text(s['accuracy_change_by_measuring'], 3)}"
            yield f"    by the most probable class {s['accuracy_most_probable']:.3f}"


def _stages(values: Mapping[str, float], digits: int) -> str:
    return " > ".join(f"{values[k]:.{digits}f}" for k in ("raw", "before", "after"))


def _text(change: Mapping[str, float], digits: int) -> str:
    value, low, high = (f"{change[k]:+.{digits}f}" for k in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


if __name__ == "__main__":
    main()

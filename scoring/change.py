"""Scores of predicted expression on its change from control, with naive predictions beside.

On absolute expression "nothing happens" already correlates above 0.95, so the headline is taken on the change. A
prediction without variance has no correlation: that is reported as null with a reason and counted, never as 0 or 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evidence.errors import ContractError
from evidence.values import Name, Value

Array = NDArray[np.float64]
_FLAT = 1e-12
"""A change whose standard deviation is below this, relative to expression of order 1, is constant."""


class Score(Value):
    """A number, or null and the reason why there is none."""

    value: float | None
    reason: str = ""


class ChangeScores(Value):
    """One perturbation. All but `absolute_pearson` are on change from control; mae and rmse are in log1p units."""

    perturbation: Name
    pearson: Score
    mae: float
    rmse: float
    absolute_pearson: Score


class PredictorReport(Value):
    """One predictor over many perturbations. Means are over the perturbations where the score is defined."""

    predictor: Name
    n: int
    n_undefined: int
    n_missing: int
    pearson: float | None
    mae: float | None
    rmse: float | None
    each: tuple[ChangeScores, ...]


def score_change(perturbation: str, *, control: ArrayLike, truth: ArrayLike, predicted: ArrayLike) -> ChangeScores:
    """Score one prediction. control, truth, predicted: (n_genes,) means. Raises ContractError unless finite."""
    base, true, guess = (np.asarray(x, dtype=np.float64) for x in (control, truth, predicted))
    if not base.shape == true.shape == guess.shape or base.ndim != 1:
        raise ContractError(f"{perturbation}: expected three (n_genes,), got {base.shape}, {true.shape}, {guess.shape}")
    if not all(np.isfinite(x).all() for x in (base, true, guess)):
        raise ContractError(f"{perturbation}: expression that is not finite cannot be scored")
    error = guess - true
    return ChangeScores(
        perturbation=perturbation,
        pearson=_pearson(guess - base, true - base, "change"),
        mae=float(np.abs(error).mean()),
        rmse=float(np.sqrt((error**2).mean())),
        absolute_pearson=_pearson(guess, true, "expression"),
    )


def compare_predictors(
    *,
    control: ArrayLike,
    truth: Mapping[str, ArrayLike],
    predicted: Mapping[str, Mapping[str, ArrayLike]],
) -> tuple[PredictorReport, ...]:
    """Score several predictors on the same perturbations.

    truth: perturbation -> mean expression; predicted: predictor -> perturbation -> mean expression. A predictor without
    an entry for a perturbation has it counted as missing.
    """
    reports = []
    for name, guesses in predicted.items():
        each = tuple(
            score_change(p, control=control, truth=truth[p], predicted=guesses[p]) for p in truth if p in guesses
        )
        defined = [s.pearson.value for s in each if s.pearson.value is not None]
        reports.append(
            PredictorReport(
                predictor=name,
                n=len(each),
                n_undefined=len(each) - len(defined),
                n_missing=len(truth) - len(each),
                pearson=_mean(defined),
                mae=_mean([s.mae for s in each]),
                rmse=_mean([s.rmse for s in each]),
                each=each,
            )
        )
    return tuple(reports)


def naive_predictions(
    perturbations: Sequence[str], *, control: ArrayLike, training: Mapping[str, ArrayLike]
) -> dict[str, dict[str, Array]]:
    """Three naive predictors. training: mean expression of training perturbations by id (`A`, `A+B`).

    `no change`: the control. `mean`: the mean of all training perturbations. `additive`: control + change of A + change
    of B, for pairs whose two singles are in training; it has no entry for the others.
    """
    base = np.asarray(control, dtype=np.float64)
    known = {name: np.asarray(x, dtype=np.float64) for name, x in training.items()}
    naive: dict[str, dict[str, Array]] = {"no change": dict.fromkeys(perturbations, base)}
    if known:
        average = np.asarray(np.mean(list(known.values()), axis=0), dtype=np.float64)
        naive["mean"] = dict.fromkeys(perturbations, average)
    parts = {p: p.split("+") for p in perturbations}
    naive["additive"] = {
        p: np.asarray(base + np.sum([known[gene] - base for gene in genes], axis=0))
        for p, genes in parts.items()
        if all(gene in known for gene in genes)
    }
    return naive


def _pearson(a: Array, b: Array, what: str) -> Score:
    for values, whose in ((a, "predicted"), (b, "true")):
        if values.std() <= _FLAT:
            return Score(value=None, reason=f"the {whose} {what} has no variance over {len(values)} genes")
    return Score(value=float(np.corrcoef(a, b)[0, 1]))


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None

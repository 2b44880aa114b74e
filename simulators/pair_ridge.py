"""Kernel ridge regression on pairs of drugs: predicts a score per cell line from who else scores how with whom.

Two drugs are alike if their SMILES share pieces and their single-agent curves agree, over all lines and in the line
that is asked for. Two pairs are alike if their drugs are, in whichever order. One regression a line, pairs held out:
training pairs are predicted by the regression without themselves (closed form), so that their residuals are honest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evidence.contracts import Perturbation, Prediction
from evidence.drug_synergy import PairScores
from evidence.errors import ConfigError, ContractError, did_you_mean
from evidence.values import Number, Value

Array = NDArray[np.float64]
PIECE = 3


class PairRidgeOptions(Value):
    """ridge: weight of the penalty, in units of a pair's own similarity (1)."""

    ridge: Annotated[Number, Field(gt=0)] = 0.3


class _Fit(NamedTuple):
    """One line's regression. kernel: (n, n) with the ridge; weights, left_out: (n,). sd: of left-out errors."""

    known: tuple[int, ...]
    mean: float
    weights: Array
    left_out: Array
    sd: float


class PairRidge:
    """Simulator of kind "pair_scores"."""

    Options: ClassVar[type[Value]] = PairRidgeOptions
    accepts: ClassVar[str] = PairScores.kind

    def __init__(self, options: PairRidgeOptions):
        self.options = options
        self._training: PairScores | None = None
        self._drugs: tuple[str, ...] = ()
        self._fits: dict[str, tuple[_Fit, Array]] = {}

    def fit(self, training: PairScores, *, seed: int) -> None:
        """Keep the training pairs; a line's regression is solved when it is first asked for. Nothing is random."""
        if getattr(training, "kind", None) != self.accepts:
            raise ContractError(f"expected training data of kind {self.accepts!r}, got {type(training).__name__}")
        self._training = training
        self._drugs = tuple(sorted({drug for pair in training.pairs for drug in pair}))
        self._fits = {}

    def predict(self, perturbation: Perturbation, readouts: Sequence[str]) -> tuple[Prediction, ...]:
        """The pair's score in each line, with the spread of left-out errors of that line."""
        if self._training is None:
            raise ContractError("expected fit before predict")
        return tuple(self._predict(self._training, perturbation, line) for line in readouts)

    def _predict(self, training: PairScores, perturbation: Perturbation, line: str) -> Prediction:
        if line not in training.lines:
            raise ConfigError(f"no cell line {line!r}.{did_you_mean(line, training.lines)}")
        unknown = [drug for drug in perturbation.targets if drug not in self._drugs]
        if unknown or len(perturbation.targets) != 2:
            raise ConfigError(
                f"{perturbation.id}: expected two drugs of the training pairs, got {perturbation.targets}"
            )
        if line not in self._fits:
            self._fits[line] = _solve(training, self._drugs, line, self.options.ridge)
        fitted, drug_kernel = self._fits[line]
        pair = tuple(sorted(perturbation.targets))
        places = {training.pairs[i]: n for n, i in enumerate(fitted.known)}
        if pair in places:
            value = fitted.left_out[places[pair]]
        else:
            asked = np.array([[self._drugs.index(drug) for drug in pair]])
            known = _indices(training.pairs, fitted.known, self._drugs)
            value = fitted.mean + float((_pair_kernel(drug_kernel, asked, known) @ fitted.weights)[0])
        return Prediction(readout=line, mean=float(value), sd=fitted.sd)


def _solve(training: PairScores, drugs: Sequence[str], line: str, ridge: float) -> tuple[_Fit, Array]:
    """One line's regression and its drug kernel (n_drugs, n_drugs)."""
    y = training.scores[:, training.lines.index(line)]
    known = tuple(int(i) for i in np.flatnonzero(np.isfinite(y)))
    mean = float(y[list(known)].mean())
    drug_kernel = _drug_kernel(training, drugs, line)
    index = _indices(training.pairs, known, drugs)
    inverse = np.linalg.inv(_pair_kernel(drug_kernel, index, index) + ridge * np.eye(len(known)))
    weights = inverse @ (y[list(known)] - mean)
    error = weights / np.diag(inverse)  # y - prediction without it
    return _Fit(known, mean, weights, y[list(known)] - error, float(error.std())), drug_kernel


def _pair_kernel(drugs: Array, a: NDArray[np.intp], b: NDArray[np.intp]) -> Array:
    """(len(a), len(b)): mean similarity of the drugs, plus that of the couples, in either order; 1 of a pair with
    itself at most."""
    one, other = a[:, :1], a[:, 1:]
    straight = drugs[one, b[:, 0]], drugs[other, b[:, 1]]
    crossed = drugs[one, b[:, 1]], drugs[other, b[:, 0]]
    alike = (straight[0] + straight[1] + crossed[0] + crossed[1]) / 4
    couples = (straight[0] * straight[1] + crossed[0] * crossed[1]) / 2
    return np.asarray((alike + couples) / 2)


def _drug_kernel(training: PairScores, drugs: Sequence[str], line: str) -> Array:
    pieces = [Counter(_pieces(training.smiles.get(drug.upper(), ""))) for drug in drugs]
    names = sorted({piece for found in pieces for piece in found})
    chemistry = np.array([[np.sqrt(found[name]) for name in names] for found in pieces]).reshape(len(drugs), -1)
    overall = np.array([_profile(training.curves, drug, training.lines) for drug in drugs])
    here = np.array([_profile(training.curves, drug, (line,)) for drug in drugs])
    return np.asarray((_cosine(chemistry) + _gauss(overall) + _gauss(here) + np.eye(len(drugs))) / 4)


def _pieces(smiles: str) -> list[str]:
    return [smiles[i : i + PIECE] for i in range(len(smiles) - PIECE + 1)]


def _profile(curves: Mapping[tuple[str, str], Sequence[tuple[float, float]]], drug: str, lines: Sequence[str]) -> Array:
    """Mean inhibition at the lower and at the higher half of the doses in each line, as a fraction; 0 if unknown."""
    found = []
    for line in lines:
        effect = [value / 100 for _, value in curves.get((drug.upper(), line), ())]
        half = len(effect) // 2
        found += [float(np.mean(part)) if part else 0.0 for part in (effect[:half], effect[half:])]
    return np.array(found)


def _cosine(x: Array) -> Array:
    unit = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    return np.asarray(unit @ unit.T)


def _gauss(x: Array) -> Array:
    squared = ((x[:, None] - x[None]) ** 2).sum(axis=-1)
    scale = np.median(squared[squared > 0]) if (squared > 0).any() else 1.0
    return np.asarray(np.exp(-squared / scale))


def _indices(pairs: Sequence[tuple[str, str]], known: Sequence[int], drugs: Sequence[str]) -> NDArray[np.intp]:
    at = {drug: n for n, drug in enumerate(drugs)}
    return np.array([[at[drug] for drug in pairs[i]] for i in known], dtype=np.intp)

"""Do the probabilities of a run mean what they say: before and after the evidence, and beside the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from evidence.contracts import Answer, Prediction, Readout, Truth
from loops.cells import STAGES, Cell
from scoring.calibration import (
    Calibration,
    calibration,
    confidence_calibration,
    interval_coverage,
    normal_class_probabilities,
)
from scoring.metrics import rounded

Predicted = Sequence[tuple[Readout, Truth, Prediction]]


def calibration_block(cells: Sequence[Cell]) -> dict[str, Any]:
    """Calibration by row of the table, for the rows that state any probability.

    A stage of the model may state `confidence` (that its label is right) and, for categorical readouts,
    `probabilities` of all labels. The simulator's and the adapter's probabilities are those of a normal with their mean
    and standard deviation, and `coverage` says how often their central intervals hold the true change; a standard
    deviation of 0 states no interval and is counted apart.
    """
    block: dict[str, Any] = {}
    for stage in STAGES:
        given = [pair for cell in cells for pair in _answered(cell, stage)]
        if any(answer.confidence is not None or answer.probabilities is not None for _, _, answer in given):
            block[stage] = {"confidence": _confidence(given), "probabilities": _probabilities(given)}
    simulated = [triple for cell in cells for triple in _numeric(cell, cell.simulated)]
    adapted = [triple for cell in cells for triple in _numeric(cell, cell.adapted)]
    for name, predicted in (("simulator alone", simulated), ("simulator + adapter", adapted)):
        if predicted:
            block[name] = {"probabilities": _of_predictions(predicted), **_coverage(predicted)}
    return block


def _answered(cell: Cell, stage: str) -> Iterable[tuple[Readout, Truth, Answer]]:
    answers = cell.answers.get(stage, ())
    for readout, truth, answer in zip(cell.case.readouts, cell.truth, answers, strict=False):
        if answer.label is not None:
            yield readout, truth, answer


def _numeric(cell: Cell, predictions: Sequence[Prediction]) -> Iterable[tuple[Readout, Truth, Prediction]]:
    for readout, truth, prediction in zip(cell.case.readouts, cell.truth, predictions, strict=False):
        if readout.numeric:
            yield readout, truth, prediction


def _confidence(given: Iterable[tuple[Readout, Truth, Answer]]) -> dict[str, Any]:
    stated = [(a.confidence, a.label == truth.label) for _, truth, a in given if a.confidence is not None]
    return _plain(confidence_calibration([c for c, _ in stated], [right for _, right in stated]))


def _probabilities(given: Iterable[tuple[Readout, Truth, Answer]]) -> dict[str, Any]:
    """Of answers with a probability for every label. Replies may round: each row is scaled to sum to 1."""
    stated = [(r, truth, a.probabilities) for r, truth, a in given if a.probabilities is not None]
    table = np.zeros((len(stated), max((len(r.labels) for r, _, _ in stated), default=0)))
    for row, (_, _, p) in zip(table, stated, strict=True):
        row[: len(p)] = np.array(p) / sum(p)
    return _plain(calibration(table, [r.labels.index(truth.label) for r, truth, _ in stated]))


def _of_predictions(predicted: Predicted) -> dict[str, Any]:
    table = normal_class_probabilities(
        [p.mean for _, _, p in predicted],
        [p.sd for _, _, p in predicted],
        [r.threshold or 0.0 for r, _, _ in predicted],
    )
    return _plain(calibration(table, [r.labels.index(truth.label) for r, truth, _ in predicted]))


def _coverage(predicted: Predicted) -> dict[str, Any]:
    spread = [(p.mean, p.sd, truth.value) for _, truth, p in predicted if p.sd > 0 and truth.value is not None]
    mean, sd, value = np.array(spread, dtype=float).reshape(len(spread), 3).T
    covered = {f"{c.level:g}": c.covered for c in interval_coverage(mean, sd, value)}
    return {"coverage": {"n": len(spread), "n_without_sd": len(predicted) - len(spread), "covered": covered}}


def _plain(found: Calibration) -> dict[str, Any]:
    """As it is written: the curve without its empty bins."""
    return {
        "n": found.n,
        "brier": rounded(found.brier),
        "ece": rounded(found.ece),
        "curve": [
            {
                "low": rounded(b.low),
                "high": rounded(b.high),
                "n": b.n,
                "confidence": rounded(b.confidence),
                "accuracy": rounded(b.accuracy),
            }
            for b in found.bins
            if b.n
        ],
    }


def calibration_lines(block: Mapping[str, Any]) -> Iterator[str]:
    """Brier score and calibration error for a terminal."""
    for kind in ("confidence", "probabilities"):
        stated = {name: row[kind] for name, row in block.items() if row.get(kind, {}).get("n")}
        if stated:
            listed = ", ".join(f"{name} {c['brier']:.3f}/{c['ece']:.3f}" for name, c in stated.items())
            yield f"calibration of {kind}, Brier score/calibration error: {listed}"

"""Do the probabilities of a run mean what they say: before and after the evidence, and beside the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from loops.answers import by_width, sums
from loops.blocks import ADAPTED, SIMULATED
from loops.columns import Columns, Row
from loops.run_events import STAGES
from scoring.calibration import (
    Calibration,
    calibration,
    confidence_calibration,
    interval_coverage,
    normal_class_probabilities,
)
from scoring.metrics import rounded


def calibration_block(columns: Columns) -> dict[str, Any]:
    """Calibration by row of the table, for the rows that state any probability.

    A stage of the model may state `confidence` (that its label is right) and, for categorical readouts,
    `probabilities` of all labels. The simulator's and the adapter's probabilities are those of a normal with their mean
    and standard deviation, and `coverage` says how often their central intervals hold the true change; a standard
    deviation of 0 states no interval and is counted apart.
    """
    block: dict[str, Any] = {}
    for stage in STAGES:
        row = columns.rows.get(stage)
        if row is not None and (row.probabilities or not np.isnan(row.more[0]).all()):
            block[stage] = {"confidence": _confidence(columns, row), "probabilities": _probabilities(row)}
    for name in (SIMULATED, ADAPTED):
        row = columns.rows.get(name)
        if row is not None and columns.predicted(row).any():
            block[name] = _of_predictions(columns, row)
    return block


def _confidence(columns: Columns, row: Row) -> dict[str, Any]:
    stated = row.more[0]
    there = ~np.isnan(stated)
    right = row.label == columns.truth
    return _plain(confidence_calibration(stated[there], right[there]))


def _probabilities(row: Row) -> dict[str, Any]:
    """Of answers with a probability for every label. Replies may round: each row is scaled to sum to 1."""
    stated = row.probabilities
    table = np.zeros((len(stated), max((width for _, _, width in stated), default=0)))
    for places, rows in by_width([p for p, _, _ in stated]):
        table[places, : rows.shape[1]] = rows / sums(rows)[:, None]
    return _plain(calibration(table, [place for _, place, _ in stated]))


def _of_predictions(columns: Columns, row: Row) -> dict[str, Any]:
    there = columns.predicted(row)
    mean, sd = (column[there] for column in row.more)
    threshold, value = columns.threshold[there], columns.value[there]
    table = normal_class_probabilities(mean, sd, threshold)
    spread = (sd > 0) & ~np.isnan(value)
    n = int(spread.sum())
    covered = {f"{c.level:g}": c.covered for c in interval_coverage(mean[spread], sd[spread], value[spread])}
    return {
        "probabilities": _plain(calibration(table, columns.place[there])),
        "coverage": {"n": n, "n_without_sd": len(mean) - n, "covered": covered},
    }


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

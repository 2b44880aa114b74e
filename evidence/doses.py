"""Doses of single perturbations and pairs, kept with their drugs: texts are read once, here."""

from __future__ import annotations

import math
from collections.abc import Collection

from evidence.conditions import CONTROL_LABELS, normalise_condition
from evidence.errors import DataError
from evidence.perturbed import PerturbedCells


def target_doses(label: str, text: str, controls: Collection[str] = CONTROL_LABELS) -> tuple[float, ...]:
    """Doses in the order of the condition's sorted targets: `C+B` with `0.25+1.0` is B 1.0, C 0.25.

    A text has one dose for each part of the label, control parts included, or one for each target.
    """
    condition = normalise_condition(label, controls)
    parts = [part.strip() for part in label.split("+")]
    try:
        given = [float(part) for part in text.split("+")]
    except ValueError:
        raise DataError(f"condition {label!r}: dose {text!r} is not a number for each part") from None
    named = [part for part in parts if part not in controls]
    if len(given) == len(parts):
        found = dict(zip(parts, given, strict=True))
    elif len(given) == len(named):
        found = dict(zip(named, given, strict=True))
    elif not named:
        found = {}
    else:
        raise DataError(f"condition {label!r}: expected {len(parts)} doses, got {len(given)} ({text!r})")
    return tuple(found[target] for target in condition.targets)


def check_doses(cells: PerturbedCells, doses: tuple[tuple[float, ...], ...]) -> None:
    """Raise DataError unless there is one finite dose of at least 0 for every target of every cell."""
    if len(doses) != len(cells.conditions):
        raise DataError(f"expected doses of {len(cells.conditions)} cells, got {len(doses)}")
    for barcode, condition, dose in zip(cells.barcodes, cells.conditions, doses, strict=True):
        if len(dose) != len(condition.targets) or not all(math.isfinite(d) and d >= 0 for d in dose):
            raise DataError(f"cell {barcode}: expected one dose for each of {list(condition.targets)}, got {dose}")

"""Cells of every condition in disjoint parts: training, truth, reserved.

How cells are shared out is data: a `SplitRule` of the setting. Rows of a condition are permuted with a seed derived
from (seed, 'split', condition): reserved cells first, then training, then truth. No value of any cell is looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evidence.conditions import Condition
from evidence.errors import DataError
from evidence.values import derive_seed

Rows = NDArray[np.intp]
PartName = Literal["training", "truth", "reserved"]
HALF = Fraction(1, 2)


class Parts(NamedTuple):
    """Row numbers of one condition: disjoint parts, each sorted."""

    training: Rows
    truth: Rows
    reserved: Rows


class Share(NamedTuple):
    """How the cells of one condition are shared out.

    reserved: that many, but at most the fraction `at_most` of all. truth: the fraction of the rest, to the nearest
    whole number, halves up; what is left is training. least: fewer cells than this are refused.
    """

    reserved: int = 0
    at_most: Fraction = Fraction(1)
    truth: Fraction = Fraction(0)
    least: int = 0


class SplitRule(NamedTuple):
    """The shares of a setting, by the kind of condition. case: a pair that is held out; pair: any other."""

    case: Share
    pair: Share
    single: Share
    control: Share

    def share(self, condition: Condition, held_out: Collection[Condition]) -> Share:
        """The share of a condition."""
        if condition in held_out:
            return self.case
        return self.control if condition.control else self.pair if condition.double else self.single


def split_rows(rows: Rows, share: Share, seed: int, name: str) -> Parts:
    """The parts of one condition. seed: derived for it. Raises DataError, naming it, for too few cells."""
    if len(rows) < share.least:
        raise DataError(f"{name}: expected at least {share.least} cells, got {len(rows)}")
    mixed = np.random.default_rng(seed).permutation(rows)
    reserved = min(share.reserved, int(share.at_most * len(rows)))
    at = len(rows) - int(share.truth * (len(rows) - reserved) + HALF)
    return Parts(np.sort(mixed[reserved:at]), np.sort(mixed[at:]), np.sort(mixed[:reserved]))


def split_conditions(
    rows: Mapping[Condition, Rows], held_out: Collection[Condition], rule: SplitRule, seed: int
) -> dict[Condition, Parts]:
    """The parts of every condition. rows: condition -> its rows. Raises DataError for a held-out pair without cells."""
    absent = sorted(c.id for c in held_out if c not in rows)
    if absent:
        raise DataError(f"the data has no cell of {', '.join(absent)}, which the case file holds out")
    parts = {
        c: split_rows(r, rule.share(c, held_out), derive_seed(seed, "split", c.id), "control" if c.control else c.id)
        for c, r in rows.items()
    }
    check_parts(parts, sum(map(len, rows.values())))
    return parts


def check_parts(parts: Mapping[Any, Parts], n_cells: int) -> None:
    """Raise AssertionError unless the parts are disjoint and leave no cell out."""
    rows = np.concatenate([part for three in parts.values() for part in three])
    if len(np.unique(rows)) != len(rows) or len(rows) != n_cells:
        raise AssertionError("the parts of the split are not disjoint, or leave cells out")


def part_sizes(parts: Mapping[Condition, Parts]) -> dict[str, dict[str, int]]:
    """Condition id -> part -> number of cells, as case files have it."""
    return {c.id: {part: len(taken) for part, taken in three._asdict().items()} for c, three in parts.items()}


def training_rows(parts: Mapping[Condition, Parts]) -> Rows:
    """Rows of the training parts, in the order of the cells."""
    return np.sort(np.concatenate([three.training for three in parts.values()]))

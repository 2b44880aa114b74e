"""`vcloop power`: the number of cases for a stated gain, from stated numbers or from what archived runs showed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evidence.errors import ConfigError
from loops.compare import items_of
from loops.contenders import read_contenders, read_pilots
from scoring.metrics import rounded
from scoring.power import cases_needed, independent_discordance, intraclass_correlation

READOUTS_PER_CASE = 4.0
ICC = 0.2


class Plan(NamedTuple):
    """What was asked: None is estimated from runs where there are any, else taken as stated above."""

    gain: float
    baseline: float | None = None
    discordance: float | None = None
    readouts_per_case: float | None = None
    icc: float | None = None
    alpha: float = 0.05
    power: float = 0.8


class Seen(NamedTuple):
    """What runs showed: accuracies of first and second, share of discordant readouts, readouts a case, ICC."""

    first: float
    second: float
    discordance: float
    readouts_per_case: float
    icc: float | None
    n_cases: int


def plan(asked: Plan, runs: Sequence[Path] = ()) -> dict[str, Any]:
    """The number of cases and all it follows from. Raises ConfigError where a number is missing or impossible."""
    seen = _seen(runs) if runs else None
    readouts = _first(asked.readouts_per_case, seen and seen.readouts_per_case, READOUTS_PER_CASE)
    icc = _first(asked.icc, seen and seen.icc, ICC)
    discordance = asked.discordance
    if discordance is None and asked.baseline is not None:
        discordance = independent_discordance(asked.baseline, asked.gain)
    if discordance is None and seen is not None:
        # a run that showed less change than the gain wanted would need at least that much
        discordance = max(seen.discordance, asked.gain)
    if discordance is None:
        raise ConfigError("say --baseline or --discordance, or name a run with --from")
    size = cases_needed(
        gain=asked.gain,
        discordance=discordance,
        readouts_per_case=readouts,
        icc=icc,
        alpha=asked.alpha,
        power=asked.power,
    )
    return {
        **size._asdict(),
        "design_effect": rounded(size.design_effect),
        "gain": asked.gain,
        "discordance": rounded(discordance),
        "readouts_per_case": rounded(readouts),
        "icc": rounded(icc),
        "alpha": asked.alpha,
        "power": asked.power,
        "seen": None
        if seen is None
        else {**{k: rounded(v) for k, v in seen._asdict().items()}, "n_cases": seen.n_cases},
    }


def _first(*values: float | None) -> float:
    """The first number that is there."""
    return next(value for value in values if value is not None)


def _seen(folders: Sequence[Path]) -> Seen:
    """One run: initial to revised. Two runs of one pilot: the revised answers of the first and of the second."""
    if len(folders) > 2:
        raise ConfigError(f"--from: expected one run or two, got {len(folders)}")
    if len(folders) == 2:
        pilot = read_pilots(folders, finished_only=True)[0]
        sides = [items_of(c, pilot.cases) for c in pilot.contenders]
        stages = ("revised", "revised")
    else:
        (contender,) = read_contenders(folders)
        items = items_of(contender, tuple(contender.finished))
        sides, stages = [items, items], ("initial", "revised")
    cases = sides[0].case
    n_cases = len(np.unique(cases))
    if not n_cases:
        raise ConfigError(f"--from: {folders[0]} has no finished case to learn from")
    first, second = (side.majority(stage).astype(float) for side, stage in zip(sides, stages, strict=True))
    return Seen(
        first=float(first.mean()),
        second=float(second.mean()),
        discordance=float((first != second).mean()),
        readouts_per_case=len(cases) / n_cases,
        icc=intraclass_correlation(second - first, cases),
        n_cases=n_cases,
    )


def plan_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The plan for a terminal."""
    seen = found["seen"]
    if seen:
        icc = "not to be told" if seen["icc"] is None else f"{seen['icc']:.3f}"
        yield (
            f"seen in {seen['n_cases']} cases: accuracy {100 * seen['first']:.1f} % and {100 * seen['second']:.1f} %, "
            f"discordance {seen['discordance']:.3f}, {seen['readouts_per_case']:g} readouts a case, ICC {icc}"
        )
    yield (
        f"{found['cases']} cases ({found['readouts']} readouts) find a gain of {100 * found['gain']:g} points with "
        f"power {found['power']:g} at level {found['alpha']:g}"
    )
    yield (
        f"from {found['pairs']} independent pairs at discordance {found['discordance']:.3f}, design effect "
        f"{found['design_effect']:.2f} = 1 + ({found['readouts_per_case']:g} - 1) x ICC {found['icc']:g}; "
        f"fewer than {found['fewest']} cases can show nothing"
    )

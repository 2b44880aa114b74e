"""A generated twin of ComboSciPlex: its conditions and drug names, a fifth of its cell counts, known program effects.

The names and counts are those of the published data (Lotfollahi et al. 2023; 32 conditions, 63,378 cells). Every number
of expression is made up: effects of drugs on three programs, how pairs depart from their sum, and noise of counting.
RandomState is used because its streams are frozen for good: the same cells come out on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

from evidence.conditions import Condition, normalise_condition
from evidence.perturbed import DataCard, PerturbedCells, make_cells

Array = NDArray[np.float64]
TWIN_CARD = DataCard(name="combosciplex_twin", cell_line="A549 (generated)", modality="drugs, generated cells")
SEED = 20230511
CELLS_PART = 5
DEPTH = 4000.0
PROGRAM_GENES, BACKGROUND_GENES = 30, 60
PREFIXES = ("ACR", "HSR", "PRO")
"""Made-up genes of three programs: acetylation response, heat-shock response, proliferation; BKG genes do not react."""

CELL_COUNTS: Mapping[str, int] = {
    "control+control": 1451,
    "control+Dasatinib": 2343,
    "control+Givinostat": 1682,
    "control+Panobinostat": 1578,
    "control+SRT2104": 2756,
    "control+Alvespimycin": 758,
    "control+Dacinostat": 1869,
    "Panobinostat+Crizotinib": 1641,
    "Panobinostat+Curcumin": 2244,
    "Panobinostat+SRT1720": 1826,
    "Panobinostat+Sorafenib": 2013,
    "SRT2104+Alvespimycin": 520,
    "Alvespimycin+Pirarubicin": 476,
    "Cediranib+PCI-34051": 2161,
    "Dacinostat+Danusertib": 1939,
    "Dacinostat+Dasatinib": 1231,
    "Dacinostat+PCI-34051": 3298,
    "Givinostat+Carmofur": 2692,
    "Givinostat+Cediranib": 2783,
    "Givinostat+Crizotinib": 2662,
    "Givinostat+Curcumin": 2736,
    "Givinostat+Dasatinib": 2421,
    "Givinostat+SRT1720": 2260,
    "Givinostat+SRT2104": 2353,
    "Givinostat+Sorafenib": 2734,
    "Givinostat+Tanespimycin": 1310,
    "Panobinostat+Alvespimycin": 996,
    "Panobinostat+Dasatinib": 1955,
    "Panobinostat+PCI-34051": 1814,
    "Panobinostat+SRT2104": 1971,
    "Panobinostat+SRT3025": 1889,
    "SRT3025+Cediranib": 3016,
}
"""Conditions and cell counts of the published data."""

DRUG_EFFECTS: Mapping[str, tuple[float, float, float]] = {
    "Panobinostat": (1.2, 0.25, -0.9),
    "Dacinostat": (1.0, 0.2, -0.7),
    "Givinostat": (0.8, 0.1, -0.5),
    "PCI-34051": (0.25, 0.0, -0.05),
    "Alvespimycin": (0.1, 1.1, -0.8),
    "Tanespimycin": (0.05, 0.9, -0.5),
    "Dasatinib": (0.0, 0.05, -0.4),
    "Cediranib": (0.05, 0.1, -0.15),
    "Crizotinib": (0.1, 0.2, -0.35),
    "Sorafenib": (0.05, 0.35, -0.3),
    "Danusertib": (0.1, 0.05, -0.9),
    "SRT1720": (-0.15, 0.25, -0.1),
    "SRT2104": (-0.05, 0.0, 0.05),
    "SRT3025": (-0.3, 0.4, -0.45),
    "Carmofur": (0.05, 0.1, -0.3),
    "Pirarubicin": (0.2, -0.1, -1.0),
    "Curcumin": (0.1, 0.3, -0.2),
}
"""Made-up change of log expression of each program's genes, for a gene of loading 1."""

SATURATION = 0.5
"""A pair whose drugs push a program the same way reaches this part of the weaker push less than the sum."""
PAIR_SD = 0.15
"""Departure of each pair from the rule, the same in every cell of it: what no simulator can know."""


@cache
def make_twin(seed: int = SEED, part: int = CELLS_PART) -> PerturbedCells:
    """The twin's cells, made once a process: log1p of counts per 1e4, (n_cells, 150), n_cells about 63,378 / part."""
    rng = np.random.RandomState(seed)
    loadings = _loadings(rng)
    base = rng.lognormal(-7.5, 0.6, size=len(loadings))
    effects = pair_effects(seed)
    rows, labels = [], []
    for label, published in CELL_COUNTS.items():
        n = round(published / part)
        condition = normalise_condition(label)
        depth = DEPTH * rng.lognormal(0.0, 0.3, size=(n, 1))
        activity = effects[condition] + rng.normal(0.0, 0.3, size=(n, len(PREFIXES)))
        counts = rng.poisson(depth * base * np.exp(activity @ loadings.T))
        rows.append(np.round(np.log1p(counts * (1e4 / depth)), 4))
        labels += [label] * n
    return make_cells(np.concatenate(rows), genes(), labels, card=TWIN_CARD)


def genes() -> tuple[str, ...]:
    """The twin's genes in column order."""
    own = [f"{prefix}{n:02d}" for prefix in PREFIXES for n in range(1, PROGRAM_GENES + 1)]
    return (*own, *(f"BKG{n:02d}" for n in range(1, BACKGROUND_GENES + 1)))


def pair_effects(seed: int = SEED) -> dict[Condition, Array]:
    """The known change of each program's log expression under every condition, (3,)."""
    rng = np.random.RandomState(seed + 1)
    conditions = [normalise_condition(label) for label in CELL_COUNTS]
    own = rng.normal(0.0, PAIR_SD, size=(len(conditions), len(PREFIXES)))
    return {c: _effect(c) + (own[n] if c.double else 0.0) for n, c in enumerate(conditions)}


def _effect(condition: Condition) -> Array:
    single = np.array([DRUG_EFFECTS[drug] for drug in condition.targets]).reshape(-1, len(PREFIXES))
    total = np.asarray(single.sum(axis=0), dtype=np.float64)
    if len(single) < 2:
        return total
    same_way = np.sign(single[0]) == np.sign(single[1])
    return np.asarray(total - SATURATION * same_way * np.sign(single[0]) * np.abs(single).min(axis=0))


def _loadings(rng: np.random.RandomState) -> Array:
    """(n_genes, 3): a program's own genes react with loadings around 1, the background with none."""
    found = np.zeros((len(PREFIXES) * PROGRAM_GENES + BACKGROUND_GENES, len(PREFIXES)))
    for number in range(len(PREFIXES)):
        rows = slice(number * PROGRAM_GENES, (number + 1) * PROGRAM_GENES)
        found[rows, number] = rng.uniform(0.5, 1.3, size=PROGRAM_GENES)
    return found

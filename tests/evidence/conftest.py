"""Fixtures: the real Sachs cells where this machine has them, and small made-up cells everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evidence import datasets
from evidence.sachs import SachsCells, make_cells, open_cells
from evidence.sachs_conditions import PROTEINS, Kind, conditions

SHARED = Path(__file__).parents[3] / "shared" / "data" / "sachs2005"


@pytest.fixture(scope="session")
def sachs_folder() -> Path:
    if SHARED.is_dir():
        return SHARED
    found = datasets.find("sachs2005")
    if found is None:
        pytest.skip(f"the Sachs cells are neither at {SHARED} nor in VCLOOP_DATA or the user cache (vcloop data)")
    return found


@pytest.fixture(scope="session")
def real_cells(sachs_folder: Path) -> SachsCells:
    return open_cells(sachs_folder)


def made_up(kind: Kind, seed: int = 0, per_condition: int = 300) -> SachsCells:
    """Cells of every condition of a kind: lognormal fluorescence or levels, correlated along the panel."""
    rng = np.random.default_rng(seed)
    labels = [entry.id for entry in conditions(kind) for _ in range(per_condition)]
    latent = rng.normal(size=(len(labels), len(PROTEINS)))
    latent += np.roll(latent, 1, axis=1)
    values = np.exp(latent + 3) if kind == "fluorescence" else 1.0 + (latent > -0.5) + (latent > 1.0)
    return make_cells(values, labels, kind, Path("made-up"))


@pytest.fixture(params=["fluorescence", "levels"])
def cells(request: pytest.FixtureRequest) -> SachsCells:
    return made_up(request.param)

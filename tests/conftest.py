"""What tests share: real data where it is on this machine, and a small run on the plugin's made-up strains."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from vcloop_heat_shock.setting import HeatShock

from evidence.case_files import write_case_file
from evidence.contracts import CaseFile
from evidence.datasets import find
from evidence.errors import DataError

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"


@pytest.fixture(autouse=True)
def _data_beside_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests use the shared data folder where there is one."""
    if SHARED.is_dir():
        monkeypatch.setenv("VCLOOP_DATA", str(SHARED))


@pytest.fixture
def sachs_cells() -> Path:
    """The real Sachs cells; the test is skipped where they are not on this machine."""
    try:
        found = find("sachs2005")
    except DataError as error:
        pytest.skip(f"needs the Sachs cells: {error}")
    if found is None:
        pytest.skip("needs the Sachs cells: vcloop data fetch sachs2005")
    return found


@pytest.fixture
def heat_shock_cases() -> CaseFile:
    """The plugin's case file: four cases with three readouts each."""
    return HeatShock.freeze(data=None, shape="all", seed=1, options={})


@pytest.fixture
def make_config(tmp_path: Path, heat_shock_cases: CaseFile) -> Callable[..., Path]:
    """Write a config on the plugin's cases; keyword arguments replace its keys (None removes one)."""
    write_case_file(tmp_path / "heat.json", heat_shock_cases)

    def make(**changes: Any) -> Path:
        config: dict[str, Any] = {
            "version": 1,
            "name": "heat",
            "cases": "heat.json",
            "simulator": "mean_response",
            "adapter": "affine",
            "interpreter": "rules",
            "attempts": {"backoff_s": 0},
        }
        config.update(changes)
        path = tmp_path / "heat.yaml"
        path.write_text(yaml.safe_dump({k: v for k, v in config.items() if v is not None}))
        return path

    return make


def answer(labels: Mapping[str, str], measurement: str | None = None, **more: Any) -> str:
    """A well-formed reply with these labels."""
    body: dict[str, Any] = {"answers": {k: {"label": v} for k, v in labels.items()}, "explanation": "because", **more}
    if measurement is not None:
        body["measurement"] = measurement
    return json.dumps(body)

"""`vcloop simulate`: train a simulator once and store its predictions, so that no loop trains by accident."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field

from evidence.contracts import CaseFile
from evidence.errors import ConfigError
from evidence.registry import SETTINGS, TRAINERS
from evidence.strict_yaml import read_value
from evidence.values import Value
from simulators.response_table import ResponseTable, save_table


class SimulateConfig(Value):
    """One training. Paths are relative to the config file.

    cases: the case file whose perturbations are held out. members: networks of the ensemble. annotations: gene terms,
    where the simulator needs them. options: the simulator's own. out: the response table to write (.npz).
    """

    version: Literal[1]
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    cases: str
    data: str | None = None
    annotations: str | None = None
    members: int = Field(default=2, ge=1, le=100)
    seed: int = 0
    options: dict[str, Any] = {}
    out: str = Field(pattern=r"\.npz$")


class Simulated(NamedTuple):
    """The table that was written, and where."""

    table: ResponseTable
    path: Path


def simulate(trainer: str, config_path: Path, work: Path, say: Callable[[str], None]) -> Simulated:
    """Train and write the response table; members already trained in `work` are taken from there.

    Raises ConfigError for a bad config or a setting without cells, DataError for data that cannot be trained on.
    """
    config = read_value(config_path, SimulateConfig, what="config")
    train = TRAINERS.get(trainer)
    base = config_path.parent
    case_file = read_value(base / config.cases, CaseFile, what="case file")
    setting = SETTINGS.get(case_file.setting).open(case_file, _path(base, config.data))
    cell_data = getattr(setting, "cell_data", None)
    if cell_data is None:
        raise ConfigError(f"config {config_path}: setting {case_file.setting!r} has no cells to train a simulator on")
    table: ResponseTable = train(
        cell_data(),
        options=config.options,
        members=config.members,
        seed=config.seed,
        annotations=_path(base, config.annotations),
        folder=work / config.name,
        say=say,
    )
    path = base / config.out
    save_table(table, path)
    return Simulated(table, path)


def _path(base: Path, text: str | None) -> Path | None:
    if text is None:
        return None
    path = (base / Path(text).expanduser()).resolve()
    if not path.exists():
        raise ConfigError(f"{path} does not exist")
    return path

"""`vcloop simulate`: train a simulator once and store its predictions, so that no loop trains by accident."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import Field

from evidence.contracts import CaseFile
from evidence.errors import ConfigError
from evidence.registry import SETTINGS, TRAINERS
from evidence.strict_yaml import read_value
from evidence.values import Value
from simulators.response_table import ResponseTable, save_table
from simulators.training import Trainer, Training

if TYPE_CHECKING:
    from loops.executors import Executor


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


class Planned(NamedTuple):
    """A training that was checked, and what it was read from."""

    name: str
    config_path: Path
    work: Path
    trainer: Trainer
    training: Training
    out: Path


def simulate(planned: Planned, executor: Executor) -> Simulated:
    """Train and write the response table; members already trained are taken from where they are kept.

    Raises DataError for data that cannot be trained on.
    """
    planned.trainer.check(planned.training)
    executor.members(planned)
    table = planned.trainer.table(planned.training)
    save_table(table, planned.out)
    return Simulated(table, planned.out)


def plan(name: str, config_path: Path, work: Path, say: Callable[[str], None]) -> Planned:
    """Read a training config. Raises ConfigError for a bad one or a setting without cells."""
    config = read_value(config_path, SimulateConfig, what="config")
    trainer: Trainer = TRAINERS.get(name)()
    base = config_path.parent
    case_file = read_value(base / config.cases, CaseFile, what="case file")
    setting = SETTINGS.get(case_file.setting).open(case_file, _path(base, config.data))
    cell_data = getattr(setting, "cell_data", None)
    if cell_data is None:
        raise ConfigError(f"config {config_path}: setting {case_file.setting!r} has no cells to train a simulator on")
    training = Training(
        data=cell_data(),
        options=config.options,
        members=config.members,
        seed=config.seed,
        annotations=_path(base, config.annotations),
        folder=work / config.name,
        say=say,
    )
    return Planned(name, config_path, work, trainer, training, base / config.out)


def _path(base: Path, text: str | None) -> Path | None:
    if text is None:
        return None
    path = (base / Path(text).expanduser()).resolve()
    if not path.exists():
        raise ConfigError(f"{path} does not exist")
    return path

"""A sweep: the runs of several configs, models and seeds as one job with shared limits.

Every run is an ordinary run folder, so that it can be resumed, rescored and compared alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from evidence.errors import ConfigError
from evidence.strict_yaml import parse_value, read_value
from evidence.values import Value, canonical_json
from loops.config import Limits, NamedModel, RunConfig, find_config, load_config
from loops.runner import Job

RUN_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,29}$"


class SweepConfig(Value):
    """The runs of a sweep: every config with every model and every seed.

    `configs` are run configs: paths relative to the sweep file, or names of shipped ones. `models` takes the place of
    their interpreter, under short names that become part of the run names. `limits`, `concurrency` (calls at once to
    one server) and `processes` hold for all runs together; those of the configs do not count. `repeats`
    replaces the configs' own.
    """

    version: int = Field(ge=1, le=1)
    name: str = Field(pattern=RUN_NAME)
    configs: tuple[str, ...] = Field(min_length=1)
    models: dict[str, NamedModel] = Field(default={})
    seeds: tuple[int, ...] = ()
    repeats: int | None = Field(default=None, ge=1, le=10_000)
    limits: Limits = Limits()
    concurrency: int = Field(default=8, ge=1, le=1000)
    processes: int | None = Field(default=None, ge=1, le=64)


def load_sweep(path: Path, *, shipped: Path, results: Path) -> tuple[SweepConfig, list[Job]]:
    """The sweep and its runs, each loaded and with its folder `results/<sweep>/<run>`. Raises ConfigError."""
    sweep = read_value(path, SweepConfig, what="sweep config")
    jobs = []
    for source in sweep.configs:
        base = find_config(source, shipped, beside=path.parent)
        config = read_value(base, RunConfig, what="config")
        for name, changes in _runs(sweep, config):
            where = f"sweep {path}: {name}"
            plain = {**config.model_dump(mode="json"), **changes, "name": name}
            one = parse_value(canonical_json(plain), RunConfig, where=where, as_json=True)
            try:
                loaded = load_config(str(base), shipped=shipped, instead=one)
            except ConfigError as error:
                raise ConfigError(f"{where}: {error}") from error
            jobs.append(Job(loaded, results / sweep.name / name))
    names = [job.folder.name for job in jobs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"sweep {path}: two runs would be named {twice[0]!r}; give the configs different names")
    return sweep, jobs


def _runs(sweep: SweepConfig, config: RunConfig) -> Iterator[tuple[str, dict[str, Any]]]:
    models: list[tuple[str, Value | None]] = list(sweep.models.items()) or [("", None)]
    for model_name, model in models:
        for seed in sweep.seeds or (None,):
            parts = [config.name, model_name, "" if seed is None else f"seed{seed}"]
            changes: dict[str, Any] = {} if model is None else {"interpreter": model.model_dump(mode="json")}
            changes |= {} if seed is None else {"seed": seed}
            changes |= {} if sweep.repeats is None else {"repeats": sweep.repeats}
            yield "--".join(part for part in parts if part), changes

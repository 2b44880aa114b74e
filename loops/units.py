"""Units of work that another process makes: one run of a sweep, one member of an ensemble.

A unit is plain data, paths, the resolved config and numbers, so that it can be sent as text. What it gives is a folder;
what comes back says only how it went. Keys are no part of it: a process takes them from its own environment.
"""

from __future__ import annotations

import os
import platform
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from evidence import errors
from evidence.errors import ArchiveError, ConfigError, VcloopError, kind_of
from evidence.files import write_atomic
from evidence.values import Value
from interpreters.secrets import collect_secrets, redact_config
from loops.config import Limits, RunConfig, load_config
from loops.limits import Meter
from loops.records import package_versions
from loops.runner import Job, run_all
from loops.simulate import plan

LOCK_PATIENCE_S = 120.0
"""A killed process is gone at once, but a lock on a network file system outlives a lost machine: 90 s on NFS 4."""


class Place(Value):
    """What every unit says: a file that all processes must see as the sender does, and the sender's versions.

    Without them a worker would write its folders where nobody looks, or scores that differ in their last digits.
    """

    shared_file: str
    token: str
    versions: dict[str, str]


class RunUnit(Value):
    """One run of a sweep. `source` is the config file that paths in `config` are relative to."""

    kind: Literal["run"] = "run"
    place: Place
    source: str
    config: RunConfig
    folder: str
    concurrency: int
    wall_time_s: float | None


class MemberUnit(Value):
    """One member of an ensemble, by its number from 1."""

    kind: Literal["member"] = "member"
    place: Place
    trainer: str
    config: str
    work: str
    number: int


class Made(Value):
    """How a unit went: damaged lines of an archive, what was said, a member's folder, or the error that ended it."""

    damaged: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    folder: str = ""
    error: str = ""
    message: str = ""

    def check(self) -> None:
        """Raise the error that ended the unit, if one did."""
        if self.error:
            kind = getattr(errors, self.error)
            raise kind(self.message)


def share(folder: Path) -> Place:
    """Write the file by which workers know that they see the same folders. Raises ArchiveError."""
    token = secrets.token_hex(16)
    path = folder.resolve() / ".shared"
    write_atomic(path, token.encode(), error=ArchiveError)
    return Place(shared_file=str(path), token=token, versions=package_versions())


def unshare(place: Place) -> None:
    """Take that file away."""
    Path(place.shared_file).unlink(missing_ok=True)


def run_unit(job: Job, place: Place, *, concurrency: int) -> RunUnit:
    """The unit of one run. Raises ConfigError where its config holds a key, which no unit may carry."""
    config, loaded = job.loaded.config, job.loaded
    plain = config.model_dump(mode="json")
    if redact_config(plain, collect_secrets(loaded.interpreter)) != plain:
        raise ConfigError(
            f"config {loaded.path}: it holds a key or a password, which is not sent to other machines; put it into an "
            "environment variable of the workers, and name that with api_key_env"
        )
    return RunUnit(
        place=place,
        source=str(loaded.path),
        config=config,
        folder=str(job.folder.resolve()),
        concurrency=concurrency,
        wall_time_s=None,
    )


def make_run(unit: RunUnit, meter: Meter | None) -> Made:
    """Make a run, or go on with it where another process stopped. `meter` counts the calls of the whole sweep."""

    def made() -> Made:
        source, folder = Path(unit.source), Path(unit.folder)
        job = Job(load_config(str(source), shipped=source.parent, instead=unit.config), folder)
        (outcome,) = run_all(
            [job],
            limits=Limits(wall_time_s=unit.wall_time_s),
            concurrency=unit.concurrency,
            processes=1,
            resume=True,
            meter=meter,
            patience_s=LOCK_PATIENCE_S,
        )
        return Made(damaged=tuple(outcome.damaged))

    return _checked(unit.place, made)


def make_member(unit: MemberUnit) -> Made:
    """Train one member of an ensemble, unless it is there."""

    def made() -> Made:
        said: list[str] = []
        planned = plan(unit.trainer, Path(unit.config), Path(unit.work), said.append)
        folder = planned.trainer.train_member(planned.training, unit.number)
        return Made(said=tuple(said), folder=str(folder))

    return _checked(unit.place, made)


def _checked(place: Place, make: Callable[[], Made]) -> Made:
    try:
        _check_place(place)
        return make()
    except VcloopError as error:
        where = f"worker {platform.node()}, process {os.getpid()}"
        return Made(error=kind_of(error).__name__, message=f"{where}: {error}")


def _check_place(place: Place) -> None:
    path = Path(place.shared_file)
    try:
        found = path.read_text()
    except OSError:
        found = ""
    if found != place.token:
        raise ConfigError(
            f"{path} is not the file that the sender wrote: results must be on a file system that all machines see "
            "under the same path (docs/scaling.md)"
        )
    own = package_versions()
    differ = [f"{p} {own.get(p)} instead of {v}" for p, v in place.versions.items() if own.get(p) != v]
    if differ:
        raise ConfigError(f"it has {', '.join(differ)}: scores could differ; install the same versions everywhere")

"""Where units of work are made: on this machine, or on those of a Ray cluster.

A unit is one run of a sweep or one member of an ensemble. Every executor gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from evidence.errors import ConfigError

if TYPE_CHECKING:
    from loops.config import Limits
    from loops.engine import Outcome
    from loops.runner import Job
    from loops.simulate import Planned
    from loops.work import Progress


class ExecutorName(StrEnum):
    """The executors by name."""

    local = "local"
    ray = "ray"


class Executor(Protocol):
    """Makes units of work."""

    def runs(
        self,
        jobs: Sequence[Job],
        *,
        limits: Limits,
        concurrency: int,
        processes: int | None,
        resume: bool,
        progress: Progress,
    ) -> list[Outcome]:
        """Make the runs of a sweep under its limits. `processes` of this machine; as many as are of use, where None.

        Raises what `loops.engine.make_all` raises.
        """
        ...

    def members(self, planned: Planned) -> None:
        """Train the members of an ensemble; afterwards they are where `planned.training` keeps them."""
        ...


class Local:
    """All on this machine: runs side by side, members one after another."""

    def runs(
        self,
        jobs: Sequence[Job],
        *,
        limits: Limits,
        concurrency: int,
        processes: int | None,
        resume: bool,
        progress: Progress,
    ) -> list[Outcome]:
        """Make the runs of a sweep under its limits."""
        from loops.runner import run_all

        return run_all(
            jobs, limits=limits, concurrency=concurrency, processes=processes, resume=resume, progress=progress
        )

    def members(self, planned: Planned) -> None:
        """Nothing: the trainer trains what is missing when it makes the table."""


def find_executor(name: ExecutorName, address: str | None) -> Executor:
    """The executor of this name. Raises ConfigError where it is not installed, or an address is of no use."""
    if name is ExecutorName.local:
        if address is not None:
            raise ConfigError("--address is where a Ray cluster is found; add --executor ray")
        return Local()
    from loops.ray_cluster import RayCluster

    return RayCluster(address)

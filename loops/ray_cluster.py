"""Units of work on a Ray cluster. The only module that imports ray, and only when it is used.

The driver checks everything, writes the run folders, and sends as many units at once as there are processors. A worker
that dies leaves an archive; its unit is sent again and goes on from there. Nothing but texts and numbers is sent.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from evidence.contracts import Reply
from evidence.errors import BudgetError, ConfigError
from loops.archive import read_run
from loops.config import Limits, Prices
from loops.engine import Outcome, check_all
from loops.ledger import Ledger
from loops.limits import LimitReached, Meter, used_before, used_by
from loops.runner import Job, works_of
from loops.simulate import Planned
from loops.units import Made, MemberUnit, Place, RunUnit, make_member, make_run, run_unit, share, unshare
from loops.work import Progress, Work

MAX_DEATHS = 3
"""How many workers may die over one unit before it counts as the reason."""
GONE = "the process that counts the calls of the sweep is gone; resume the sweep"


class RayCluster:
    """The workers of a Ray cluster: at `address` (host:port), at RAY_ADDRESS, or of this machine alone."""

    def __init__(self, address: str | None):
        self.address = address
        _ray()

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
        """Make the runs of a sweep, each in one process. `concurrency` is divided among those made at the same time.

        Raises ConfigError where `processes` asks for several for each run.
        """
        if (processes or 1) > 1:
            raise ConfigError("processes are those of one machine; with --executor ray every run has one, leave it out")
        works = works_of(jobs)
        check_all(works, limits=limits, resume=resume, calls_here=False)
        with self._connected() as n_workers, _shared(works[0].folder.parent) as place:
            at_once = min(len(works), n_workers, concurrency)
            units = [run_unit(job, place, concurrency=concurrency // at_once) for job in jobs]
            ledger = _start_ledger(limits, works, resume)
            progress.prepared(len(works))
            began = time.monotonic()

            def send(number: int) -> Any:
                left = None if limits.wall_time_s is None else limits.wall_time_s - (time.monotonic() - began)
                unit = units[number].model_copy(update={"wall_time_s": None if left is None else max(left, 0.001)})
                return _remote(_run_there).remote(unit.model_dump_json(), ledger)

            made = _make_all(send, [work.record.name for work in works], at_once, lambda number, made: progress.cell())
        for one in made:
            one.check()
        return [_outcome(work, one) for work, one in zip(works, made, strict=True)]

    def members(self, planned: Planned) -> None:
        """Train every member by a worker of its own. Raises ConfigError where a worker kept it elsewhere."""
        training = planned.training
        with self._connected() as n_workers, _shared(training.folder) as place:
            numbers = range(1, training.members + 1)
            units = [
                MemberUnit(
                    place=place,
                    trainer=planned.name,
                    config=str(planned.config_path.resolve()),
                    work=str(planned.work.resolve()),
                    number=number,
                )
                for number in numbers
            ]

            def done(index: int, made: Made) -> None:
                for line in made.said:
                    training.say(f"member {numbers[index]}: {line}")

            names = [f"member {number}" for number in numbers]
            at_once = min(len(units), n_workers)
            made = _make_all(lambda n: _remote(_member_there).remote(units[n].model_dump_json()), names, at_once, done)
        for one in made:
            one.check()

    @contextlib.contextmanager
    def _connected(self) -> Iterator[int]:
        """A connection to the cluster; the number of its processors."""
        ray, address = _ray(), self.address or os.environ.get("RAY_ADDRESS")
        try:
            if address is not None:
                _knock(address)  # ray itself tries for ten minutes
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, ValueError, RuntimeError, OSError) as error:
            raise ConfigError(
                f"no Ray cluster at {address or 'this machine'}: {error}; start one with `ray start --head`, and give "
                "its address as --address HOST:PORT"
            ) from error
        try:
            yield max(1, int(ray.cluster_resources().get("CPU", 1)))
        finally:
            ray.shutdown()


def _knock(address: str) -> None:
    """Raise OSError or ValueError unless something listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=10).close()
    elif address != "auto":
        raise ValueError(f"expected HOST:PORT or auto, got {address!r}")


def _ray() -> Any:
    """The package. It sends no statistics of its use. Raises ConfigError where it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise ConfigError('--executor ray needs the package ray: pip install -e ".[ray]"') from error
    return ray


def _remote(function: Callable[..., Any]) -> Any:
    return _ray().remote(num_cpus=1, max_retries=0)(function)


@contextlib.contextmanager
def _shared(folder: Any) -> Iterator[Place]:
    place = share(folder)
    try:
        yield place
    finally:
        unshare(place)


class _Sent(NamedTuple):
    number: int
    deaths: int


def _make_all(
    send: Callable[[int], Any], names: Sequence[str], at_once: int, done: Callable[[int, Made], None]
) -> list[Made]:
    """Make all units, some at once. One whose worker dies is sent again. All that can end do, before one raises."""
    ray = _ray()
    waiting = [_Sent(number, 0) for number in reversed(range(len(names)))]
    under_way: dict[Any, _Sent] = {}
    made: dict[int, Made] = {}
    while waiting or under_way:
        while waiting and len(under_way) < at_once:
            sent = waiting.pop()
            under_way[send(sent.number)] = sent
        (ready, *_), _ = ray.wait(list(under_way), num_returns=1)
        sent = under_way.pop(ready)
        try:
            result = Made.model_validate_json(ray.get(ready))
        except ray.exceptions.RayTaskError:
            raise  # an error of ours that no unit should raise: as it is
        except ray.exceptions.RayError as error:
            if sent.deaths + 1 < MAX_DEATHS:
                waiting.append(_Sent(sent.number, sent.deaths + 1))
                continue
            message = f"{names[sent.number]}: {MAX_DEATHS} workers died over it, the last with: {error}"
            result = Made(error=BudgetError.__name__, message=f"{message}; resume to go on")
        made[sent.number] = result
        done(sent.number, result)
    return [made[number] for number in range(len(names))]


def _start_ledger(limits: Limits, works: Sequence[Work], resume: bool) -> Any:
    """Write the run folders, so that workers find the record they must agree with; count what archives hold.

    Returns the process that counts the calls; None where nothing but time is limited.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ledger = None
    if limits.counted:
        here = NodeAffinitySchedulingStrategy(_ray().get_runtime_context().get_node_id(), soft=False)
        ledger = _ray().remote(num_cpus=0, scheduling_strategy=here)(Ledger).remote(limits)
    for work in works:
        with work.archive:
            work.begin(resume)
            if ledger is not None:
                used = used_before(work.archive.past, work.config.interpreter.prices)
                _ray().get(ledger.start.remote(work.record.name, used))
    return ledger


def _outcome(work: Work, made: Made) -> Outcome:
    summary = json.loads((work.folder / "scores" / "summary.json").read_text())
    return Outcome(read_run(work.folder), summary, list(made.damaged))


def _run_there(text: str, ledger: Any) -> str:
    unit = RunUnit.model_validate_json(text)
    meter = None if ledger is None else _LedgerMeter(ledger, unit.config.name)
    return make_run(unit, meter).model_dump_json()


def _member_there(text: str) -> str:
    return make_member(MemberUnit.model_validate_json(text)).model_dump_json()


class _LedgerMeter(Meter):
    """Counts the calls of one run with those of all others. A call waits about 1 ms for its permission."""

    def __init__(self, ledger: Any, run: str):
        super().__init__(Limits())
        self._ledger = ledger
        self._run = run

    def admit(self) -> None:
        over = self._ask(self._ledger.admit.remote(self._run))
        if over:
            raise LimitReached(over)

    def past(self, attempts: Iterable[Reply], prices: Prices | None) -> None:
        self._ask(self._ledger.start.remote(self._run, used_before(attempts, prices)))

    def add(self, reply: Reply, prices: Prices | None, *, metered: bool) -> None:
        self._ledger.add.remote(self._run, used_by(reply, prices, metered=metered))

    @staticmethod
    def _ask(answer: Any) -> Any:
        ray = _ray()
        try:
            return ray.get(answer)
        except ray.exceptions.RayActorError as error:
            raise LimitReached(GONE) from error

"""Limits where several processes make the calls: what all have used, summed in one place."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from decimal import Decimal
from typing import Self

from loops.config import Limits
from loops.limits import Meter, Used, refusal, total

SUM_BYTES = 4096
"""More than the text of any sum."""


class Ledger:
    """Counts the calls of all runs against the limits. A run that is started again replaces what it counted: its
    archive says what was paid."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self._runs: dict[str, Used] = {}
        self._all = Used()

    def start(self, run: str, used: Used) -> None:
        """Count what the archive of a run holds, in the place of what was counted for it so far."""
        self._runs[run] = used
        self._all = total(self._runs.values())

    def admit(self, run: str) -> str:
        """Count a call that is about to be made; where a limit forbids it, say which, and count nothing."""
        over = refusal(self.limits, self._all)
        if not over:
            self.add(run, Used(calls=1))
        return over

    def add(self, run: str, used: Used) -> None:
        """Count what a reply used."""
        self._runs[run] = total([self._runs.get(run, Used()), used])
        self._all = total([self._all, used])


class SharedMeter(Meter):
    """Counts for this process and for those that are forked from it.

    The sum is in a file in memory, locked while a process changes it; a process that dies unlocks it.
    """

    def __init__(self, limits: Limits):
        self._file = os.memfd_create("vcloop-meter")
        super().__init__(limits)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    @property
    def used(self) -> Used:
        """What all processes have used."""
        calls, prompt, completion, cost, unknown = json.loads(os.pread(self._file, SUM_BYTES, 0))
        return Used(calls, prompt, completion, Decimal(cost), unknown)

    @used.setter
    def used(self, used: Used) -> None:
        text = json.dumps([*used[:3], str(used.cost), used.unknown])
        os.pwrite(self._file, text.ljust(SUM_BYTES).encode(), 0)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """No other process counts while this lasts."""
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

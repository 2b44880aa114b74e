"""The limits of a sweep whose runs are made by several processes: what each run used, summed in one place."""

from __future__ import annotations

from loops.config import Limits
from loops.limits import Used, refusal, total


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

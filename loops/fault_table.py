"""What a run made of a bad server: every injected fault found again in the archive, and what became of its call.

The server is interpreters.dry_server, whose log says what it injected:

    python -m interpreters.dry_server --fault server_error=0.3 --log served.jsonl
    python -m loops.fault_table results/my-run served.jsonl
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from evidence.errors import ArchiveError, VcloopError
from evidence.journal import CallRecord, read_journal
from interpreters.dry_server import Logged
from interpreters.faults import FAULTS, fault_in
from interpreters.reply import parse_reply
from loops.archive import read_calls
from loops.cells import archived_request


class Row(NamedTuple):
    """One fault. `statuses`: how its attempts were archived and read.

    `retried` were followed by the same request, `repaired` by one that quotes the problem; the call of an attempt ended
    `answered` (with a reply that can be read) or `missing`.
    """

    fault: str
    expected: str
    injected: int
    statuses: Counter[str]
    retried: int
    repaired: int
    answered: int
    missing: int

    @property
    def agrees(self) -> bool:
        """Whether every injected fault is in the archive, with the status it must have."""
        return self.statuses == Counter({self.expected: self.injected})


def fault_rows(folder: Path, logged: Iterable[Logged]) -> list[Row]:
    """One row for every fault that was injected or is in the archive. Raises ArchiveError."""
    injected = Counter(line.fault for line in logged if line.fault in FAULTS)
    met: dict[str, list[tuple[str, str, str]]] = {}
    for attempts in _calls(folder):
        read = [parse_reply(archived_request(record), record.reply).status for record in attempts]
        end = "answered" if read[-1] == "ok" else "missing"
        for n, record in enumerate(attempts):
            after = attempts[n + 1].request_sha256 if n + 1 < len(attempts) else None
            then = "" if after is None else "retried" if after == record.request_sha256 else "repaired"
            met.setdefault(fault_in(record.reply) or "", []).append((read[n], then, end))
    rows = []
    for fault in FAULTS.values():
        found = met.get(fault.name, [])
        if not found and not injected[fault.name]:
            continue
        thens, ends = Counter(then for _, then, _ in found), Counter(end for *_, end in found)
        rows.append(
            Row(
                fault=fault.name,
                expected=fault.status,
                injected=injected[fault.name],
                statuses=Counter(status for status, *_ in found),
                retried=thens["retried"],
                repaired=thens["repaired"],
                answered=ends["answered"],
                missing=ends["missing"],
            )
        )
    return rows


def _calls(folder: Path) -> Iterable[list[CallRecord]]:
    """The attempts of every call, in the order made; a resumed call has the attempts of all starts."""
    calls: dict[tuple[str, int, str, int], list[CallRecord]] = {}
    for record in read_calls(folder).records:
        calls.setdefault((record.case, record.repeat, record.step, record.turn), []).append(record)
    return calls.values()


def fault_table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    header = "| fault | injected | archived as | retried | repaired | ended answered | ended missing | in = out |"
    lines = [header, "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        seen = ", ".join(f"{status} {n}" for status, n in sorted(row.statuses.items()))
        cells = (row.fault, row.injected, seen, row.retried, row.repaired, row.answered, row.missing)
        lines.append("| " + " | ".join(map(str, cells)) + f" | {'yes' if row.agrees else 'NO'} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table; exit with 1 where a fault is not in the archive as it should be."""
    parser = argparse.ArgumentParser(
        prog="python -m loops.fault_table", description="What a run made of the faults of a dry server."
    )
    parser.add_argument("run", type=Path, help="the run's folder")
    parser.add_argument("log", type=Path, help="the log of interpreters.dry_server")
    options = parser.parse_args(arguments)
    try:
        rows = fault_rows(options.run, _read_log(options.log))
    except VcloopError as error:
        parser.error(str(error))
    sys.stdout.write(fault_table(rows) + "\n")
    sys.exit(0 if all(row.agrees for row in rows) else 1)


def _read_log(path: Path) -> list[Logged]:
    try:
        return [Logged(**line) for _, line in read_journal(path).records]
    except TypeError as error:
        raise ArchiveError(f"{path} is not the log of a dry server: {error}") from error


if __name__ == "__main__":
    main()

"""The fault suite on larger runs: one row per fault, injected into 30 % of the requests of a run of its own.

    python tests/perf/faults.py --repeats 20

Exits with 1 where an injected fault is not in the archive with the status it must have.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from pathlib import Path
from types import ModuleType

from interpreters.faults import FAULTS
from loops.fault_table import Row, fault_rows, fault_table

SUITE = Path(__file__).resolve().parents[1] / "loops" / "test_faults.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mixed", action="store_true", help="only the run with all faults at once")
    parser.add_argument("--repeats", type=int, default=20, help="of four cases with three calls each")
    options = parser.parse_args()
    suite = load_suite()
    rows, mixed = [], dict.fromkeys(FAULTS, 0.6 / len(FAULTS))
    for name in () if options.mixed else FAULTS:
        made, total = injected(suite, {name: suite.SHARE}, options.repeats)
        rows += made
        print(f"{name}: {total} requests", file=sys.stderr)
    if rows:
        print(fault_table(rows))
    together, total = injected(suite, mixed, options.repeats)
    print(f"\nAll at once, in 60 % of {total} requests:\n\n{fault_table(together)}")
    sys.exit(0 if all(row.agrees for row in [*rows, *together]) else 1)


def injected(suite: ModuleType, faults: dict[str, float], repeats: int) -> tuple[list[Row], int]:
    """The rows of one run, and how many requests the server got."""
    with tempfile.TemporaryDirectory() as folder:
        timeout_s = 1.0 if list(faults) == ["hang"] else 10.0
        made = suite.fire(Path(folder), faults=faults, repeats=repeats, timeout_s=timeout_s)
        return fault_rows(made.folder, made.logged), len(made.logged)


def load_suite() -> ModuleType:
    """The test module, which has the way to run against a bad server."""
    spec = importlib.util.spec_from_file_location("fault_suite", SUITE)
    assert spec is not None
    assert spec.loader is not None
    suite = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(suite)
    return suite


if __name__ == "__main__":
    main()

"""The page that shows runs: overview, tables, charts, and every case step by step (docs/report.md)."""

from loops.report.write import Written, write_report

__all__ = ["Written", "write_report"]

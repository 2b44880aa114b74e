"""Tables keep every digit, however narrow the console."""

import io

import pytest
from rich.console import Console
from rich.table import Table

from loops.table import print_whole


@pytest.mark.parametrize("width", [20, 130, 400])
def test_no_column_is_cut(width):
    table = Table(show_edge=False, pad_edge=False)
    cells = [f"{n:030d}" for n in range(8)]
    for number in range(8):
        table.add_column(f"column {number}", no_wrap=True)
    table.add_row(*cells)
    console = Console(file=io.StringIO(), width=width, soft_wrap=True)
    print_whole(console, table)
    printed = console.file.getvalue()
    assert "\u2026" not in printed
    assert all(cell in printed for cell in cells)
    assert all(f"column {number}" in printed for number in range(8))
    assert console.width == width

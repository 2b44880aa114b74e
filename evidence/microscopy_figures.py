"""Figures of the microscopy setting: the query, and reference sheets with one field of every class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evidence.bbbc021 import Windows
from evidence.bbbc021_tables import CHANNELS
from evidence.contracts import Figure
from evidence.display import WORDS, Panel, Window, composite, figure_png, montage, scale_bar, to_8bit
from evidence.values import sha256_of

ZOOM, BAR = 2, 20
QUERY_PLACES, REFERENCE_PLACES, COLUMNS = 6, 3, 3
CLASSES_A_SHEET = 6

Display = Mapping[str, Window]
"""Channel -> its intensity window."""
Drawn = tuple[Figure, bytes]


def query_figure(name: str, windows: Windows, display: Display, channels: Sequence[str]) -> Drawn:
    """The query field: one grey panel a channel, and false colour where there are two or more."""
    places = min(QUERY_PLACES, max(COLUMNS, -(-len(windows) // COLUMNS) * COLUMNS))
    panels = _panels(windows, display, channels, places, "query")
    return _figure(name, [panels], _caption("The query field", display, channels, len(windows), places))


def reference_figures(
    name: str, examples: Sequence[tuple[str, Windows, Display]], channels: Sequence[str]
) -> list[Drawn]:
    """Sheets of at most six classes, one row each; every plate has its own window, the one its controls have."""
    sheets = []
    for start in range(0, len(examples), CLASSES_A_SHEET):
        part = examples[start : start + CLASSES_A_SHEET]
        rows = [_panels(w, display, channels, REFERENCE_PLACES, label) for label, w, display in part]
        number = f" {start // CLASSES_A_SHEET + 1}" if len(examples) > CLASSES_A_SHEET else ""
        windows = "; ".join(f"{label}: {_windows(display, channels)}" for label, _, display in part)
        caption = (
            f"Reference cells, one field of each class: {', '.join(label for label, _, _ in part)}. Intensity windows, "
            f"as for the controls of the same plate: {windows}. {_bar()}"
        )
        sheets.append(_figure(name + number, rows, caption))
    return sheets


def _panels(windows: Windows, display: Display, channels: Sequence[str], places: int, label: str) -> list[Panel]:
    grey = {}
    for channel in channels:
        plane = windows[..., CHANNELS.index(channel)]
        grey[channel] = to_8bit(montage(plane, COLUMNS, places, ZOOM), display[channel])
    panels = [Panel(scale_bar(image, BAR * ZOOM), f"{label}: {WORDS[channel]}") for channel, image in grey.items()]
    if len(channels) > 1:
        panels.append(Panel(scale_bar(composite(grey), BAR * ZOOM), f"{label}: false colour"))
    return panels


def _figure(name: str, rows: Sequence[Sequence[Panel]], caption: str) -> Drawn:
    data = figure_png(rows)
    return Figure(name=name, sha256=sha256_of(data), caption=caption), data


def _caption(what: str, display: Display, channels: Sequence[str], n: int, places: int) -> str:
    shown = f"{min(n, places)} of its {n} imaged cells" if n else "no cell was found in it"
    return f"{what}, {shown}. Intensity windows: {_windows(display, channels)}. {_bar()}"


def _windows(display: Display, channels: Sequence[str]) -> str:
    return ", ".join(f"{WORDS[channel]} {display[channel].words()}" for channel in channels)


def _bar() -> str:
    return f"Bar: {BAR} camera pixels. False colour: DNA blue, tubulin green, F-actin red. Black places hold no cell."

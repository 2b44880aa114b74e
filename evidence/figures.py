"""Figures shown to models: drawn without a display, and with the same bytes for the same input.

Colours are those of Okabe and Ito, safe for colour-blind readers, and every series also has its own marker.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.path import Path

from evidence import contracts
from evidence.graph_layout import Layout, Stop, layered

WIDTH_PX = 1000
DPI = 100
INTERVAL = 1.96
BLUE, ORANGE, BLACK, GREY, RED = "#0072B2", "#E69F00", "#000000", "#D0D0D0", "#D55E00"
GREEN, PINK = "#009E73", "#CC79A7"
INK = "#404040"
STYLES: Mapping[str, tuple[str, str]] = {
    "predicted": (BLUE, "o"),
    "calibrated": (ORANGE, "s"),
    "measured": (BLACK, "D"),
}
"""Name of a series -> (colour, marker); other names take those of OTHERS in turn."""
OTHERS: tuple[tuple[str, str], ...] = ((GREEN, "^"), (PINK, "v"), (RED, "P"))


class Series(NamedTuple):
    """One kind of value in a figure. values: readout id -> (mean, standard deviation); absent ones are not drawn."""

    name: str
    values: Mapping[str, tuple[float, float]]


_BOX_W, _BOX_H = 0.72, 0.46


def change_figure(readouts: Sequence[contracts.Readout], series: Sequence[Series], title: str, unit: str = "") -> bytes:
    """PNG of changes, one row a readout: each series with 95 % intervals, and the near-zero band of each row.

    "predicted", "calibrated" and "measured" look the same in every figure. Raises ValueError for no series, a repeated
    name, or more other names than there are styles.
    """
    names = [one.name for one in series]
    styles = _styles(names)
    if not names or len(styles) != len(names):
        raise ValueError(f"expected distinct series, at most {len(OTHERS)} of other names, got {names}")
    n = len(readouts)
    canvas = _canvas(1.7 + 0.55 * n)
    axes = canvas.subplots()
    for row, readout in enumerate(readouts):
        if readout.threshold is not None:
            band = Rectangle((-readout.threshold, row - 0.42), 2 * readout.threshold, 0.84, color=GREY, lw=0, zorder=1)
            axes.add_patch(band)
    for at, one in enumerate(series):
        _draw_series(axes, readouts, one, styles[one.name], offset=0.24 * (at - (len(series) - 1) / 2))
    axes.axvline(0.0, color="#606060", lw=1, zorder=2)
    limit = _limit(readouts, series)
    axes.set(xlim=(-limit, limit), ylim=(n - 0.5, -0.5))
    axes.set_yticks(range(n), [readout.name for readout in readouts], fontsize=13)
    axes.tick_params(axis="x", labelsize=12)
    axes.set_xlabel(f"change ({unit or readouts[0].unit or 'units of the readout'}), with 95 % intervals", fontsize=13)
    axes.set_title(title, fontsize=14, loc="left", wrap=True)
    axes.grid(axis="x", color="#E8E8E8", lw=0.8, zorder=0)
    axes.spines[["top", "right"]].set_visible(False)
    _legend(canvas, styles)
    return _png(canvas)


def graph_figure(
    nodes: Sequence[str], edges: Sequence[tuple[str, str]], *, targets: Sequence[str], mark: str, title: str
) -> bytes:
    """PNG of an acyclic graph in layers, parents above children; targets are filled and carry `mark`."""
    layout = layered(nodes, edges)
    depth = len(layout.layers)
    canvas = _canvas(0.7 + 1.05 * depth)
    axes = canvas.subplots()
    _draw_links(axes, layout)
    for node in nodes:
        stop = (node, layout.home[node])
        _box(axes, node, layout.x[stop], -float(stop[1]), mark if node in targets else None)
    across = layout.x.values()
    axes.set(xlim=(min(across) - 0.6, max(across) + 0.6), ylim=(-depth + 0.65, 0.35))
    axes.set_axis_off()
    axes.set_title(title, fontsize=14, loc="left", wrap=True)
    return _png(canvas)


def figure_part(name: str, data: bytes, caption: str = "") -> tuple[contracts.Figure, bytes]:
    """The evidence part that stands for a PNG, with the bytes."""
    return contracts.Figure(name=name, sha256=hashlib.sha256(data).hexdigest(), caption=caption), data


def _box(axes: Axes, node: str, x: float, y: float, mark: str | None) -> None:
    """One node; mark: a word on what was done to it, None if it is no target."""
    face, edge, ink, width = ("#EAF3F9", BLUE, BLACK, 1.3) if mark is None else (RED, BLACK, "white", 2.5)
    corner = (x - _BOX_W / 2, y - _BOX_H / 2)
    axes.add_patch(Rectangle(corner, _BOX_W, _BOX_H, facecolor=face, edgecolor=edge, lw=width, zorder=3))
    label = f"{node}\n{mark}" if mark else node
    weight = "normal" if mark is None else "bold"
    axes.text(x, y, label, ha="center", va="center", fontsize=12, color=ink, zorder=4, weight=weight)


def _canvas(height_in: float) -> Canvas:
    canvas = Canvas(figsize=(WIDTH_PX / DPI, height_in), dpi=DPI, layout="constrained")
    FigureCanvasAgg(canvas)
    return canvas


def _png(canvas: Canvas) -> bytes:
    stream = io.BytesIO()
    canvas.savefig(stream, format="png", dpi=DPI, metadata={"Software": None})
    return stream.getvalue()


def _draw_series(
    axes: Axes, readouts: Sequence[contracts.Readout], series: Series, style: tuple[str, str], *, offset: float
) -> None:
    colour, marker = style
    rows = [(at + offset, *series.values[r.id]) for at, r in enumerate(readouts) if r.id in series.values]
    if rows:
        y, mean, sd = zip(*rows, strict=True)
        axes.errorbar(
            mean, y, xerr=[INTERVAL * s for s in sd], fmt=marker, color=colour, ms=8, lw=2, capsize=4, zorder=4
        )


def _limit(readouts: Sequence[contracts.Readout], series: Sequence[Series]) -> float:
    ends = [abs(mean) + INTERVAL * sd for one in series for mean, sd in one.values.values()]
    ends += [2.0 * (readout.threshold or 0.0) for readout in readouts]
    return 1.08 * max(ends) or 1.0


def _styles(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    others = iter(OTHERS)
    styles: dict[str, tuple[str, str]] = {}
    for name in names:
        style = STYLES.get(name) or next(others, None)
        if style is not None:
            styles[name] = style
    return styles


def _legend(canvas: Canvas, styles: Mapping[str, tuple[str, str]]) -> None:
    handles: list[Line2D | Rectangle] = [
        Line2D([], [], color=colour, marker=marker, ms=8, lw=2, label=name) for name, (colour, marker) in styles.items()
    ]
    handles.append(Rectangle((0, 0), 1, 1, color=GREY, lw=0, label="near zero"))
    canvas.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=12, frameon=False)


def _draw_links(axes: Axes, layout: Layout) -> None:
    """Smooth links between neighbouring layers; arrowheads stand side by side on the top of the child's box."""
    entering: dict[Stop, list[Stop]] = {}
    for above, below in layout.links:
        entering.setdefault(below, []).append(above)
    for below, sources in entering.items():
        node = layout.home[below[0]] == below[1]
        for at, above in enumerate(sorted(sources, key=lambda stop: layout.x[stop])):
            port = (at + 1) / (len(sources) + 1) - 0.5 if node else 0.0
            start = (layout.x[above], -above[1] - _BOX_H / 2)
            end = (layout.x[below] + 0.8 * _BOX_W * port, -below[1] + _BOX_H / 2)
            _curve(axes, start, end, head=node)
        if not node:
            x, y = layout.x[below], -below[1]
            axes.plot([x, x], [y + _BOX_H / 2, y - _BOX_H / 2], color=INK, lw=1.5, zorder=2, solid_capstyle="butt")


def _curve(axes: Axes, start: tuple[float, float], end: tuple[float, float], *, head: bool) -> None:
    middle = (start[1] + end[1]) / 2
    path = Path([start, (start[0], middle), (end[0], middle), end], [Path.MOVETO, *[Path.CURVE4] * 3])
    style = "-|>" if head else "-"
    scale = 15.0
    axes.add_patch(
        FancyArrowPatch(
            path=path, arrowstyle=style, mutation_scale=scale, color=INK, lw=1.5, shrinkA=0, shrinkB=0, zorder=2
        )
    )

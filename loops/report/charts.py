"""Charts as inline SVG, drawn here: no script, sharp in print, and every number also stands in text beside them.

Bars and markers place themselves in percent, so that they fit a phone and a page; plots have a fixed size. Colours are
Okabe and Ito's, set by class in the style sheet; hatching and marker shapes tell the same without colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

STAGE_CLASSES = {"initial": "bar-initial", "reviewed": "bar-reviewed", "revised": "bar-revised"}
SHAPES = (
    "M0,-6L6,0L0,6L-6,0Z",
    "M0,-6L6,5L-6,5Z",
    "M-5,-5H5V5H-5Z",
    "M-5,0A5,5 0 1 0 5,0A5,5 0 1 0 -5,0Z",
    "M0,6L6,-5L-6,-5Z",
    "M-6,-2H-2V-6H2V-2H6V2H2V6H-2V2H-6Z",
    "M0,-6L6,-1L4,6L-4,6L-6,-1Z",
    "M-6,-4L-4,-6L0,-2L4,-6L6,-4L2,0L6,4L4,6L0,2L-4,6L-6,4L-2,0Z",
)
"""Outlines of markers around (0, 0), told apart without colour."""
BAR_HEIGHT, LANE = 18, 16
NEAR = 0.06
"""Markers nearer than this share of the scale would cover each other on a narrow screen."""
GRID = Markup("").join(
    Markup('<line class="grid" x1="{0}%" x2="{0}%" y1="0" y2="100%"/>').format(x) for x in (0, 25, 50, 75, 100)
)


class Axis(NamedTuple):
    """One axis of a plot: its label, its range, and the values that are marked, with their words."""

    label: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]


class Point(NamedTuple):
    """One point; `n` cases are at it, which its area shows where `n` differs between points."""

    x: float
    y: float
    n: int = 1


class Series(NamedTuple):
    """Points of one plot under one name; `joined` draws a line through them, `sized` shows their numbers as area."""

    name: str
    points: Sequence[Point]
    joined: bool = False
    sized: bool = False


def bar(stage: str, value: float | None, low: float | None, high: float | None) -> Markup:
    """One accuracy from 0 to 1 as a bar with its interval. Hidden from screen readers: the number stands beside it."""
    drawn = [GRID]
    if value is not None:
        drawn.append(
            Markup('<rect class="{}" x="0" y="2" width="{:.2f}%" height="{}"/>').format(
                STAGE_CLASSES[stage], 100 * value, BAR_HEIGHT - 4
            )
        )
    if low is not None and high is not None:
        drawn += _whisker(100 * low, 100 * high)
    return _strip(drawn, BAR_HEIGHT)


def markers(values: Sequence[float]) -> Markup:
    """Accuracies from 0 to 1 as markers in the shapes of `marker`; those too near each other are set on lines below."""
    lanes: list[list[float]] = []
    drawn = [GRID]
    for number, value in enumerate(values):
        lane = next((n for n, lane in enumerate(lanes) if all(abs(value - x) > NEAR for x in lane)), len(lanes))
        if lane == len(lanes):
            lanes.append([])
        lanes[lane].append(value)
        drawn.append(
            Markup('<svg class="place" x="{:.2f}%" y="{}">{}</svg>').format(
                100 * value, LANE // 2 + LANE * lane, _shape(number)
            )
        )
    return _strip(drawn, LANE * max(len(lanes), 1))


def marker(number: int) -> Markup:
    """The marker of this number, for a legend."""
    return Markup(
        '<svg class="legend" width="14" height="14" viewBox="-7 -7 14 14" aria-hidden="true">{}</svg>'
    ).format(_shape(number))


def _whisker(low: float, high: float) -> list[Markup]:
    """An interval between two places in percent, with a halo that keeps it visible on a bar."""
    middle = BAR_HEIGHT / 2
    line = Markup('<line class="{}" x1="{:.2f}%" x2="{:.2f}%" y1="{:g}" y2="{:g}"/>').format
    ends = ((low, high, middle, middle), (low, low, 5, 13), (high, high, 5, 13))
    return [line(style, *end) for style in ("halo", "whisker") for end in ends]


def _shape(number: int) -> Markup:
    return Markup('<path class="mark mark-{}" d="{}"/>').format(number % len(SHAPES), SHAPES[number % len(SHAPES)])


def _strip(drawn: Sequence[Markup], height: int) -> Markup:
    return Markup('<svg class="strip" width="100%" height="{}" aria-hidden="true" focusable="false">{}</svg>').format(
        height, Markup("").join(drawn)
    )


WIDTH, HEIGHT, TOP, BOTTOM, RIGHT = 340, 270, 8, 42, 14


def plot(
    key: str, title: str, about: str, x: Axis, y: Axis, series: Sequence[Series], *, diagonal: bool = False
) -> Markup:
    """A plot for one column of a page. `key` makes ids of its own; `about` says in words what the plot shows."""
    left = 20 + 6.4 * max((len(label) for _, label in y.ticks), default=0)

    def at(axis: Axis, value: float, start: float, end: float) -> float:
        return start + (value - axis.low) / (axis.high - axis.low) * (end - start)

    def across(value: float) -> float:
        return at(x, value, left, WIDTH - RIGHT)

    def up(value: float) -> float:
        return at(y, value, HEIGHT - BOTTOM, TOP)

    drawn = []
    line = Markup('<line class="{}" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>').format
    text = Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format
    for value, label in x.ticks:
        drawn += [line("grid", across(value), across(value), TOP, HEIGHT - BOTTOM)]
        drawn += [text(across(value), HEIGHT - BOTTOM + 15, "middle", label)]
    for value, label in y.ticks:
        drawn += [line("grid", left, WIDTH - RIGHT, up(value), up(value)), text(left - 6, up(value) + 4, "end", label)]
    drawn.append(text((left + WIDTH - RIGHT) / 2, HEIGHT - 6, "middle", x.label))
    if y.label:
        turned = Markup('<text transform="translate(11 {:.1f}) rotate(-90)" text-anchor="middle">{}</text>').format
        drawn.append(turned((TOP + HEIGHT - BOTTOM) / 2, y.label))
    if diagonal:
        drawn.append(line("diagonal", across(x.low), across(x.high), up(y.low), up(y.high)))
    largest = max((p.n for one in series for p in one.points), default=1)
    for number, one in enumerate(series):
        if one.joined and len(one.points) > 1:
            path = "M" + "L".join(f"{across(p.x):.1f},{up(p.y):.1f}" for p in one.points)
            drawn.append(Markup('<path class="line line-{}" d="{}"/>').format(number % len(SHAPES), path))
        for point in one.points:
            scale = 0.35 + 1.9 * (point.n / largest) ** 0.5 if one.sized else 0.8
            drawn.append(
                Markup('<g transform="translate({:.1f} {:.1f}) scale({:.2f})">{}</g>').format(
                    across(point.x), up(point.y), scale, _shape(number)
                )
            )
    return Markup(
        '<svg class="plot" viewBox="0 0 {} {}" role="img" aria-labelledby="{key}-title {key}-about">'
        '<title id="{key}-title">{}</title><desc id="{key}-about">{}</desc>{}</svg>'
    ).format(WIDTH, HEIGHT, title, about, Markup("").join(drawn), key=key)


def ticks(low: float, high: float, step: float, form: str = "{:g}") -> list[tuple[float, str]]:
    """Marks from `low` to `high` every `step`."""
    count = round((high - low) / step)
    return [(low + n * step, form.format(low + n * step)) for n in range(count + 1)]


def signed_bar(value: float | None, low: float | None, high: float | None, limit: float) -> Markup:
    """A difference as a bar from the middle of a scale from -limit to +limit, with its interval."""

    def place(x: float) -> float:
        return 50 + 50 * max(-1.0, min(1.0, x / limit))

    drawn = [
        Markup('<line class="{0}" x1="{1}%" x2="{1}%" y1="0" y2="100%"/>').format("axis" if x == 50 else "grid", x)
        for x in (0, 50, 100)
    ]
    if value is not None:
        start, end = sorted((50, place(value)))
        drawn.append(
            Markup('<rect class="bar-revised" x="{:.2f}%" y="4" width="{:.2f}%" height="10"/>').format(
                start, end - start
            )
        )
    if low is not None and high is not None:
        drawn += _whisker(place(low), place(high))
    return _strip(drawn, BAR_HEIGHT)

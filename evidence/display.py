"""Micrographs as a model sees them: one stated intensity window a channel, grey and false-colour panels, montages.

Sixteen bits become eight through a window (low, high) in counts: linear between, 0 below, 255 above. The same window
serves treated and control images of a plate, and the caption states it. PNG bytes are the same for the same input and
carry no metadata.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evidence.errors import ConfigError

Byte = NDArray[np.uint8]
PERCENTILES = (1.0, 99.8)
MAX_SIDE = 1568
"""Longest side of a figure in pixels: larger ones are scaled down by vision models anyway."""
MAX_BYTES = 4_000_000
GAP = 6
LABEL_HEIGHT = 20
COLOURS: Mapping[str, tuple[float, float, float]] = {
    "DAPI": (0.25, 0.45, 1.0),
    "Tubulin": (0.2, 1.0, 0.3),
    "Actin": (1.0, 0.25, 0.2),
}
WORDS = {"DAPI": "DNA", "Tubulin": "tubulin", "Actin": "F-actin"}


class Window(NamedTuple):
    """Counts shown as black and as white."""

    low: float
    high: float

    def words(self) -> str:
        """The window as a caption states it."""
        return f"{self.low:.0f} to {self.high:.0f} counts"


class Panel(NamedTuple):
    """One picture of a figure: (h, w) or (h, w, 3) uint8, and the words above it."""

    image: Byte
    label: str


def find_window(images: Sequence[NDArray[np.uint16]], percentiles: tuple[float, float] = PERCENTILES) -> Window:
    """The window of one channel from the pooled pixels of its images. Raises ValueError without any pixel."""
    pixels = np.concatenate([image.ravel() for image in images]) if images else np.zeros(0, dtype=np.uint16)
    if not pixels.size:
        raise ValueError("expected images to take an intensity window from, got none")
    low, high = np.percentile(pixels, percentiles)
    return Window(float(low), float(max(high, low + 1)))


def to_8bit(image: NDArray[np.uint16], window: Window) -> Byte:
    """(...) uint16 -> (...) uint8 through the window; order is kept, and rounding merges only close counts."""
    if image.dtype != np.uint16:
        raise ValueError(f"expected uint16 counts, got {image.dtype}")
    scaled = (image.astype(np.float64) - window.low) / (window.high - window.low)
    return np.asarray(np.rint(255 * np.clip(scaled, 0, 1)), dtype=np.uint8)


def montage(windows: NDArray[np.uint16], columns: int, count: int, zoom: int = 2) -> NDArray[np.uint16]:
    """(n, h, w) -> one grid of `count` places, each pixel repeated `zoom` times; places beyond n are empty (0)."""
    n, height, width = windows.shape
    rows = -(-count // columns)
    grid = np.zeros((rows * height, columns * width), dtype=np.uint16)
    for at in range(min(n, count)):
        y, x = divmod(at, columns)
        grid[y * height : (y + 1) * height, x * width : (x + 1) * width] = windows[at]
    return grid.repeat(zoom, axis=0).repeat(zoom, axis=1)


def composite(planes: Mapping[str, Byte]) -> Byte:
    """False colour: each channel's grey times its colour, added and clipped. (h, w) each -> (h, w, 3)."""
    added = sum(plane[..., None] * np.array(COLOURS[channel]) for channel, plane in planes.items())
    return np.asarray(np.clip(added, 0, 255), dtype=np.uint8)


def scale_bar(image: Byte, pixels: int) -> Byte:
    """A copy with a white bar of this many image pixels, on black, in the lower right corner."""
    marked = image.copy()
    height, width = marked.shape[:2]
    pixels = min(pixels, width - 12)
    marked[height - 12 : height - 3, width - pixels - 9 : width - 3] = 0
    marked[height - 9 : height - 6, width - pixels - 6 : width - 6] = 255
    return marked


def figure_png(rows: Sequence[Sequence[Panel]]) -> bytes:
    """PNG of panels in rows, each under its label, scaled down to MAX_SIDE. Raises ConfigError if it is too heavy."""
    from PIL import Image, ImageDraw

    sizes = [[panel.image.shape[:2] for panel in row] for row in rows]
    width = max(sum(w + GAP for _, w in row) for row in sizes) + GAP
    height = sum(max(h for h, _ in row) + LABEL_HEIGHT + GAP for row in sizes) + GAP
    canvas = Image.new("RGB", (width, height), (255, 255, 255))
    draw = ImageDraw.Draw(canvas)
    y = GAP
    for row in rows:
        x = GAP
        for panel in row:
            draw.text((x, y + 3), panel.label, fill=(0, 0, 0), font_size=13)
            canvas.paste(Image.fromarray(panel.image).convert("RGB"), (x, y + LABEL_HEIGHT))
            x += panel.image.shape[1] + GAP
        y += max(panel.image.shape[0] for panel in row) + LABEL_HEIGHT + GAP
    if max(canvas.size) > MAX_SIDE:
        share = MAX_SIDE / max(canvas.size)
        canvas = canvas.resize((int(width * share), int(height * share)), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    canvas.save(stream, format="PNG", compress_level=6)
    data = stream.getvalue()
    if len(data) > MAX_BYTES:
        raise ConfigError(f"a figure has {len(data)} bytes, more than {MAX_BYTES}: show fewer panels or windows")
    return data

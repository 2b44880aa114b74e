"""From sixteen bits to what a model sees."""

from __future__ import annotations

import io

import numpy as np
import pytest

pytest.importorskip("skimage", reason="needs the images extra: pip install -e '.[images]'")
from PIL import Image

from evidence.display import MAX_SIDE, Panel, Window, composite, figure_png, find_window, montage, scale_bar, to_8bit


def test_b01_order_is_kept_with_four_values():
    image = np.array([[0, 200], [900, 4095]], dtype=np.uint16)
    for window in (Window(0, 4095), find_window([image], (0, 100))):
        a, b, c, d = to_8bit(image, window).ravel().tolist()
        assert 0 == a < b < c < d == 255
    assert to_8bit(image, Window(0, 4095)).tolist() == [[0, 12], [56, 255]]


def test_the_same_window_serves_treated_and_control():
    control, treated = (np.full((4, 4), level, dtype=np.uint16) for level in (500, 1500))
    window = find_window([control, treated], (0, 100))
    assert window == Window(500, 1500)
    assert (int(to_8bit(control, window)[0, 0]), int(to_8bit(treated, window)[0, 0])) == (0, 255)
    with pytest.raises(ValueError, match="uint16"):
        to_8bit(control.astype(float), window)


def test_montage_places_windows_and_leaves_the_rest_empty():
    windows = np.stack([np.full((2, 2), n + 1, dtype=np.uint16) for n in range(3)])
    grid = montage(windows, 2, 4, zoom=1)
    assert grid.tolist() == [[1, 1, 2, 2], [1, 1, 2, 2], [3, 3, 0, 0], [3, 3, 0, 0]]


def test_png_is_the_same_twice_small_enough_and_without_metadata():
    grey = (np.arange(300 * 2000) % 256).astype(np.uint8).reshape(300, 2000)
    rows = [[Panel(scale_bar(grey, 40), "query: DNA")], [Panel(composite({"DAPI": grey, "Tubulin": grey}), "colour")]]
    data = figure_png(rows)
    assert data == figure_png(rows)
    image = Image.open(io.BytesIO(data))
    assert max(image.size) == MAX_SIDE
    assert image.info == {}

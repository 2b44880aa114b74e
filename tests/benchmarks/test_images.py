"""Image files: inside their folder, bounded before they are decoded, all problems with their line."""

from __future__ import annotations

import io
import struct
import zlib

import pytest
from PIL import Image

from benchmarks.images import look_at, read_image
from benchmarks.items import load_item_set
from evidence.errors import DataError
from tests.benchmarks.conftest import plain_item, png


def test_an_image_is_sized_and_hashed(write_items):
    found = load_item_set(write_items([plain_item(0), plain_item(1)]))
    image = found.images["fig0.png"]
    assert (image.width, image.height, image.media_type) == (6, 4, "image/png")
    assert len(image.sha256) == 64
    assert found.images["fig1.png"].sha256 != image.sha256


def test_the_hash_of_a_set_covers_items_and_pixels(write_items):
    path = write_items([plain_item(0)])
    before = load_item_set(path).sha256
    (path.parent / "fig0.png").write_bytes(png(shade=200))
    assert load_item_set(path).sha256 != before


def test_every_bad_image_is_reported_with_its_line(write_items, tmp_path):
    (tmp_path / "outside.png").write_bytes(png())
    path = write_items(
        [
            plain_item(0),
            plain_item(1, images=["../outside.png"]),
            plain_item(2, images=["link.png"]),
            plain_item(3, images=["text.png", "sub/none.png"]),
            plain_item(4, answer="E"),
        ]
    )
    (path.parent / "link.png").unlink()
    (path.parent / "link.png").symlink_to(tmp_path / "outside.png")
    (path.parent / "text.png").write_text("no image")
    with pytest.raises(DataError) as caught:
        load_item_set(path)
    message = str(caught.value)
    assert "line 2: image '../outside.png' lies outside the image folder" in message
    assert "line 3: image 'link.png' lies outside the image folder" in message
    assert "line 4: image 'text.png' cannot be read as PNG or JPEG" in message
    assert "line 4: image 'sub/none.png' is not a file" in message
    assert "line 5: answer 'E' is not the letter of an option" in message
    assert "5 problem(s)" in message


def test_an_absolute_path_is_refused_even_into_the_folder(write_items):
    path = write_items([plain_item(0)])
    with pytest.raises(DataError, match="outside"):
        read_image(path.parent, str(path.parent / "fig0.png"))


def _bomb(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0" * 1000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [8_000, 10_000, 20_000, 60_000])
def test_a_small_file_that_unfolds_to_too_many_pixels_is_refused(side):
    with pytest.raises(DataError, match="pixels"):
        look_at(_bomb(side, side), "bomb.png")


def test_a_cut_file_and_another_format_are_refused():
    with pytest.raises(DataError, match="cannot be read"):
        look_at(png(200, 200)[:-40], "cut.png")
    stream = io.BytesIO()
    Image.new("RGB", (4, 4)).save(stream, format="BMP")
    with pytest.raises(DataError, match="'old.bmp' cannot be read as PNG or JPEG .its start is neither's.; convert it"):
        look_at(stream.getvalue(), "old.bmp")

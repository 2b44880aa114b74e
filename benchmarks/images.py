"""Image files of items: found inside their folder only, bounded before anything is decoded, sized and hashed."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from evidence.errors import DataError
from evidence.values import sha256_of

MediaType = Literal["image/png", "image/jpeg"]
MEDIA_TYPES: dict[str, MediaType] = {"PNG": "image/png", "JPEG": "image/jpeg"}
MAX_BYTES = 20_000_000
MAX_PIXELS = 50_000_000
"""What a small file may unfold to; a larger one is refused from its header, before it is decoded."""

MIN_SIDE = 2


class ImageFile(NamedTuple):
    """One image: its path inside the image folder, what it is, and its size in pixels and bytes."""

    name: str
    sha256: str
    media_type: MediaType
    width: int
    height: int
    n_bytes: int


def read_image(folder: Path, name: str) -> tuple[ImageFile, bytes]:
    """Read and check one image. Raises DataError saying what is wrong with it."""
    data = _bytes_inside(folder, name)
    media_type, width, height = look_at(data, name)
    return ImageFile(name, sha256_of(data), media_type, width, height, len(data)), data


def check_images(
    folder: Path, rows: Iterable[tuple[int, Sequence[str]]]
) -> tuple[dict[str, ImageFile], list[tuple[int, str]]]:
    """Look at the images of all rows, each file once: what was found, and (row, words) of every problem."""
    found: dict[str, ImageFile] = {}
    bad: dict[str, str] = {}
    problems: list[tuple[int, str]] = []
    for row, names in rows:
        for name in names:
            if name not in found and name not in bad:
                try:
                    found[name], _ = read_image(folder, name)
                except DataError as error:
                    bad[name] = str(error)
            if name in bad:
                problems.append((row, bad[name]))
    return found, problems


def look_at(data: bytes, name: str) -> tuple[MediaType, int, int]:
    """Media type, width and height of an image's bytes, after decoding it whole. Raises DataError."""
    from PIL import Image, UnidentifiedImageError

    if len(data) > MAX_BYTES:
        raise DataError(f"image {name!r} has {len(data)} bytes; expected at most {MAX_BYTES}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with Image.open(io.BytesIO(data), formats=list(MEDIA_TYPES)) as image:
                width, height = image.size
                if width * height > MAX_PIXELS or min(width, height) < MIN_SIDE:
                    raise DataError(
                        f"image {name!r} has {width} x {height} pixels; expected sides of at least {MIN_SIDE} and at "
                        f"most {MAX_PIXELS} pixels in all"
                    )
                media_type = MEDIA_TYPES[str(image.format)]
                image.load()
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(f"image {name!r} unfolds to more than {MAX_PIXELS} pixels") from error
    except UnidentifiedImageError as error:
        raise DataError(f"image {name!r} cannot be read as PNG or JPEG (its start is neither's); convert it") from error
    except (OSError, ValueError, SyntaxError, Warning, MemoryError) as error:
        raise DataError(f"image {name!r} cannot be read as PNG or JPEG ({error}); convert it") from error
    return media_type, width, height


def _bytes_inside(folder: Path, name: str) -> bytes:
    try:
        root = folder.resolve()
        path = (root / name).resolve()
        if Path(name).is_absolute() or not path.is_relative_to(root):
            raise DataError(f"image {name!r} lies outside the image folder {folder}")
        if not path.is_file():
            raise DataError(f"image {name!r} is not a file in {folder}")
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(f"image {name!r} cannot be read: {error}") from error

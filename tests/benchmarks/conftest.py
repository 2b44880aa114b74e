"""Made-up items with drawn figures, and the real static data where it is on this machine."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

STATIC = Path(__file__).resolve().parents[3] / "shared" / "data" / "static"


@pytest.fixture
def static_data() -> Path:
    """The published figure questions; the test is skipped where they are not on this machine."""
    if not STATIC.is_dir():
        pytest.skip("needs ../shared/data/static (published figure questions, not part of the repository)")
    return STATIC


def png(width: int = 6, height: int = 4, shade: int = 90) -> bytes:
    """A small PNG."""
    stream = io.BytesIO()
    Image.new("RGB", (width, height), (shade, 10, 10)).save(stream, format="PNG")
    return stream.getvalue()


def plain_item(number: int, **changes: Any) -> dict[str, Any]:
    """One good item as plain data."""
    item = {
        "id": f"q{number}",
        "question": f"Which strain grows fastest in panel {number}?",
        "options": ["strain one", "the second strain", "strain 3", "none of them"],
        "answer": "ABCD"[number % 4],
        "images": [f"fig{number}.png"],
        "source": f"10.1/p{number // 2}",
        "level": f"L{1 + number % 3}",
        "caption": f"SECRET CAPTION {number}",
        "context": f"SECRET CONTEXT {number}",
        "reference": f"The strain of panel {number} grows fastest because it takes up sugar.",
    }
    return {key: value for key, value in {**item, **changes}.items() if value is not None}


@pytest.fixture
def write_items(tmp_path: Path) -> Callable[..., Path]:
    """Write items and their figures into a folder; returns the item file."""

    def write(items: list[dict[str, Any]], folder: str = "set") -> Path:
        home = tmp_path / folder
        home.mkdir(exist_ok=True)
        for number, item in enumerate(items):
            for name in item.get("images", ()):
                if "/" not in name:
                    (home / name).write_bytes(png(shade=number))
        path = home / "items.jsonl"
        path.write_text("".join(json.dumps(item) + "\n" for item in items))
        return path

    return write

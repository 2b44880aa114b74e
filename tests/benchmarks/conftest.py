"""Made-up items with drawn figures, and the real static data where it is on this machine."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from evidence.contracts import Figure, NoOptions, Reply, Request, Text
from evidence.errors import ReplyError

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


@pytest.fixture
def make_bench(tmp_path: Path, write_items: Callable[..., Path]) -> Callable[..., Path]:
    """Write a bench config on eight made-up items; keyword arguments replace its keys (None removes one)."""

    def make(items: list[dict[str, Any]] | None = None, **changes: Any) -> Path:
        path = write_items([plain_item(n) for n in range(8)] if items is None else items)
        config: dict[str, Any] = {
            "version": 1,
            "name": "bench",
            "items": str(path),
            "interpreter": "rules",
            "attempts": {"backoff_s": 0},
            **changes,
        }
        file = tmp_path / f"{config['name']}.yaml"
        file.write_text(yaml.safe_dump({key: value for key, value in config.items() if value is not None}))
        return file

    return make


def scores(folder: Path) -> dict[str, bytes]:
    """The score files of a run."""
    return {path.name: path.read_bytes() for path in sorted((folder / "scores").iterdir())}


class Choosing:
    """Answers what `choose` says of (all text of the request, repeat); fails from call number `down_at` on."""

    Options = NoOptions
    modalities = frozenset({"figure", "text"})
    metered = False

    def __init__(self, choose: Callable[[str, int], str], *, down_at: int | None = None, name: str = "choosing"):
        self.choose = choose
        self.down_at = down_at
        self.name = name
        self.requests: list[Request] = []

    def identity(self) -> dict[str, Any]:
        return {"name": self.name}

    async def ask(self, request: Request, blobs: Mapping[str, bytes], *, repeat: int) -> Reply:
        if self.down_at is not None and len(self.requests) >= self.down_at:
            raise ReplyError("down")
        self.requests.append(request)
        for figure in figures_in(request):
            assert blobs[figure.sha256]
        parts = [part for message in request.messages for part in message.parts]
        text = "\n".join(part.text for part in parts if isinstance(part, Text))
        return Reply(text=self.choose(text, repeat), finish_reason="stop")


def figures_in(request: Request) -> list[Figure]:
    """The figures of a request."""
    return [part for message in request.messages for part in message.parts if isinstance(part, Figure)]


def letter_of(text: str, option: str) -> str:
    """The letter at which an option stands in a prompt."""
    return next(line[0] for line in text.splitlines() if line[1:] == f". {option}")

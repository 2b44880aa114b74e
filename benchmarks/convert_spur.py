"""SPUR's files as items, in either of its two layouts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.options import split_options
from benchmarks.rows import Row, json_rows
from evidence.errors import DataError

_SPUR_FILE = re.compile(r"(single|multi|reason)(?:[-_]panel)?_qa_pair(?:\.[\w-]+)?\.json")
_SPUR_IMAGES = ("origin_images", "oringin_images")
SPUR_TASKS: Mapping[str, Sequence[tuple[str, str]]] = {
    "single": (("numerical", "NP"), ("graphical", "MP"), ("spatial", "IL")),
    "multi": (("cross-modality relation", "HI"), ("numerical", "TA"), ("morphological", "TA"), ("spatial", "TA")),
    "reason": (("qualitative", "Qual"), ("quantitative", "Quant")),
}
SPUR_STAGES = {"single": "perception", "multi": "understanding", "reason": "reasoning"}


def read_spur(source: Path, images: Path) -> Iterator[Row]:
    """SPUR's folder in either layout. QUESTION_INDEX repeats, so an item is named by its file and row."""
    found: dict[str, list[Path]] = {}
    for path in sorted(source.iterdir() if source.is_dir() else [source]):
        match = _SPUR_FILE.fullmatch(path.name)
        if match:
            found.setdefault(match[1], []).append(path)
    twice = [paths for paths in found.values() if len(paths) > 1]
    if not found or twice:
        listed = ", ".join(path.name for path in twice[0]) if twice else "none of single/multi/reason_qa_pair.json"
        raise DataError(f"{source}: expected one SPUR file of a kind, found {listed}")
    pictures = _by_stem(images)
    for kind in SPUR_TASKS:
        for path in found.get(kind, []):
            for number, row in enumerate(json_rows(path), start=1):
                yield _spur_row(kind, path.name, number, row, pictures)


def _spur_row(kind: str, file: str, number: int, row: Any, pictures: Mapping[str, str]) -> Row:
    if not isinstance(row, dict):
        return Row(file, number, {}, ("expected an object",))
    index, tag = str(row.get("QUESTION_INDEX", "")), str(row.get("QUESTION_TAG", ""))
    problems: list[str] = []
    tasks = [task for words, task in SPUR_TASKS[kind] if words in tag.casefold()]
    if len(set(tasks)) != 1:
        problems.append(f"QUESTION_TAG {tag!r} names no single task of {kind}")
    options: tuple[str, ...] = ()
    try:
        options = split_options(str(row.get("OPTION", "")))
    except ValueError as error:
        problems.append(f"OPTION: {error}")
    stem, _, last = index.rpartition("_")
    if not stem or not last.isdigit():
        problems.append(f"QUESTION_INDEX {index!r} does not end with _<number>")
    fields = {
        "id": f"{kind}-{number:05d}-{index}",
        "question": str(row.get("QUESTION", "")),
        "answer": str(row.get("ANSWER", "")).strip(),
        "options": list(options),
        "images": [pictures.get(stem, f"{_SPUR_IMAGES[0]}/{stem}.png")],
        "stage": SPUR_STAGES[kind],
        "task": tasks[0] if tasks else "",
        "source": stem,
        "context": str(row.get("EVIDENCE", "")),
    }
    return Row(file, number, fields, tuple(problems))


def _by_stem(images: Path) -> dict[str, str]:
    """Image files by their name without its ending, in either of the two published folders or in the folder itself."""
    folders = [images / name for name in _SPUR_IMAGES if (images / name).is_dir()] or [images]
    return {
        path.stem: path.relative_to(images).as_posix()
        for folder in folders
        for path in sorted(folder.iterdir())
        if path.suffix.lower() in (".png", ".jpg", ".jpeg")
    }

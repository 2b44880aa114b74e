"""LAB-Bench FigQA and MicroVQA rows as items."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.items import LETTERS
from benchmarks.rows import Row, doi, json_rows
from evidence.values import derive_seed

INSUFFICIENT = "Insufficient information to answer the question"


def read_figqa(source: Path, images: Path) -> Iterator[Row]:
    """LAB-Bench FigQA: ideal answer, distractors and "Insufficient information", in an order fixed by the id."""
    for number, row in enumerate(json_rows(source), start=1):
        if not isinstance(row, dict) or not isinstance(row.get("distractors"), list):
            yield Row(source.name, number, {}, ("expected an object with a list of distractors",))
            continue
        item_id, ideal = str(row.get("id", "")), str(row.get("ideal", ""))
        given = [ideal, *map(str, row["distractors"])]
        texts = given if any(t.casefold().startswith("insufficient inf") for t in given) else [*given, INSUFFICIENT]
        order = np.random.default_rng(derive_seed(0, "figqa", item_id)).permutation(len(texts))
        options = [texts[i] for i in order]
        yield Row(
            source.name,
            number,
            {
                "id": item_id,
                "question": str(row.get("question", "")),
                "answer": LETTERS[options.index(ideal)] if len(options) <= len(LETTERS) else "",
                "options": options,
                "images": [str(row.get("figure-path", ""))],
                "task": str(row.get("tag", "")),
                "source": doi(str(row.get("source", ""))),
                "canary": str(row.get("canary", "")),
            },
        )


def read_microvqa(source: Path, images: Path) -> Iterator[Row]:
    """MicroVQA's rows as JSON or JSON lines; `images_list` holds paths."""
    for number, row in enumerate(json_rows(source), start=1):
        if not isinstance(row, dict):
            yield Row(source.name, number, {}, ("expected an object",))
            continue
        choices, right = row.get("choices"), row.get("correct_index")
        paths = row.get("images_list")
        problems = []
        if not isinstance(choices, list) or not all(isinstance(c, str) for c in choices):
            problems.append("choices: expected a list of texts")
        if not isinstance(right, int) or isinstance(right, bool) or not 0 <= right < len(choices or []):
            problems.append(f"correct_index {right!r} is not the number of a choice, from 0")
        if not isinstance(paths, list) or not all(isinstance(p, str) for p in paths):
            problems.append("images_list: expected a list of paths")
        yield Row(
            source.name,
            number,
            {
                "id": str(row.get("key_question", "")),
                "question": str(row.get("question", "")),
                "answer": "" if problems else LETTERS[int(right or 0)] if int(right or 0) < len(LETTERS) else "",
                "options": choices,
                "images": paths,
                "task": str(row.get("task", "")),
                "source": str(row.get("key_image", "")),
            },
            tuple(problems),
        )

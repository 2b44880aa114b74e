"""The shipped example set: made-up experiments with drawn figures, so that a newcomer can run a benchmark offline.

    python -m benchmarks.example cases/bench

Numbers are invented and drawn as bars; every answer follows from them. The items say that they are synthetic.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.items import Item, build_item, write_items
from evidence.files import write_atomic

WIDTH, HEIGHT, FLOOR = 460, 300, 250
CONDITIONS = ("control", "drug", "knock-out", "knock-out + drug")
SHADES = ((70, 70, 70), (0, 114, 178), (213, 94, 0), (0, 158, 115))


class Experiment(NamedTuple):
    """One made-up experiment: what was measured in the four conditions, in per cent of control."""

    name: str
    readout: str
    gene: str
    drug: str
    values: tuple[int, int, int, int]

    @property
    def needs_gene(self) -> bool:
        """Whether the drug does nothing without the gene."""
        return abs(self.values[3] - self.values[2]) < 10


EXPERIMENTS = (
    Experiment("one", "growth", "SYNA1", "mockamycin", (100, 45, 95, 92)),
    Experiment("two", "spot count", "SYNB2", "fictinib", (100, 160, 70, 128)),
    Experiment("three", "nuclear signal", "SYNC3", "exemplol", (100, 30, 60, 58)),
    Experiment("four", "migration", "SYND4", "placebine", (100, 140, 110, 150)),
)


def figure(experiment: Experiment) -> bytes:
    """PNG of one bar chart with its axis and values."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (WIDTH, HEIGHT), (255, 255, 255))
    draw = ImageDraw.Draw(image)
    draw.text((10, 8), f"{experiment.readout} (% of control)", fill=(0, 0, 0), font_size=14)
    draw.line((50, 35, 50, FLOOR, WIDTH - 15, FLOOR), fill=(0, 0, 0), width=2)
    for tick in (0, 50, 100, 150):
        y = FLOOR - tick
        draw.line((45, y, 50, y), fill=(0, 0, 0))
        draw.text((12, y - 7), str(tick), fill=(0, 0, 0), font_size=12)
    for number, (label, value) in enumerate(zip(CONDITIONS, experiment.values, strict=True)):
        x = 65 + number * 97
        draw.rectangle((x, FLOOR - value, x + 60, FLOOR), fill=SHADES[number])
        draw.text((x - 8, FLOOR + 8), label, fill=(0, 0, 0), font_size=12)
    stream = io.BytesIO()
    image.save(stream, format="PNG")
    return stream.getvalue()


def items() -> Iterator[Item]:
    """Two items an experiment: read a value (L1), explain it (L2) or propose a hypothesis (L3)."""
    for number, experiment in enumerate(EXPERIMENTS):
        shared: dict[str, Any] = {
            "images": [f"figures/{experiment.name}.png"],
            "source": f"synthetic/{experiment.name}",
            "caption": f"{experiment.readout} with {experiment.drug} and without {experiment.gene}, % of control.",
            "context": f"Made-up experiment: {experiment.drug} in cells with and without {experiment.gene}.",
            "synthetic": True,
        }
        for plain in (_reading(experiment, number), _reasoning(experiment, number)):
            item, problems = build_item({**plain, **shared})
            if item is None:
                raise ValueError(f"{experiment.name}: {problems}")
            yield item


def _reading(e: Experiment, number: int) -> dict[str, Any]:
    highest = max(range(4), key=lambda i: e.values[i])
    return {
        "id": f"{e.name}-read",
        "question": f"In which condition is the {e.readout} highest?",
        "options": list(CONDITIONS),
        "answer": "ABCD"[highest],
        "reference": f"The {e.readout} is highest with {CONDITIONS[highest]}, at {e.values[highest]} % of control.",
        "level": "L1",
        "stage": "perception",
        "task": "NP",
    }


def _reasoning(e: Experiment, number: int) -> dict[str, Any]:
    needs = f"The drug {e.drug} acts through {e.gene}: without it the {e.readout} no longer changes."
    apart = f"The drug {e.drug} acts without {e.gene}: it still changes the {e.readout} in the knock-out."
    right, wrong = (needs, apart) if e.needs_gene else (apart, needs)
    options = [
        right,
        wrong,
        f"The drug {e.drug} has no effect on the {e.readout} in any of the cells, with or without {e.gene}.",
        f"The gene {e.gene} is needed for any {e.readout} at all: without it none is left.",
    ]
    turned = options[-number:] + options[:-number] if number else options
    return {
        "id": f"{e.name}-reason",
        "question": f"What does the figure say about {e.drug} and {e.gene}?",
        "options": turned,
        "answer": "ABCD"[turned.index(right)],
        "reference": right,
        "level": "L2" if number % 2 else "L3",
        "stage": "reasoning",
        "task": "Qual",
    }


def main() -> None:
    """Write the item file and its figures into a folder."""
    parser = argparse.ArgumentParser(description="Write the synthetic example items and their figures.")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for experiment in EXPERIMENTS:
        write_atomic(folder / "figures" / f"{experiment.name}.png", figure(experiment))
    write_atomic(folder / "synthetic.jsonl", write_items(items()))


if __name__ == "__main__":
    main()

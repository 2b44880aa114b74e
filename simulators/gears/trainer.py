"""From cells to a GEARS response table: dataset folder, ensemble, predictions. Resumable by member."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from evidence.errors import ConfigError
from evidence.expression import CellData
from evidence.strict_yaml import parse_value
from simulators.gears import compat
from simulators.gears.dataset import prepare
from simulators.gears.go import GoAnnotations, make_go, read_go
from simulators.response_table import ResponseTable


def train_table(
    data: CellData,
    *,
    options: Mapping[str, Any],
    members: int,
    seed: int,
    annotations: Path | None,
    folder: Path,
    say: Callable[[str], None],
) -> ResponseTable:
    """Train `members` networks with the held-out pairs left out, and predict every wanted condition that GEARS can.

    annotations: a gene2go file (see simulators.gears.go.read_go). Members found in `folder` are not trained again.
    Raises ConfigError for bad options or missing annotations, DataError for data that cannot be trained on.
    """
    compat.require()
    from simulators.gears.model import Gears, member_seeds
    from simulators.gears.training import GearsOptions

    settings = parse_value(json.dumps(dict(options)), GearsOptions, where="options", as_json=True)
    dataset = prepare(data.cells, held_out=data.held_out, go=_go(data, annotations), root=folder / "data")
    for name, reason in dataset.facts.left_out.items():
        say(f"left out of training: {name} ({reason})")
    gears = Gears.train(dataset, settings, seeds=member_seeds(seed, members), out=folder / "members", say=say)
    wanted = [c for c in data.wanted if gears.can_predict(c)]
    skipped = [c.id for c in data.wanted if not gears.can_predict(c)]
    if skipped:
        say(f"no prediction, a gene is not in the perturbation graph: {', '.join(skipped)}")
    table = gears.table(wanted)
    provenance = table.provenance.model_copy(update={"synthetic": data.synthetic})
    return dataclasses.replace(table, provenance=provenance)


def _go(data: CellData, annotations: Path | None) -> GoAnnotations:
    if annotations is not None:
        return read_go(annotations)
    if data.terms is None:
        raise ConfigError(
            "annotations: GEARS needs the genes' GO terms; name a gene2go file (.json or .json.gz: gene -> terms) or "
            "the folder of GEARS' originals"
        )
    return make_go(data.terms, source="generated twin")

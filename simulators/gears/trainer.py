"""From cells to a GEARS response table: dataset folder, ensemble, predictions. Resumable by member."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from evidence.errors import ConfigError
from simulators.gears import compat
from simulators.gears.dataset import GearsDataset, prepare
from simulators.gears.go import GoAnnotations, make_go, read_go
from simulators.members import member_folder
from simulators.response_table import ResponseTable
from simulators.training import Training

if TYPE_CHECKING:
    from simulators.gears.model import Gears
    from simulators.gears.training import GearsOptions


class GearsTrainer:
    """GEARS as `vcloop simulate` trains it (see simulators.training.Trainer)."""

    def check(self, training: Training) -> None:
        """Check the options and write the dataset folder. Raises ConfigError for bad options or missing annotations,
        DataError for data that cannot be trained on."""
        _options(training)
        for name, reason in _dataset(training).facts.left_out.items():
            training.say(f"left out of training: {name} ({reason})")

    def train_member(self, training: Training, number: int) -> Path:
        """Train one network with the held-out pairs left out."""
        (member,) = _train(training, number).members
        return member_folder(training.kept, member.facts)

    def table(self, training: Training) -> ResponseTable:
        """Every wanted condition that GEARS can predict."""
        gears = _train(training)
        wanted = [c for c in training.data.wanted if gears.can_predict(c)]
        skipped = [c.id for c in training.data.wanted if not gears.can_predict(c)]
        if skipped:
            training.say(f"no prediction, a gene is not in the perturbation graph: {', '.join(skipped)}")
        table = gears.table(wanted)
        provenance = table.provenance.model_copy(update={"synthetic": training.data.synthetic})
        return dataclasses.replace(table, provenance=provenance)


def _train(training: Training, number: int | None = None) -> Gears:
    from simulators.gears.model import Gears, member_seeds

    settings, dataset = _options(training), _dataset(training)
    seeds = member_seeds(training.seed, training.members)
    own = seeds if number is None else seeds[number - 1 : number]
    return Gears.train(dataset, settings, seeds=own, out=training.kept, say=training.say)


def _options(training: Training) -> GearsOptions:
    compat.require()
    from simulators.gears.training import GearsOptions

    return training.options_as(GearsOptions)


def _dataset(training: Training) -> GearsDataset:
    data, go = training.data, _go(training)
    return prepare(data.cells, held_out=data.held_out, go=go, root=training.folder / "data")


def _go(training: Training) -> GoAnnotations:
    if training.annotations is not None:
        return read_go(training.annotations)
    if training.data.terms is None:
        raise ConfigError(
            "annotations: GEARS needs the genes' GO terms; name a gene2go file (.json or .json.gz: gene -> terms) or "
            "the folder of GEARS' originals"
        )
    return make_go(training.data.terms, source="generated twin")

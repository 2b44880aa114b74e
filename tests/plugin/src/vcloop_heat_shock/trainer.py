"""A trainer: every member is the mean change of each strain over a bootstrap sample of the cells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evidence.conditions import CONTROL
from evidence.errors import ConfigError
from evidence.values import Value, derive_seed, sha256_of
from simulators import members
from simulators.response_table import Provenance, ResponseTable, make_table
from simulators.training import Training


class MemberFacts(Value):
    """What decides a member."""

    seed: int
    data_sha256: str
    versions: dict[str, str]

    @property
    def key(self) -> str:
        """Hash of everything above."""
        return sha256_of(self)


_Description = members.Description[MemberFacts]


class BootstrapTrainer:
    """Trains in milliseconds (see simulators.training.Trainer)."""

    def check(self, training: Training) -> None:
        """There are no options."""
        if training.options:
            raise ConfigError(f"options: bootstrap has none, got {', '.join(training.options)}")

    def train_member(self, training: Training, number: int) -> Path:
        """Draw the cells of each condition with the member's own seed, and keep the mean change from control."""
        facts = _facts(training, number)
        folder = members.member_folder(training.folder, facts)
        if folder.is_dir():
            training.say(f"found in {folder}")
            return folder
        changes = _changes(training, np.random.default_rng(facts.seed))

        def write(path: Path) -> None:
            with path.open("wb") as file:
                np.save(file, changes)

        members.save(folder, _Description, facts, None, write)
        return folder

    def table(self, training: Training) -> ResponseTable:
        """The means of every strain."""
        folders = [self.train_member(training, number) for number in range(1, training.members + 1)]
        each = [np.load(folder / members.WEIGHTS) for folder in folders]
        cells = training.data.cells
        return make_table(
            [condition.id for condition in cells.perturbations],
            cells.genes,
            np.stack(each),
            unit="log1p change from control",
            provenance=Provenance(
                simulator="bootstrap",
                data_sha256=cells.data_sha256,
                members=tuple(members.read(folder, _Description).facts.key for folder in folders),
                synthetic=True,
            ),
        )


def _facts(training: Training, number: int) -> MemberFacts:
    seed = derive_seed(training.seed, "bootstrap", str(number))
    return MemberFacts(seed=seed, data_sha256=training.data.cells.data_sha256, versions={"numpy": np.__version__})


def _changes(training: Training, rng: np.random.Generator) -> NDArray[np.float64]:
    cells = training.data.cells
    means = {
        condition: cells.of(condition).toarray()[rng.integers(0, len(rows), len(rows))].mean(axis=0, dtype=np.float64)
        for condition, rows in cells.rows.items()
    }
    return np.stack([means[condition] - means[CONTROL] for condition in cells.perturbations])

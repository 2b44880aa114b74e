"""A CPA ensemble: trained with whole combinations held out, saved, loaded, and predicting any pair of known drugs.

A prediction is counterfactual: control cells are decoded under the pair, and the same cells under no drug are taken
off. The standard deviation is the spread over members trained from different seeds. The network's own posterior, where
it is variational, is of single cells' basal states: it says nothing of how sure the mean of 500 of them is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evidence.conditions import Condition
from evidence.errors import DataError
from evidence.expression import CellData
from evidence.values import derive_seed, sha256_of
from simulators.cpa import compat, store
from simulators.cpa.counterfactual import predict_change
from simulators.cpa.facts import CpaOptions, Member, plan_member, training_cells
from simulators.cpa.training import train_member
from simulators.response_table import Provenance, ResponseTable, make_table

UNIT = "log1p change from control"
Say = Callable[[str], None]


class Cpa:
    """A trained ensemble. Make it with `Cpa.train` or `Cpa.load`."""

    def __init__(self, members: Sequence[Member]):
        self.members = tuple(members)

    @classmethod
    def train(
        cls,
        data: CellData,
        options: CpaOptions,
        *,
        members: int,
        seed: int,
        only: int | None = None,
        out: Path | None = None,
        say: Say | None = None,
    ) -> Cpa:
        """Train every member, or, from 1, the one with the number `only`. With `out`, each is saved when done; one
        found there is not trained again.

        Raises ConfigError with the install lines if CPA is not installed.
        """
        compat.require()
        training = training_cells(data)
        seeds = sorted(derive_seed(seed, "cpa", str(n)) % 2**31 for n in range(1, members + 1))
        own = seeds if only is None else seeds[only - 1 : only]
        return cls([_member(training, options, one, out, say) for one in own])

    @classmethod
    def load(cls, out: Path) -> Cpa:
        """Every member saved under `out`. Raises DataError unless they belong to one ensemble."""
        folders = sorted(path.parent for path in out.glob("*/description.json"))
        members = sorted((store.load_member(folder) for folder in folders), key=lambda m: m.facts.seed)
        if not members:
            raise DataError(f"no CPA member in {out}")
        if len({_shared(member) for member in members}) > 1 or len({m.facts.seed for m in members}) < len(members):
            raise DataError(f"{out} holds members of several ensembles: {', '.join(f.name for f in folders)}")
        return cls(members)

    def save(self, out: Path) -> None:
        """Save every member under `out` in a folder of its own."""
        for member in self.members:
            store.save_member(member, store.member_folder(out, member.facts))

    def can_predict(self, condition: Condition) -> bool:
        """Whether every target was in some training condition."""
        return not condition.control and set(condition.targets) <= set(self.members[0].facts.drugs)

    def change(self, conditions: Iterable[Condition]) -> NDArray[np.float64]:
        """(n_members, n_conditions, n_genes) predicted change from control, log1p units. Raises DataError."""
        wanted = list(conditions)
        return np.stack([predict_change(member, wanted) for member in self.members])

    def table(self, conditions: Iterable[Condition], *, synthetic: bool = False) -> ResponseTable:
        """Predictions over genes as a response table, with the hashes of everything that they came from."""
        wanted = list(conditions)
        facts = self.members[0].facts
        provenance = Provenance(
            simulator="cpa",
            data_sha256=facts.data_sha256,
            held_out=facts.held_out,
            versions=facts.versions,
            config=facts.options.model_dump(mode="json"),
            members=tuple(f"seed {m.facts.seed}: {m.facts.key}" for m in self.members),
            synthetic=synthetic,
        )
        names = [condition.id for condition in wanted]
        return make_table(names, facts.genes, self.change(wanted), unit=UNIT, provenance=provenance)


def _member(training: CellData, options: CpaOptions, seed: int, out: Path | None, say: Say | None) -> Member:
    folder = None if out is None else store.member_folder(out, plan_member(training, options, seed))
    if folder is not None and folder.is_dir():
        _tell(say, f"seed {seed}: found in {folder}")
        return store.load_member(folder)
    _tell(say, f"seed {seed}: training {options.epochs} epochs on {len(training.cells.conditions)} cells")
    member = train_member(training, options, seed)
    _tell(say, f"seed {seed}: trained in {member.seconds:.0f} s")
    if folder is not None:
        store.save_member(member, folder)
    return member


def _shared(member: Member) -> str:
    return sha256_of(member.facts.model_dump(mode="json", exclude={"seed"}))


def _tell(say: Say | None, text: str) -> None:
    if say is not None:
        say(text)

"""A CPA ensemble: trained with whole combinations held out, saved, loaded, and predicting any pair of known drugs.

A prediction is counterfactual: control cells are decoded under the pair, and the same cells under no drug are taken
off. The standard deviation is the spread over members trained from different seeds. The network's own posterior, where
it is variational, is of single cells' basal states: it says nothing of how sure the mean of 500 of them is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from evidence.conditions import Condition, normalise_condition
from evidence.contracts import Perturbation, Prediction
from evidence.errors import ConfigError, ContractError, DataError, did_you_mean
from evidence.program_cells import CHANGE_UNIT, ProgramCells
from evidence.programs import Programs
from evidence.values import Value, derive_seed, sha256_of
from simulators.cpa import compat, store
from simulators.cpa.counterfactual import predict_change
from simulators.cpa.facts import CpaOptions, Member, plan_member
from simulators.cpa.training import train_member
from simulators.response_table import Provenance, ResponseTable, make_table

Say = Callable[[str], None]


class Cpa:
    """Simulator of kind "program_cells". Made ready by `fit`, or by `load` and then `read_out`."""

    Options: ClassVar[type[Value]] = CpaOptions
    accepts: ClassVar[str] = ProgramCells.kind

    def __init__(self, options: CpaOptions):
        self.options = options
        self.members: tuple[Member, ...] = ()
        self._programs: Programs | None = None
        self._synthetic = False

    def fit(self, training: ProgramCells, *, seed: int, out: Path | None = None, say: Say | None = None) -> None:
        """Train every member. With `out`, each is saved when done; one found there is not trained again.

        Raises ContractError for data of another kind, ConfigError with the install lines if CPA is not installed.
        """
        if getattr(training, "kind", None) != self.accepts:
            raise ContractError(f"expected training data of kind {self.accepts!r}, got {type(training).__name__}")
        compat.require()
        seeds = sorted(derive_seed(seed, "cpa", str(n)) % 2**31 for n in range(1, self.options.members + 1))
        self.members = tuple(_member(training, self.options, one, out, say) for one in seeds)
        self.read_out(training.programs)
        self._synthetic = training.synthetic

    @classmethod
    def load(cls, out: Path) -> Cpa:
        """Every member saved under `out`. Raises DataError unless they belong to one ensemble."""
        folders = sorted(path.parent for path in out.glob("*/description.json"))
        members = sorted((store.load_member(folder) for folder in folders), key=lambda m: m.facts.seed)
        if len(members) < 2:
            raise DataError(f"{out}: expected at least two CPA members, got {len(members)}")
        if len({_shared(member) for member in members}) > 1 or len({m.facts.seed for m in members}) < len(members):
            raise DataError(f"{out} holds members of several ensembles: {', '.join(f.name for f in folders)}")
        loaded = cls(members[0].facts.options)
        loaded.members = tuple(members)
        return loaded

    def save(self, out: Path) -> None:
        """Save every member under `out` in a folder of its own."""
        for member in self.members:
            store.save_member(member, store.member_folder(out, member.facts))

    def read_out(self, programs: Programs) -> None:
        """Set the programs that `predict` reads out."""
        self._programs = programs

    def can_predict(self, condition: Condition) -> bool:
        """Whether every target was in some training condition."""
        return not condition.control and set(condition.targets) <= set(self._fitted[0].facts.drugs)

    def change(self, conditions: Iterable[Condition]) -> NDArray[np.float64]:
        """(n_members, n_conditions, n_genes) predicted change from control, log1p units. Raises DataError."""
        wanted = list(conditions)
        return np.stack([predict_change(member, wanted) for member in self._fitted])

    def predict(self, perturbation: Perturbation, readouts: Sequence[str]) -> tuple[Prediction, ...]:
        """The change of every program: mean and standard deviation over the members."""
        if self._programs is None:
            raise ContractError("expected fit before predict")
        columns = {program.id: at for at, program in enumerate(self._programs.programs)}
        unknown = [name for name in readouts if name not in columns]
        if unknown:
            raise ConfigError(f"no program {unknown[0]!r}.{did_you_mean(unknown[0], columns)}")
        condition = normalise_condition("+".join(perturbation.targets))
        each = self.change([condition])[:, 0] @ self._programs.matrix(self._fitted[0].facts.genes)
        mean, sd = each.mean(axis=0), each.std(axis=0, ddof=1)
        return tuple(
            Prediction(readout=name, mean=float(mean[columns[name]]), sd=float(sd[columns[name]])) for name in readouts
        )

    def table(self, conditions: Iterable[Condition]) -> ResponseTable:
        """Predictions over genes as a response table, with the hashes of everything that they came from."""
        wanted = list(conditions)
        facts = self._fitted[0].facts
        provenance = Provenance(
            simulator="cpa",
            data_sha256=facts.data_sha256,
            held_out=facts.held_out,
            versions=facts.versions,
            config=facts.options.model_dump(mode="json"),
            members=tuple(f"seed {m.facts.seed}: {m.facts.key}" for m in self.members),
            synthetic=self._synthetic,
        )
        names = [condition.id for condition in wanted]
        return make_table(names, facts.genes, self.change(wanted), unit=CHANGE_UNIT, provenance=provenance)

    @property
    def _fitted(self) -> tuple[Member, ...]:
        if not self.members:
            raise ContractError("expected fit before predict")
        return self.members


def _member(training: ProgramCells, options: CpaOptions, seed: int, out: Path | None, say: Say | None) -> Member:
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

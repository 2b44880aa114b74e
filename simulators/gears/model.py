"""A GEARS ensemble: trained, saved, loaded, and predicting any number of singles and pairs at once.

Why batches are cheap and exact. In evaluation GEARS' network never looks at the control cell: its output is an effect
of the perturbation plus the cell's own expression. Upstream runs the same effect for 300 control cells and averages.
We run it twice for each perturbation. One detail is kept, because predictions differ without it: upstream's
co-expression graph only reaches the first cell of a batch, so its average is (first + 299 others) / 300. One batch
holds a first cell, with a graph of its own, and another for each perturbation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from evidence.conditions import Condition
from evidence.errors import ContractError, DataError
from evidence.values import derive_seed
from simulators.gears import compat, store
from simulators.gears.dataset import GearsDataset
from simulators.gears.training import GearsOptions, Member, Say, plan_member, train_member
from simulators.replaced import replaced
from simulators.response_table import Provenance, ResponseTable, make_table

CELLS_PER_PREDICTION = 300
"""Control cells that upstream averages over."""
_ROWS_PER_BATCH = 64_000
_ADDITIVITY_TOLERANCE = 1e-4


class Change(NamedTuple):
    """Predicted change from control, log1p units. members: (n_members, n_perturbations, n_genes) float64.

    mean, sd: (n_perturbations, n_genes) over members; sd is None with one member.
    """

    conditions: tuple[Condition, ...]
    genes: tuple[str, ...]
    members: NDArray[np.float64]
    mean: NDArray[np.float64]
    sd: NDArray[np.float64] | None


class Gears:
    """A trained ensemble. Make it with `Gears.train` or `Gears.load`."""

    def __init__(self, members: Sequence[Member]):
        self.members = tuple(members)

    @classmethod
    def train(
        cls,
        dataset: GearsDataset,
        options: GearsOptions,
        *,
        seeds: Sequence[int],
        out: Path | None = None,
        say: Say | None = None,
    ) -> Gears:
        """Train one member for each seed. With `out`, each is saved when done; one found there is not trained again."""
        if not seeds or len(set(seeds)) != len(seeds):
            raise DataError(f"expected distinct seeds, one for each member, got {list(seeds)}")
        members = []
        for number, seed in enumerate(seeds, start=1):
            folder = None if out is None else store.member_folder(out, plan_member(dataset, options, seed))
            if folder is not None and folder.is_dir():
                _tell(say, f"member {number} of {len(seeds)} (seed {seed}): found in {folder}")
                member = store.load_member(folder)
            else:
                _tell(say, f"member {number} of {len(seeds)} (seed {seed}): training")
                member = train_member(dataset, options, seed, say)
                _check_additive(member)
                if folder is not None:
                    store.save_member(member, folder)
            members.append(member)
        return cls(members)

    @classmethod
    def load(cls, out: Path) -> Gears:
        """Every member saved under `out`. Raises DataError unless they belong to one ensemble."""
        folders = sorted(path.parent for path in out.glob("seed*/description.json"))  # not what a killed save left
        members = sorted((store.load_member(folder) for folder in folders), key=lambda m: m.facts.seed)
        if not members:
            raise DataError(f"no GEARS member in {out}")
        if len({m.facts.ensemble for m in members}) > 1 or len({m.facts.seed for m in members}) < len(members):
            raise DataError(f"{out} holds members of several ensembles: {', '.join(f.name for f in folders)}")
        return cls(members)

    def save(self, out: Path) -> None:
        """Save every member under `out` in a folder of its own."""
        for member in self.members:
            store.save_member(member, store.member_folder(out, member.facts))

    @property
    def genes(self) -> tuple[str, ...]:
        """The measured genes: columns of every prediction."""
        return self.members[0].facts.genes

    @property
    def member_names(self) -> tuple[str, ...]:
        """Seed and hash of every member, as a table names them."""
        return tuple(f"seed {m.facts.seed}: {m.facts.key}" for m in self.members)

    def can_predict(self, condition: Condition) -> bool:
        """Whether every target is in the perturbation graph (has a GO annotation)."""
        return not condition.control and set(condition.targets) <= set(self.members[0].facts.graph_genes)

    def predict(self, conditions: Iterable[Condition]) -> Change:
        """The change of every gene under each condition. Raises DataError naming genes that GEARS cannot perturb."""
        wanted = tuple(conditions)
        index = self.targets(wanted)
        members = np.stack([_effect(member, index) for member in self.members])
        sd = members.std(axis=0, ddof=1) if len(members) > 1 else None
        return Change(wanted, self.genes, members, members.mean(axis=0), sd)

    def predict_expression(self, conditions: Iterable[Condition], *, seed: int) -> NDArray[np.float64]:
        """(n_members, n_conditions, n_genes): the change added to the mean of 300 control cells drawn with `seed`."""
        change = self.predict(conditions)
        base = np.stack([_mean_control(m.control, control_rows(m.control.shape[0], seed)) for m in self.members])
        return np.asarray(change.members + base[:, None, :])

    def table(self, conditions: Iterable[Condition]) -> ResponseTable:
        """Predictions as a response table, with the hashes of everything that they came from."""
        change = self.predict(conditions)
        facts = self.members[0].facts
        provenance = Provenance(
            simulator="gears",
            data_sha256=facts.data_sha256,
            held_out=facts.held_out,
            versions=facts.versions,
            config=facts.options.model_dump(mode="json"),
            members=self.member_names,
        )
        names = [condition.id for condition in change.conditions]
        return make_table(names, self.genes, change.members, unit="log1p change from control", provenance=provenance)

    def targets(self, conditions: Sequence[Condition]) -> list[list[int]]:
        """Node numbers of the targets of each condition. Raises DataError naming genes that GEARS cannot perturb."""
        number = {name: n for n, name in enumerate(self.members[0].facts.graph_genes)}
        unknown = sorted({gene for c in conditions for gene in c.targets if gene not in number})
        if unknown:
            raise DataError(f"GEARS cannot perturb {', '.join(unknown)}: no GO annotation in its perturbation graph")
        if any(condition.control for condition in conditions):
            raise DataError("the control is not a perturbation: its change is zero by definition")
        return [[number[gene] for gene in condition.targets] for condition in conditions]


def control_rows(n_control: int, seed: int) -> NDArray[np.intp]:
    """The control cells that upstream's `predict` draws right after numpy was seeded with this seed."""
    rows = np.random.RandomState(seed % 2**32).randint(0, n_control, CELLS_PER_PREDICTION)
    return np.asarray(rows, dtype=np.intp)


def upstream_expression(member: Member, condition: Condition, *, seed: int) -> NDArray[np.float64]:
    """(n_genes,): upstream's own `predict` of one condition on the control cells of `seed`, its cache emptied first."""
    if member.upstream is None:
        raise ContractError("upstream's predict needs a member that was trained in this process, got a loaded one")
    member.upstream.saved_pred.clear()
    with compat.quiet(), compat.seeded(seed, member.facts.options.threads):
        predicted = member.upstream.predict([list(condition.targets)])
    return np.asarray(predicted["_".join(condition.targets)], dtype=np.float64)


def mean_effects(network: Any, targets: Sequence[Sequence[int]], n_genes: int) -> torch.Tensor:
    """(n_perturbations, n_genes) float64 mean change over 300 cells, with gradients where they are on."""
    n, edges = len(targets), network.G_coexpress
    start = torch.arange(n).repeat_interleave(edges.shape[1]) * n_genes
    graphs = {"G_coexpress": edges.repeat(1, n) + start, "G_coexpress_weight": network.G_coexpress_weight.repeat(n)}
    with replaced(network, **graphs):
        effects = _forward(network, [*targets, *targets], n_genes).double()
    return (effects[:n] + (CELLS_PER_PREDICTION - 1) * effects[n:]) / CELLS_PER_PREDICTION


def _effect(member: Member, targets: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    n_genes = len(member.facts.genes)
    size = max(1, _ROWS_PER_BATCH // (2 * n_genes))
    with torch.no_grad(), compat.quiet(), compat.seeded(0, member.facts.options.threads):
        parts = [
            mean_effects(member.network, targets[start : start + size], n_genes).numpy()
            for start in range(0, len(targets), size)
        ]
    return np.concatenate(parts) if parts else np.empty((0, n_genes))


def _forward(network: Any, targets: Sequence[Sequence[int]], n_genes: int, x: Any = None) -> torch.Tensor:
    n = len(targets)
    x = torch.zeros(n * n_genes, 1) if x is None else x
    effect: torch.Tensor = network(SimpleNamespace(x=x, pert_idx=[list(t) for t in targets], batch=torch.arange(n)))
    return effect


def _check_additive(member: Member) -> None:
    """Raise ContractError unless the output is effect + x, on which batching rests."""
    n_genes = len(member.facts.genes)
    x = torch.from_numpy(compat.dense(member.control[:1])).reshape(n_genes, 1)
    with torch.no_grad():
        effect = _forward(member.network, [[0]], n_genes, x) - x.reshape(1, -1)
        gap = float((effect - _forward(member.network, [[0]], n_genes)).abs().max())
    if not gap < _ADDITIVITY_TOLERANCE:
        raise ContractError(
            f"GEARS' effect depends on the control cell (by {gap:g}): batched prediction would be wrong"
        )


def _mean_control(control: sparse.csr_matrix, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    return np.asarray(control[rows].mean(axis=0, dtype=np.float64)).ravel()


def _tell(say: Say | None, text: str) -> None:
    if say is not None:
        say(text)


def member_seeds(seed: int, n: int) -> tuple[int, ...]:
    """Seeds of `n` members, derived from one."""
    return tuple(derive_seed(seed, "gears", str(number)) % 2**31 for number in range(1, n + 1))

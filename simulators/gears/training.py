"""Training one member of a GEARS ensemble with upstream's own code, seeded inside and leaving no trace outside."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from pydantic import Field
from scipy import sparse

from evidence.conditions import Condition
from evidence.errors import DataError
from evidence.values import Number, Value, derive_seed, sha256_of
from simulators.gears import compat, lean
from simulators.gears.dataset import CELLS_FILE, GRAPH_FILE, GearsDataset

Say = Callable[[str], None]


class GearsOptions(Value):
    """How one member is trained. Defaults are GEARS' own; its learning rate halves after every epoch.

    validation: the part of the training conditions whose error chooses the best epoch (at least one condition).
    threads: of torch while training and predicting; more than one gives another network, and is slower unless cores
    are idle (docs/performance.md).
    """

    epochs: int = Field(default=20, ge=1)
    batch_size: int = Field(default=32, ge=2)
    learning_rate: Annotated[Number, Field(gt=0)] = 1e-3
    weight_decay: Annotated[Number, Field(ge=0)] = 5e-4
    hidden_size: int = Field(default=64, ge=1)
    decoder_hidden_size: int = Field(default=16, ge=1)
    similar_genes: int = Field(default=20, ge=1)
    coexpression: Annotated[Number, Field(ge=0, le=1)] = 0.4
    direction: Annotated[Number, Field(ge=0)] = 0.1
    validation: Annotated[Number, Field(gt=0, lt=1)] = 0.1
    threads: int = Field(default=1, ge=1)


class MemberFacts(Value):
    """What one member was trained on, and how. Its `key` changes with data, options, seed and versions."""

    dataset: str
    data_sha256: str
    go_sha256: str
    versions: dict[str, str]
    options: GearsOptions
    seed: int
    genes: tuple[str, ...]
    graph_genes: tuple[str, ...]
    held_out: tuple[str, ...]
    validation: tuple[str, ...]

    @property
    def key(self) -> str:
        """Hash of everything that decides the weights. One thread, the default, is not in it."""
        return sha256_of(self.model_dump(mode="json", exclude=self._default_threads))

    @property
    def ensemble(self) -> str:
        """Hash of what the members of one ensemble share: all but the seed and what follows from it."""
        shared = self._default_threads | {"seed": True, "validation": True}
        return sha256_of(self.model_dump(mode="json", exclude=shared))

    @property
    def _default_threads(self) -> dict[str, Any]:
        return {"options": {"threads"}} if self.options.threads == 1 else {}


class Member(NamedTuple):
    """One trained network. `upstream` is the GEARS object it came from, None after loading.

    control: (n_control_cells, n_genes) csr float32 log1p. graphs: edges and weights that the network is built with.
    """

    facts: MemberFacts
    network: Any
    graphs: dict[str, torch.Tensor]
    control: sparse.csr_matrix
    upstream: Any = None
    seconds: float | None = None


def plan_member(dataset: GearsDataset, options: GearsOptions, seed: int) -> MemberFacts:
    """What training would use, without training."""
    facts = dataset.facts
    return MemberFacts(
        dataset=facts.key,
        data_sha256=facts.data_sha256,
        go_sha256=facts.go_sha256,
        versions=facts.versions,
        options=options,
        seed=seed,
        genes=facts.genes,
        graph_genes=facts.graph_genes,
        held_out=facts.held_out,
        validation=tuple(c.id for c in validation_conditions(dataset, options.validation, seed)),
    )


def validation_conditions(dataset: GearsDataset, part: float, seed: int) -> tuple[Condition, ...]:
    """Training conditions that only choose the best epoch: seeded, if possible sharing no gene with a held-out pair.

    The singles of a held-out pair thus stay in training. Only labels are looked at.
    """
    hidden = {gene for name in dataset.facts.held_out for gene in name.split("+")}
    conditions = dataset.conditions
    free = [c for c in conditions if not hidden & set(c.targets)] or list(conditions)
    wanted = min(max(1, round(part * len(conditions))), len(free), len(conditions) - 1)
    if wanted < 1:
        raise DataError(f"expected at least two training perturbations, got {len(conditions)}")
    order = np.random.default_rng(derive_seed(seed, "validation")).permutation(len(free))
    return tuple(sorted(free[i] for i in order[:wanted]))


def train_member(dataset: GearsDataset, options: GearsOptions, seed: int, say: Say | None = None) -> Member:
    """Train one network. Python's, numpy's and torch's random states and torch's threads are as before afterwards."""
    facts = plan_member(dataset, options, seed)
    upstream = compat.load()
    start = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="vcloop-gears-") as scratch,
        compat.quiet(),
        compat.seeded(derive_seed(seed, "gears"), options.threads),
        compat.progress(say),
        lean.training(),
    ):
        data = _upstream_data(dataset, facts, Path(scratch))
        with compat.boolean_series():
            gears = upstream.GEARS(data, device="cpu")
        gears.model_initialize(
            hidden_size=options.hidden_size,
            decoder_hidden_size=options.decoder_hidden_size,
            num_similar_genes_go_graph=options.similar_genes,
            num_similar_genes_co_express_graph=options.similar_genes,
            coexpress_threshold=options.coexpression,
            direction_lambda=options.direction,
        )
        gears.train(epochs=options.epochs, lr=options.learning_rate, weight_decay=options.weight_decay)
    graphs = {n: gears.config[n].cpu() for n in ("G_go", "G_go_weight", "G_coexpress", "G_coexpress_weight")}
    control = sparse.csr_matrix(gears.ctrl_adata.X, dtype=np.float32)
    gears.best_model.eval()
    return Member(facts, gears.best_model, graphs, control, gears, time.monotonic() - start)


def _upstream_data(dataset: GearsDataset, facts: MemberFacts, scratch: Path) -> Any:
    """Upstream's PertData on the dataset folder, with our split; it writes what it must into `scratch`."""
    import anndata

    upstream = compat.load()
    data = upstream.PertData(str(dataset.folder))
    data.adata = anndata.read_h5ad(dataset.folder / CELLS_FILE)
    data.set_pert_genes()
    data.ctrl_adata = data.adata[(data.adata.obs["condition"] == "ctrl").to_numpy()]
    data.gene_names = data.adata.var.gene_name
    data.create_dataset_file()
    validation = {Condition(tuple(name.split("+"))) for name in facts.validation}
    train = [c.gears_label for c in dataset.conditions if c not in validation]
    data.split, data.seed, data.subgroup, data.train_gene_set_size = "no_test", facts.seed, None, None
    data.set2conditions = {"train": [*train, "ctrl"], "val": sorted(c.gears_label for c in validation)}
    n_train = sum(len(data.dataset_processed[name]) for name in data.set2conditions["train"])
    if n_train < facts.options.batch_size:
        raise DataError(f"{n_train} training cells are fewer than one batch of {facts.options.batch_size}")
    data.get_dataloader(facts.options.batch_size)
    data.data_path, data.dataset_name = str(scratch), "cells"
    (scratch / "cells").mkdir()
    (scratch / GRAPH_FILE).parent.mkdir()
    (scratch / GRAPH_FILE).symlink_to((dataset.folder / GRAPH_FILE).resolve())
    return data

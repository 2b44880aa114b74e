"""Training one member of a CPA ensemble with upstream's own code, seeded inside and leaving no trace outside.

Only training cells are handed over: held-out combinations cannot be seen because they are not there. The likelihood is
Gaussian on log1p expression, the scale that `PerturbedCells` declares and checks.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from scipy import sparse

from evidence.conditions import CONTROL, Condition
from evidence.errors import ContractError, DataError
from evidence.program_cells import ProgramCells
from evidence.values import Number, Value, derive_seed, sha256_of
from simulators.cpa import compat

Expression = NDArray[np.float32]
MAX_TARGETS = 2
CONTROL_DOSE = 0.0
"""Dosers give 0 at dose 0, so a control cell is its basal state. With a dose of 1 upstream also learns an embedding of
"control": every drug's embedding then holds its offset, and a pair holds it twice (pairs were off by ten times more).
"""
VALIDATION_CELLS = 0.1


class CpaOptions(Value):
    """How an ensemble is trained and asked.

    members: networks, each from its own seed; their spread is the standard deviation. variational: the basal state of
    a cell costs KL divergence and a drug's embedding costs nothing, so that drugs are carried by their embeddings;
    without it the basal state explains everything and drugs do little. adversary: weight, and adversary_rate: learning
    rate, of upstream's classifier to the same end. embedding_scale: size of embeddings before training, as a part
    of upstream's. doser: how a dose scales a drug's embedding. max_genes: the most variable genes of the training
    cells, with those of the programs. control_cells: how many a prediction averages over.
    """

    members: int = Field(default=3, ge=2)
    epochs: int = Field(default=40, ge=1)
    batch_size: int = Field(default=128, ge=8)
    learning_rate: Annotated[Number, Field(gt=0)] = 3e-3
    weight_decay: Annotated[Number, Field(ge=0)] = 1e-6
    n_latent: int = Field(default=16, ge=2)
    n_hidden: int = Field(default=128, ge=4)
    n_layers: int = Field(default=1, ge=1)
    variational: bool = True
    doser: Literal["linear", "logsigm", "sigm"] = "linear"
    adversary: Annotated[Number, Field(ge=0)] = 1.0
    adversary_rate: Annotated[Number, Field(gt=0)] = 1e-3
    embedding_scale: Annotated[Number, Field(gt=0)] = 1.0
    max_genes: int = Field(default=2000, ge=1)
    control_cells: int = Field(default=500, ge=2)
    threads: int = Field(default=1, ge=1)


class MemberFacts(Value):
    """What one member was trained on, and how. Its `key` changes with data, options, seed and versions.

    drugs: in the order of the embedding, after padding and control. doses: each drug's median dose in training.
    """

    data_sha256: str
    versions: dict[str, str]
    options: CpaOptions
    seed: int
    genes: tuple[str, ...]
    drugs: tuple[str, ...]
    doses: tuple[float, ...]
    conditions: dict[str, int]
    held_out: tuple[str, ...]

    @property
    def key(self) -> str:
        """Hash of everything that decides the weights; the number of threads does not."""
        return sha256_of(self.model_copy(update={"options": self.options.model_copy(update={"threads": 1})}))


class Member(NamedTuple):
    """One trained network. control: (n_cells, n_genes) float32 log1p, the cells that predictions start from."""

    facts: MemberFacts
    network: Any
    control: Expression
    seconds: float | None = None


def plan_member(training: ProgramCells, options: CpaOptions, seed: int) -> MemberFacts:
    """What training would use, without training."""
    cells = training.cells
    drugs = sorted({target for condition in cells.rows for target in condition.targets})
    if not drugs:
        raise DataError("no perturbation to train on: every training cell is a control")
    return MemberFacts(
        data_sha256=cells.data_sha256,
        versions=compat.versions(),
        options=options,
        seed=seed,
        genes=_genes(training, options.max_genes),
        drugs=tuple(drugs),
        doses=tuple(_median_dose(training, drug) for drug in drugs),
        conditions={condition.id: len(rows) for condition, rows in cells.rows.items()},
        held_out=training.held_out,
    )


def train_member(training: ProgramCells, options: CpaOptions, seed: int) -> Member:
    """Train one network. Random states, torch's threads, upstream's classes and the working folder are as before."""
    facts = plan_member(training, options, seed)
    upstream = compat.load()
    start = time.monotonic()
    columns = [training.cells.column(gene) for gene in facts.genes]
    x = dense(training.cells.X[:, columns])
    with (
        tempfile.TemporaryDirectory(prefix="vcloop-cpa-") as scratch,
        compat.quiet(),
        compat.seeded(derive_seed(seed, "cpa"), options.threads),
        compat.fresh(upstream),
    ):
        adata = _upstream_data(training, x, facts)
        setup(adata, facts)
        model = upstream.CPA(
            adata, split_key="split", train_split="train", valid_split="valid", test_split="none", **hyper(facts)
        )
        with torch.no_grad():
            model.module.pert_network.pert_embedding.weight.mul_(options.embedding_scale)
        model.train(
            max_epochs=options.epochs,
            use_gpu=False,
            batch_size=options.batch_size,
            plan_kwargs=plan(options),
            save_path=False,
            check_val_every_n_epoch=options.epochs + 1,
            callbacks=[last := _last_epoch()],
            early_stopping_patience=options.epochs,
            default_root_dir=scratch,
            enable_progress_bar=False,
        )
        model.module.load_state_dict(last.state)
        network = model.module.eval()
    control = x[training.cells.rows[CONTROL]][: options.control_cells]
    return Member(facts, network, control, time.monotonic() - start)


def setup(adata: Any, facts: MemberFacts) -> None:
    """Register the cells with upstream, then assert that every drug got its own dose (upstream sorts drugs only)."""
    upstream = compat.load()
    upstream.CPA.setup_anndata(
        adata,
        perturbation_key="condition",
        control_group="ctrl",
        dosage_key="dose",
        is_count_data=False,
        categorical_covariate_keys=[],
        max_comb_len=MAX_TARGETS,
    )
    vocabulary = list(upstream.CPA.pert_encoder)
    if vocabulary != ["<PAD>", "ctrl", *facts.drugs]:
        raise ContractError(f"expected upstream's drugs to be {list(facts.drugs)}, got {vocabulary[2:]}")
    index, dose = np.asarray(adata.obsm["perts"]), np.asarray(adata.obsm["perts_doses"], dtype=float)
    for row, (label, said) in enumerate(zip(adata.obs["condition"], adata.obs["dose"], strict=True)):
        wanted = dict(zip(label.split("+"), map(float, said.split("+")), strict=True))
        got = {vocabulary[i]: d for i, d in zip(index[row], dose[row], strict=True) if i}
        if got != wanted:
            raise ContractError(f"cell {adata.obs_names[row]}: expected doses {wanted}, got {got}")


def hyper(facts: MemberFacts) -> dict[str, Any]:
    """Upstream's names for the shape of the network."""
    options = facts.options
    return {
        "n_latent": options.n_latent,
        "recon_loss": "gauss",
        "doser_type": options.doser,
        "n_hidden_encoder": options.n_hidden,
        "n_layers_encoder": options.n_layers,
        "n_hidden_decoder": options.n_hidden,
        "n_layers_decoder": options.n_layers,
        "variational": options.variational,
        "seed": derive_seed(facts.seed, "cpa network") % 2**31,
    }


def plan(options: CpaOptions) -> dict[str, Any]:
    """Upstream's names for how the network is trained."""
    return {
        "lr": options.learning_rate,
        "wd": options.weight_decay,
        "reg_adv": options.adversary,
        "adv_lr": options.adversary_rate,
        "adv_steps": None,  # upstream trains the autoencoder on every third batch only; here on each
        "n_epochs_verbose": options.epochs,
    }


def predict_change(member: Member, conditions: Sequence[Condition]) -> NDArray[np.float64]:
    """(n_conditions, n_genes): counterfactual expression of control cells minus that of the same cells as control.

    No treated cell is an input. Both terms come from the decoder, so what it reconstructs badly cancels.
    """
    position = {drug: number for number, drug in enumerate(member.facts.drugs)}
    unknown = sorted({t for c in conditions for t in c.targets if t not in position})
    if unknown:
        raise DataError(f"CPA has no embedding of {', '.join(unknown)}: in no training condition")
    before = _decode(member, [1, 0], [CONTROL_DOSE, 0.0])
    rows = [
        _decode(
            member,
            [position[t] + 2 for t in c.targets] + [0] * (MAX_TARGETS - len(c.targets)),
            [member.facts.doses[position[t]] for t in c.targets] + [0.0] * (MAX_TARGETS - len(c.targets)),
        )
        - before
        if c.targets
        else np.zeros_like(before)
        for c in conditions
    ]
    return np.array(rows).reshape(len(rows), len(member.facts.genes))


def dense(x: Any) -> Expression:
    """A float32 array of a sparse or dense matrix."""
    return np.asarray(x.toarray() if sparse.issparse(x) else x, dtype=np.float32)


def _decode(member: Member, perts: list[int], doses: list[float]) -> NDArray[np.float64]:
    """(n_genes,) mean decoded expression of the control cells under one perturbation."""
    x = torch.from_numpy(member.control)
    with torch.no_grad(), compat.seeded(0, member.facts.options.threads):
        inferred = member.network.inference(
            x=x,
            perts={"true": torch.tensor([perts] * len(x))},
            perts_doses={"true": torch.tensor([doses] * len(x), dtype=torch.float32)},
            covars_dict={},
        )
        decoded = member.network.generative(z=inferred["z"])["px"].loc
    return np.asarray(decoded.numpy().mean(axis=0, dtype=np.float64))


def _genes(training: ProgramCells, most: int) -> tuple[str, ...]:
    """Genes of the programs and the most variable ones of the training cells, in the order of the columns."""
    cells = training.cells
    squared = np.asarray(cells.X.multiply(cells.X).mean(axis=0)).ravel()
    variance = squared - np.asarray(cells.X.mean(axis=0)).ravel() ** 2
    needed = {cells.column(gene) for program in training.programs.programs for gene in program.genes}
    best = [int(i) for i in np.argsort(-variance, kind="stable") if int(i) not in needed]
    kept = sorted(needed | set(best[: max(0, most - len(needed))]))
    return tuple(cells.genes[column] for column in kept)


def _median_dose(training: ProgramCells, drug: str) -> float:
    if training.doses is None:
        return 1.0
    pairs = zip(training.cells.conditions, training.doses, strict=True)
    return float(np.median([d for c, dose in pairs for t, d in zip(c.targets, dose, strict=True) if t == drug]))


def _upstream_data(training: ProgramCells, x: Expression, facts: MemberFacts) -> Any:
    """AnnData as upstream wants it: labels and doses sorted alike, and a part of the cells for choosing the epoch."""
    import anndata
    import pandas as pd

    conditions = training.cells.conditions
    doses = training.doses or tuple((1.0,) * len(condition.targets) for condition in conditions)
    said = ["+".join(map(repr, dose)) if dose else repr(CONTROL_DOSE) for dose in doses]
    valid = _validation(len(conditions), facts.options.batch_size)
    obs = pd.DataFrame(
        {
            "condition": [condition.id for condition in conditions],
            "dose": said,
            "split": np.where(valid, "valid", "train"),
        },
        index=[f"cell{number}" for number in range(len(conditions))],
    )
    return anndata.AnnData(x, obs=obs, var=pd.DataFrame(index=list(facts.genes)))


def _last_epoch() -> Any:
    """A callback that keeps the last epoch's weights.

    Upstream puts back its "best" ones: those that reconstruct treated cells best, or, if none was validated, the
    untrained ones. Neither is what a counterfactual needs.
    """
    from pytorch_lightning import Callback

    class LastEpoch(Callback):
        state: Any = None

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self.state = {name: value.clone() for name, value in pl_module.module.state_dict().items()}

    return LastEpoch()


def _validation(n_cells: int, batch_size: int) -> NDArray[np.bool_]:
    """A random tenth of the training cells, drawn from the seeded numpy; no batch of one cell is left over."""
    order = np.random.permutation(n_cells)
    n_valid = max(2, round(VALIDATION_CELLS * n_cells))
    n_valid += (n_cells - n_valid) % batch_size == 1
    if n_cells - n_valid < 2:
        raise DataError(f"expected at least 4 training cells, got {n_cells}")
    chosen = np.zeros(n_cells, dtype=bool)
    chosen[order[:n_valid]] = True
    return chosen

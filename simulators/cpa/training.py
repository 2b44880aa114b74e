"""Training one member of a CPA ensemble with upstream's own code, seeded inside and leaving no trace outside.

Only training cells are handed over: held-out combinations cannot be seen because they are not there. The likelihood is
Gaussian on log1p expression, the scale that `PerturbedCells` declares and checks.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from evidence.conditions import CONTROL
from evidence.errors import ContractError, DataError
from evidence.expression import CellData
from evidence.values import derive_seed
from simulators.cpa import compat, lean
from simulators.cpa.facts import CONTROL_DOSE, MAX_TARGETS, CpaOptions, Expression, Member, MemberFacts, plan_member

VALIDATION_CELLS = 0.1


def train_member(training: CellData, options: CpaOptions, seed: int) -> Member:
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
        lean.training(),
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


def dense(x: Any) -> Expression:
    """A float32 array of a sparse or dense matrix."""
    return np.asarray(x.toarray() if sparse.issparse(x) else x, dtype=np.float32)


def _upstream_data(training: CellData, x: Expression, facts: MemberFacts) -> Any:
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

"""What a CPA member is trained on and how, settled before any training."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evidence.conditions import CONTROL
from evidence.doses import check_doses
from evidence.errors import ContractError, DataError
from evidence.expression import CellData
from evidence.values import Number, Value, sha256_of
from simulators.cpa import compat

Expression = NDArray[np.float32]
MAX_TARGETS = 2
CONTROL_DOSE = 0.0
"""Dosers give 0 at dose 0, so a control cell is its basal state. With a dose of 1 upstream also learns an embedding of
"control": every drug's embedding then holds its offset, and a pair that was never seen holds it twice.
"""


class CpaOptions(Value):
    """How an ensemble is trained and asked.

    variational: the basal state of
    a cell costs KL divergence and a drug's embedding costs nothing, so that drugs are carried by their embeddings;
    without it the basal state explains everything and drugs do little. adversary: weight, and adversary_rate: learning
    rate, of upstream's classifier to the same end. embedding_scale: size of embeddings before training, as a part
    of upstream's. doser: how a dose scales a drug's embedding. max_genes: the most variable genes of the training
    cells, with those of the programs. control_cells: how many a prediction averages over. threads: of torch; more than
    one gives another network, and is slower unless cores are idle (docs/performance.md).
    """

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
        """Hash of everything that decides the weights."""
        return sha256_of(self)


class Member(NamedTuple):
    """One trained network. control: (n_cells, n_genes) float32 log1p, the cells that predictions start from."""

    facts: MemberFacts
    network: Any
    control: Expression
    seconds: float | None = None


def training_cells(data: CellData) -> CellData:
    """The data without any cell of a held-out combination, checked. Raises DataError for doses that do not fit."""
    cells, hidden = data.cells, set(data.held_out)
    keep = [row for row, condition in enumerate(cells.conditions) if condition not in hidden]
    doses = None if data.doses is None else tuple(data.doses[row] for row in keep)
    training = data._replace(cells=cells.select(keep), doses=doses, held_out=tuple(sorted(hidden)))
    if hidden & set(training.cells.rows):
        raise ContractError("cells of a held-out combination are among the training cells")
    if CONTROL not in training.cells.rows:
        raise DataError("no control cell among the training cells")
    if doses is not None:
        check_doses(training.cells, doses)
    return training


def plan_member(training: CellData, options: CpaOptions, seed: int) -> MemberFacts:
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
        held_out=tuple(c.id for c in training.held_out),
    )


def _genes(training: CellData, most: int) -> tuple[str, ...]:
    """Genes of the programs and the most variable ones of the training cells, in the order of the columns."""
    cells = training.cells
    squared = np.asarray(cells.X.multiply(cells.X).mean(axis=0)).ravel()
    variance = squared - np.asarray(cells.X.mean(axis=0)).ravel() ** 2
    needed = {cells.column(gene) for gene in training.readout_genes}
    best = [int(i) for i in np.argsort(-variance, kind="stable") if int(i) not in needed]
    kept = sorted(needed | set(best[: max(0, most - len(needed))]))
    return tuple(cells.genes[column] for column in kept)


def _median_dose(training: CellData, drug: str) -> float:
    if training.doses is None:
        return 1.0
    pairs = zip(training.cells.conditions, training.doses, strict=True)
    return float(np.median([d for c, dose in pairs for t, d in zip(c.targets, dose, strict=True) if t == drug]))

"""Upstream's training without its waste. Weights stay the same, bit for bit (tests/perf/simulator_speed.py compares).

Training amplifies rounding (a second thread, hence other sums, moves predictions by percents): each replacement keeps
upstream's random draws and the order of every sum. What each brings is in docs/performance.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.nn.functional import embedding

from simulators.gears import compat
from simulators.replaced import replaced


@contextlib.contextmanager
def training() -> Iterator[None]:
    """Inside, upstream prepares cells, runs its network and evaluates without waste."""
    upstream = compat.load()
    evaluate = _evaluate_validation(upstream.gears.evaluate)
    compute_metrics = _metrics_of_validation(upstream.gears.compute_metrics)
    with (
        replaced(upstream.PertData, create_dataset_file=_create_dataset_file),
        replaced(upstream.Model, forward=_forward),
        replaced(upstream.gears, evaluate=evaluate, compute_metrics=compute_metrics),
    ):
        yield


def _create_dataset_file(data: Any) -> None:
    """`PertData.create_dataset_file` from one dense matrix; upstream makes a view of the AnnData for each cell.

    A perturbed cell is paired with one control cell, drawn at random.
    """
    labels, x = data.adata.obs["condition"], compat.dense(data.adata.X)
    control = x[(labels == "ctrl").to_numpy()]
    n_ranked, ranked = 20, data.adata.uns["rank_genes_groups_cov_all"]
    top: Any
    data.dataset_processed = {}
    for label in labels.unique():
        rows = np.flatnonzero((labels == label).to_numpy())
        if label == "ctrl":
            target, top, basal = None, [-1] * n_ranked, x[rows]
        else:
            name = data.adata.obs["condition_name"].iloc[rows[0]]
            target = data.get_pert_idx(label)
            top = np.flatnonzero(data.adata.var_names.isin(np.array(ranked[name][:n_ranked])))
            basal = control[[np.random.randint(0, len(control), 1)[0] for _ in rows]]
        data.dataset_processed[label] = [
            data.create_cell_graph(basal[n : n + 1], x[row : row + 1], top, label, target) for n, row in enumerate(rows)
        ]


class _NotEvaluated:
    def __format__(self, _: str) -> str:
        return "not evaluated."


def _evaluate_validation(upstream: Any) -> Any:
    """`evaluate` of the validation cells only, which choose the best epoch; the training cells' error is but printed.

    Upstream's training loader is the one that drops its last batch. Starting it draws from torch's random numbers.
    """

    def evaluate(loader: Any, *given: Any) -> Any:
        if not loader.drop_last:
            return upstream(loader, *given)
        next(iter(loader))
        return None

    return evaluate


def _metrics_of_validation(upstream: Any) -> Any:
    def compute_metrics(results: Any) -> Any:
        return upstream(results) if results is not None else ({"mse": _NotEvaluated(), "mse_de": _NotEvaluated()}, {})

    return compute_metrics


def _forward(network: Any, data: Any) -> torch.Tensor:
    """`GEARS_Model.forward` without uncertainty and with one layer in each graph, as we train it.

    Upstream adds a perturbation to each cell in place, and its gradient copies the whole batch for each cell. Its
    co-expression graph reaches the first cell only, but passes over the rows of all.
    """
    n, genes = len(data.pert_idx), network.num_genes
    every = torch.arange(genes)
    base = torch.relu(network.bn_emb(_embed(network.gene_emb, every, n)))
    first, others = torch.split(_embed(network.emb_pos, every, n), [genes, (n - 1) * genes])
    (layer,) = network.layers_emb_pos
    position = layer.lin(torch.cat([_propagate(layer, first, network.G_coexpress, network.G_coexpress_weight), others]))
    base = network.emb_trans_v2(base + 0.2 * position).reshape(n, genes, -1)

    cells = [cell for cell, targets in enumerate(data.pert_idx) for target in targets if target != -1]
    if cells:
        targets = [target for of_cell in data.pert_idx for target in of_cell if target != -1]
        (layer,) = network.sim_layers
        nodes = layer(network.pert_emb(torch.arange(network.num_perts)), network.G_sim, network.G_sim_weight)
        base = base + _shifts(network, nodes, cells, targets, n)[:, None, :]

    hidden = network.recovery_w(torch.relu(network.bn_pert_base(base.reshape(n * genes, -1))))
    out = torch.sum(hidden.reshape(n, genes, -1).unsqueeze(-1) * network.indv_w1, dim=2) + network.indv_b1
    across = network.cross_gene_state(out.reshape(n, genes, -1).squeeze(2)).repeat(1, genes).reshape(n, genes, -1)
    effect = torch.sum(torch.cat([out, across], 2) * network.indv_w2, dim=2) + network.indv_b2
    predicted: torch.Tensor = effect + data.x.reshape(n, genes)
    return predicted


def _embed(table: Any, every: torch.Tensor, n: int) -> torch.Tensor:
    """(n * rows, hidden): the whole table n times, each row's norm limited once."""
    with torch.no_grad():
        torch.embedding_renorm_(table.weight, every, table.max_norm, table.norm_type)
    return embedding(every.repeat(n), table.weight)


def _propagate(layer: Any, x: torch.Tensor, edges: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """`SGConv.forward` before its linear map."""
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    edges, weights = gcn_norm(edges, weights, len(x), False, layer.add_self_loops, layer.flow, dtype=x.dtype)
    spread: torch.Tensor = layer.propagate(edges, x=x, edge_weight=weights)
    return spread


def _shifts(network: Any, nodes: torch.Tensor, cells: list[int], targets: list[int], n: int) -> torch.Tensor:
    """(n, hidden) what perturbation adds to each cell; 0 for a control. Gradients are summed from the last cell on."""
    rows = nodes.index_select(0, torch.tensor(targets[::-1])).flip(0)
    of_cell: dict[int, torch.Tensor] = {}
    for cell, row in zip(cells, rows, strict=True):
        of_cell[cell] = of_cell[cell] + row if cell in of_cell else row
    stacked = torch.stack(list(of_cell.values()) * (2 if len(of_cell) == 1 else 1))
    total: torch.Tensor = network.pert_fuse(stacked)[: len(of_cell)]
    return total.new_zeros(n, total.shape[1]).index_copy(0, torch.tensor(list(of_cell)), total)

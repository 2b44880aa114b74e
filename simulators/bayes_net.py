"""A discrete Bayesian network over a named graph: predicted change of the high-state fraction under an intervention.

Conditional probability tables (CPTs) are learned from baseline cells with a Dirichlet prior; an intervention replaces
the CPT of its target (truncated factorisation); marginals are exact. The predicted change is P(high | do) - P(high).

Its standard deviation comes from draws of the CPTs from their posterior: it says how well the tables are known, not
whether the graph is right. Where the graph has no path from the target to the readout, change and deviation are 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evidence.contracts import Observation, Perturbation, Prediction
from evidence.discrete import HIGH, N_LEVELS, DiscreteCells
from evidence.errors import ConfigError, ContractError, did_you_mean
from evidence.values import Number, Value, derive_seed
from simulators.bayes_update import high_fractions, impose, joint_states

Array: TypeAlias = NDArray[np.float64]

DO: Mapping[str, tuple[float, float, float]] = {
    "inhibit": (1.0, 0.0, 0.0),
    "activate": (0.0, 0.0, 1.0),
    "mixed": (0.5, 0.0, 0.5),
}
"""Distribution over (low, middle, high) that an action puts in place of the target's CPT. "mixed": half and half."""

MAX_PARENTS = 6


class BayesNetOptions(Value):
    """Options of the network.

    pseudocount: Dirichlet prior count added to every cell of every CPT (1 = Laplace). draws: posterior draws behind
    the standard deviation. refit_cells: how many cells the network's own prediction of a readout counts for when it is
    refitted on a measurement of that readout.
    """

    pseudocount: Annotated[Number, Field(gt=0, le=1e6)] = 1.0
    draws: Annotated[int, Field(ge=2, le=10_000)] = 200
    refit_cells: Annotated[Number, Field(gt=0, le=1e6)] = 10.0


@dataclass(frozen=True, eq=False)
class Network:
    """CPTs with a leading draw axis. tables[node]: (n_draws, 3 per parent ..., 3); parents[node]: in axis order."""

    nodes: tuple[str, ...]
    parents: Mapping[str, tuple[str, ...]]
    tables: Mapping[str, Array]

    def do(self, target: str, distribution: Sequence[float]) -> Network:
        """The network after an intervention: the target loses its parents and takes the distribution, in every draw."""
        n_draws = next(iter(self.tables.values())).shape[0]
        forced = np.tile(np.asarray(distribution, dtype=np.float64), (n_draws, 1))
        return Network(self.nodes, {**self.parents, target: ()}, {**self.tables, target: forced})


class BayesNet:
    """Simulator of kind "discrete_cells"."""

    Options: ClassVar[type[Value]] = BayesNetOptions
    accepts: ClassVar[str] = DiscreteCells.kind

    def __init__(self, options: BayesNetOptions):
        self.options = options
        self._network: Network | None = None
        self._baseline: dict[str, Array] = {}

    def fit(self, training: DiscreteCells, *, seed: int) -> None:
        """Learn the CPTs from baseline cells. Draw 0 is the posterior mean, the others are draws.

        Raises ContractError for data of another kind, ConfigError if a node has too many parents.
        """
        if getattr(training, "kind", None) != self.accepts:
            raise ContractError(f"expected training data of kind {self.accepts!r}, got {type(training).__name__}")
        self._network = learn(training, self.options, seed)
        self._baseline = marginals(self._network)

    def predict(self, perturbation: Perturbation, readouts: Sequence[str]) -> tuple[Prediction, ...]:
        """Change of the high-state fraction of each readout (a fraction, -1 to 1), and its standard deviation.

        The mean is exact: a marginal is linear in each CPT, so its posterior mean is the marginal of the mean CPTs.
        """
        if self._network is None:
            raise ContractError("expected fit before predict")
        after = marginals(self._after(self._network, perturbation, readouts))
        return tuple(self._prediction(name, after[name][:, HIGH] - self._baseline[name][:, HIGH]) for name in readouts)

    def refit(
        self, perturbation: Perturbation, readouts: Sequence[str], observations: Sequence[Observation]
    ) -> tuple[Prediction, ...]:
        """Predictions of the network updated on measured changes (see simulators.bayes_update); itself unchanged.

        A measured high-state fraction is pooled with the predicted one by numbers of cells (`n_cells`, else the number
        behind the standard error). Deviations: of that fraction where measured, else as in `predict`.
        """
        before = self.predict(perturbation, readouts)
        network = self._after(self._network, perturbation, readouts)  # type: ignore[arg-type]  # predict has checked it
        tables = {node: network.tables[node][0] for node in network.nodes}
        joint = joint_states(network.parents, tables)
        place = {node: n for n, node in enumerate(network.nodes)}
        predicted = high_fractions(joint)
        pooled, sd = {}, {p.readout: p.sd for p in before}
        for seen in sorted((o for o in observations if o.informs(readouts)), key=lambda o: o.measurement):
            readout, axis = str(seen.readout), place[str(seen.readout)]
            measured = min(1.0, max(0.0, float(self._baseline[readout][0, HIGH]) + float(seen.value or 0.0)))
            cells = _cells_behind(seen, measured)
            share = self.options.refit_cells / (self.options.refit_cells + cells)
            fraction = share * float(predicted[axis]) + (1 - share) * measured
            pooled[axis] = fraction
            sd[readout] = math.sqrt(fraction * (1 - fraction) / (self.options.refit_cells + cells))
        high = high_fractions(impose(joint, pooled))
        return tuple(
            Prediction(readout=r, mean=float(high[place[r]] - self._baseline[r][0, HIGH]), sd=sd[r]) for r in readouts
        )

    def _after(self, network: Network, perturbation: Perturbation, readouts: Sequence[str]) -> Network:
        """The network after the intervention."""
        self._check(network, perturbation, readouts)
        for target in perturbation.targets:
            network = network.do(target, DO[perturbation.action])
        return network

    def _prediction(self, readout: str, change: Array) -> Prediction:
        return Prediction(readout=readout, mean=float(change[0]), sd=float(change[1:].std(ddof=1)))

    @staticmethod
    def _check(network: Network, perturbation: Perturbation, readouts: Sequence[str]) -> None:
        for node in (*perturbation.targets, *readouts):
            if node not in network.nodes:
                raise ConfigError(f"the network has no node {node!r}.{did_you_mean(node, network.nodes)}")
        if perturbation.action not in DO:
            raise ConfigError(
                f"perturbation {perturbation.id!r}: expected an action of {', '.join(DO)}, got {perturbation.action!r}"
            )


def _cells_behind(seen: Observation, fraction: float) -> float:
    if seen.n_cells is not None:
        return float(seen.n_cells)
    return max(fraction * (1 - fraction), 1e-4) / seen.se**2 if seen.se else math.inf


def learn(training: DiscreteCells, options: BayesNetOptions, seed: int) -> Network:
    """Dirichlet posterior of every CPT: counts + pseudocount. Tables have 1 + options.draws entries, mean first."""
    column = {name: at for at, name in enumerate(training.proteins)}
    parents = {n: tuple(p for p in training.proteins if (p, n) in set(training.edges)) for n in training.proteins}
    tables = {}
    for node in training.proteins:
        if len(parents[node]) > MAX_PARENTS:
            raise ConfigError(f"graph {training.graph!r}: expected at most {MAX_PARENTS} parents of {node}")
        family = training.levels[:, [column[name] for name in (*parents[node], node)]].astype(np.intp)
        counts = np.zeros((N_LEVELS,) * family.shape[1])
        np.add.at(counts, tuple(family.T), 1.0)
        rng = np.random.default_rng(derive_seed(seed, "bayes_net", training.graph, node))
        tables[node] = _with_draws(counts + options.pseudocount, options.draws, rng)
    return Network(training.proteins, parents, tables)


def marginals(network: Network) -> dict[str, Array]:
    """(n_draws, 3) exact marginal of every node, in one pass.

    Nodes are multiplied in, parents first, into a joint table over those nodes that still have children to come; a
    node is summed out after its last child. The next node is always the one that leaves the smallest table.
    """
    letter = {node: chr(ord("a") + at) for at, node in enumerate(network.nodes)}
    waiting = {node: {c for c, parents in network.parents.items() if node in parents} for node in network.nodes}
    n_draws = next(iter(network.tables.values())).shape[0]
    joint, axes, done = np.ones(n_draws), "", dict[str, Array]()
    while len(done) < len(network.nodes):
        node = min(_ready(network, done), key=lambda n: len(_open_after(n, network, waiting, axes, letter)))
        inputs = "".join(letter[parent] for parent in network.parents[node]) + letter[node]
        product = np.einsum(f"z{axes},z{inputs}->z{axes}{letter[node]}", joint, network.tables[node])
        done[node] = np.einsum(f"z{axes}{letter[node]}->z{letter[node]}", product)
        left = _open_after(node, network, waiting, axes, letter)
        joint = np.einsum(f"z{axes}{letter[node]}->z{left}", product)
        for children in waiting.values():
            children.discard(node)
        axes = left
    return {node: done[node] for node in network.nodes}


def _ready(network: Network, done: Mapping[str, Array]) -> list[str]:
    ready = [n for n in network.nodes if n not in done and all(p in done for p in network.parents[n])]
    if not ready:
        raise ConfigError(
            "expected an acyclic graph, got a cycle among " + ", ".join(sorted(set(network.nodes) - set(done)))
        )
    return ready


def _open_after(
    node: str, network: Network, waiting: Mapping[str, set[str]], axes: str, letter: Mapping[str, str]
) -> str:
    """Axes of the joint table once `node` is in and every node without children to come is summed out."""
    held = [n for n in network.nodes if letter[n] in axes] + [node]
    return "".join(letter[n] for n in held if waiting[n] - {node})


def _with_draws(alpha: Array, draws: int, rng: np.random.Generator) -> Array:
    """(1 + draws, *alpha.shape): the mean of each row's Dirichlet, then draws of it. The last axis sums to 1."""
    gamma = np.maximum(rng.standard_gamma(alpha, size=(draws, *alpha.shape)), np.finfo(np.float64).tiny)
    stacked = np.concatenate([alpha[np.newaxis], gamma])
    return np.asarray(stacked / stacked.sum(axis=-1, keepdims=True))

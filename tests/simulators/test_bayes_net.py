from __future__ import annotations

import itertools
import time
from collections import Counter
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.contracts import Perturbation, Simulator
from evidence.discrete import DiscreteCells
from evidence.errors import ConfigError, ContractError, DataError
from evidence.sachs_conditions import PROTEINS
from evidence.sachs_graphs import GRAPHS
from simulators.bayes_net import BayesNet, BayesNetOptions

MIX = {"inhibit": (1.0, 0.0, 0.0), "activate": (0.0, 0.0, 1.0), "mixed": (0.5, 0.0, 0.5)}


def training(graph: str, seed: int = 0, n: int = 400) -> DiscreteCells:
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(n, 11)) + rng.normal(size=(n, 1))
    levels = ((latent > -0.6).astype(np.int8) + (latent > 0.6)).astype(np.int8)
    return DiscreteCells(PROTEINS, levels, GRAPHS[graph].edges, graph)


def act(target: str, action: str) -> Perturbation:
    return Perturbation(id="p", name="p", targets=(target,), action=action)


def fitted(cells: DiscreteCells, seed: int = 1, **options: float) -> BayesNet:
    net = BayesNet(BayesNetOptions.model_validate(options))
    net.fit(cells, seed=seed)
    return net


class Enumeration:
    """Independent of the code under test: counts by dict, the full joint of 3^11 states, marginals by summing it."""

    states = np.array(list(itertools.product(range(3), repeat=11)), dtype=np.int8)

    def __init__(self, cells: DiscreteCells, pseudocount: float):
        self.factors: dict[str, np.ndarray] = {}
        for at, node in enumerate(PROTEINS):
            parents = [PROTEINS.index(parent) for parent, child in cells.edges if child == node]
            seen = Counter((tuple(int(row[p]) for p in parents), int(row[at])) for row in cells.levels)
            probability = {}
            for key in itertools.product(range(3), repeat=len(parents)):
                counts = [seen[(key, level)] + pseudocount for level in range(3)]
                for level in range(3):
                    probability[(*key, level)] = counts[level] / sum(counts)
            lookup = np.zeros((3,) * (len(parents) + 1))
            for index, value in probability.items():
                lookup[index] = value
            self.factors[node] = lookup[tuple(self.states[:, p] for p in [*parents, at])]

    def high(self, do: tuple[str, str] | None = None) -> np.ndarray:
        joint = np.ones(len(self.states))
        for at, node in enumerate(PROTEINS):
            forced = do is not None and node == do[0]
            joint *= np.array(MIX[do[1]])[self.states[:, at]] if forced and do else self.factors[node]
        assert abs(joint.sum() - 1) < 1e-9
        return np.array([joint[self.states[:, at] == 2].sum() for at in range(11)])


@pytest.mark.parametrize("graph", sorted(GRAPHS))
def test_equals_enumeration_of_the_full_joint(graph: str) -> None:
    cells = training(graph)
    net, exact = fitted(cells, pseudocount=0.7), Enumeration(cells, 0.7)
    assert net._network is not None
    baseline = exact.high()
    ours = np.array([net._baseline[name][0, 2] for name in PROTEINS])
    assert np.abs(ours - baseline).max() < 1e-10
    for target, action in itertools.product(("Akt", "PKC", "PIP2", "PIP3", "Mek", "PKA"), MIX):
        predicted = net.predict(act(target, action), PROTEINS)
        wanted = exact.high((target, action)) - baseline
        assert np.abs(np.array([p.mean for p in predicted]) - wanted).max() < 1e-10


@pytest.mark.parametrize("graph", sorted(GRAPHS))
def test_only_descendants_of_the_target_move(graph: str) -> None:
    net = fitted(training(graph))
    below = nx.descendants(nx.DiGraph(GRAPHS[graph].edges), "Mek")
    for prediction in net.predict(act("Mek", "inhibit"), [name for name in PROTEINS if name != "Mek"]):
        if prediction.readout in below:
            assert abs(prediction.mean) > 1e-3
            assert prediction.sd > 0
        else:
            assert abs(prediction.mean) < 1e-12
            assert prediction.sd == pytest.approx(0, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), graph=st.sampled_from(sorted(GRAPHS)), action=st.sampled_from(sorted(MIX)))
def test_predictions_are_changes_of_fractions(seed: int, graph: str, action: str) -> None:
    cells = training(graph, seed, n=5 + seed % 50)
    net = fitted(cells, seed, draws=10)
    for table in (net._network.tables if net._network else {}).values():
        assert np.allclose(table.sum(axis=-1), 1)
        assert (table >= 0).all()
    for marginal in net._baseline.values():
        assert np.allclose(marginal.sum(axis=-1), 1)
    for prediction in net.predict(act(PROTEINS[seed % 11], action), PROTEINS):
        assert -1 <= prediction.mean <= 1
        assert 0 <= prediction.sd < 1


def test_same_seed_same_numbers_and_order_of_asking_does_not_matter() -> None:
    cells = training("sachs20")
    first = fitted(cells).predict(act("PKC", "inhibit"), PROTEINS)
    net = fitted(cells)
    net.predict(act("PKA", "activate"), PROTEINS)
    again = net.predict(act("PKC", "inhibit"), PROTEINS[::-1])[::-1]
    assert first == again
    other = fitted(cells, seed=2).predict(act("PKC", "inhibit"), PROTEINS)
    assert [p.mean for p in first] == [p.mean for p in other]
    assert [p.sd for p in first] != [p.sd for p in other]


def test_more_cells_give_a_smaller_standard_deviation() -> None:
    few, many = (fitted(training("sachs20", n=n)) for n in (50, 5000))
    sd = [net.predict(act("PKA", "activate"), ("Raf",))[0].sd for net in (few, many)]
    assert sd[1] < sd[0] / 4


def test_all_interventions_are_quick() -> None:
    start = time.perf_counter()
    net = fitted(training("sachs20", n=1170))
    for target in PROTEINS:
        net.predict(act(target, "inhibit"), PROTEINS)
    assert time.perf_counter() - start < 2


def test_errors_name_what_was_expected() -> None:
    net = BayesNet(BayesNetOptions())
    assert isinstance(net, Simulator)
    with pytest.raises(ContractError, match="fit before predict"):
        net.predict(act("PKC", "inhibit"), ("Raf",))
    with pytest.raises(ContractError, match="kind 'discrete_cells'"):
        net.fit(SimpleNamespace(kind="images"), seed=0)  # type: ignore[arg-type]
    net.fit(training("sachs17", n=20), seed=0)
    with pytest.raises(ConfigError, match="no node 'PI3K'"):
        net.predict(act("PI3K", "inhibit"), ("Raf",))
    with pytest.raises(ConfigError, match="expected an action of inhibit, activate, mixed, got ''"):
        net.predict(act("PKC", ""), ("Raf",))


def test_discrete_cells_are_checked() -> None:
    with pytest.raises(DataError, match="expected levels of shape"):
        DiscreteCells(PROTEINS, np.zeros((3, 2), dtype=np.int8), (), "none")
    with pytest.raises(DataError, match="expected levels 0, 1, 2"):
        DiscreteCells(("Raf",), np.full((3, 1), 3, dtype=np.int8), (), "none")
    with pytest.raises(DataError, match="not measured: PI3K"):
        DiscreteCells(("Raf",), np.zeros((3, 1), dtype=np.int8), (("PI3K", "Raf"),), "none")


def test_too_many_parents_are_refused() -> None:
    edges = tuple((parent, "Jnk") for parent in PROTEINS[:7])
    cells = DiscreteCells(PROTEINS, np.zeros((3, 11), dtype=np.int8), edges, "wide")
    with pytest.raises(ConfigError, match="at most 6 parents of Jnk"):
        fitted(cells)

"""Refitting a network on measurements, against enumeration of every state."""

import itertools

import numpy as np
import pytest

from evidence.contracts import Observation, Perturbation
from evidence.discrete import DiscreteCells
from evidence.errors import ConfigError
from simulators.bayes_net import DO, BayesNet, BayesNetOptions
from simulators.bayes_update import MAX_NODES, high_fractions, impose, joint_states

NODES = ("T", "A", "B", "C", "D")
EDGES = (("T", "A"), ("A", "B"), ("A", "C"), ("D", "C"))
INHIBIT = Perturbation(id="i", name="i", targets=("T",), action="inhibit")


def fitted(**options):
    rng = np.random.default_rng(1)
    levels = rng.integers(0, 3, size=(400, 5))
    for parent, child in ((0, 1), (1, 2), (1, 3)):
        copied = rng.random(400) < 0.7
        levels[copied, child] = levels[copied, parent]
    simulator = BayesNet(BayesNetOptions(draws=20, **options))
    simulator.fit(DiscreteCells(NODES, levels.astype(np.int8), EDGES, "small"), seed=3)
    return simulator


def seen(readout, value, n_cells=96, se=0.05):
    return Observation(measurement=f"m_{readout}", readout=readout, value=value, se=se, n_cells=n_cells)


def enumerated(simulator):
    """Probability of every state after the intervention, one product at a time."""
    network = simulator._network.do("T", DO["inhibit"])
    states = {}
    for state in itertools.product(range(3), repeat=5):
        chance, by_name = 1.0, dict(zip(NODES, state, strict=True))
        for node in NODES:
            chance *= network.tables[node][0][tuple(by_name[n] for n in (*network.parents[node], node))]
        states[state] = chance
    return states


def test_joint_states_are_the_enumerated_ones():
    simulator = fitted()
    network = simulator._network.do("T", DO["inhibit"])
    joint = joint_states(network.parents, {n: network.tables[n][0] for n in network.nodes})
    for state, chance in enumerated(simulator).items():
        assert joint[state] == pytest.approx(chance, abs=1e-12)


def test_one_measurement_is_jeffreys_rule():
    """P'(x) = sum over the measured node's two classes (high, not high) of P(x | class) q(class)."""
    simulator, value = fitted(), 0.2
    states = enumerated(simulator)
    base = {n: float(simulator._baseline[n][0, 2]) for n in NODES}
    high = sum(p for s, p in states.items() if s[2] == 2)
    q = (10 * high + 96 * (base["B"] + value)) / 106
    made = simulator.refit(INHIBIT, ("A", "B", "C", "D"), [seen("B", value)])
    for readout, prediction in zip(("A", "B", "C", "D"), made, strict=True):
        at = NODES.index(readout)
        given_high = sum(p for s, p in states.items() if s[2] == 2 and s[at] == 2) / high
        given_other = sum(p for s, p in states.items() if s[2] != 2 and s[at] == 2) / (1 - high)
        assert prediction.mean == pytest.approx(q * given_high + (1 - q) * given_other - base[readout], abs=1e-10)
    assert made[1].sd == pytest.approx((q * (1 - q) / 106) ** 0.5)


def test_evidence_flows_against_the_arrows_and_not_where_the_graph_has_none():
    simulator = fitted()
    before = {p.readout: p.mean for p in simulator.predict(INHIBIT, ("A", "C", "D"))}
    after = {p.readout: p.mean for p in simulator.refit(INHIBIT, ("A", "B", "C", "D"), [seen("B", 0.3)])}
    assert after["A"] > before["A"] + 0.05
    assert after["C"] > before["C"] + 0.02
    assert after["D"] == pytest.approx(before["D"], abs=1e-9)


def test_several_measurements_are_all_met():
    rng = np.random.default_rng(0)
    joint = rng.random((3, 3, 3, 3))
    made = impose(joint / joint.sum(), {0: 0.7, 2: 0.1, 3: 0.5})
    assert made.sum() == pytest.approx(1)
    assert high_fractions(made)[[0, 2, 3]] == pytest.approx([0.7, 0.1, 0.5], abs=1e-9)
    assert impose(joint, {}) is joint


def test_a_node_held_by_the_intervention_keeps_its_state():
    joint = np.zeros((3, 3))
    joint[0] = [0.2, 0.3, 0.5]
    assert impose(joint, {0: 0.4}) == pytest.approx(joint)


def test_refitting_changes_nothing_in_the_simulator_and_no_measurement_changes_nothing():
    simulator = fitted()
    before = simulator.predict(INHIBIT, ("A", "B"))
    simulator.refit(INHIBIT, ("A", "B"), [seen("B", 0.5)])
    assert simulator.predict(INHIBIT, ("A", "B")) == before
    for observations in ([], [Observation(measurement="m_B", readout="B", status="missing")]):
        made = simulator.refit(INHIBIT, ("A", "B"), observations)
        assert [p.mean for p in made] == pytest.approx([p.mean for p in before], abs=1e-9)
        assert [p.sd for p in made] == [p.sd for p in before]


def test_more_cells_weigh_more_and_a_standard_error_stands_for_cells():
    simulator = fitted()
    means = [simulator.refit(INHIBIT, ("B",), [seen("B", 0.4, n)])[0].mean for n in (1, 10, 1000)]
    assert means == sorted(means)
    assert means[2] == pytest.approx(0.4, abs=0.01)
    exact = simulator.refit(INHIBIT, ("B",), [seen("B", 0.4, None, None)])[0]
    assert (exact.mean, exact.sd) == (pytest.approx(0.4), 0.0)
    fraction = float(simulator._baseline["B"][0, 2]) + 0.4
    as_cells = (fraction * (1 - fraction) / 50) ** 0.5
    by_se = simulator.refit(INHIBIT, ("B",), [seen("B", 0.4, None, as_cells)])[0]
    assert by_se.mean == pytest.approx(simulator.refit(INHIBIT, ("B",), [seen("B", 0.4, 50)])[0].mean)


@pytest.mark.parametrize("value", [-5.0, 5.0])
def test_fractions_stay_fractions(value):
    simulator = fitted()
    for p in simulator.refit(INHIBIT, ("A", "B", "C"), [seen("B", value)]):
        assert 0 <= p.mean + float(simulator._baseline[p.readout][0, 2]) <= 1


def test_large_networks_are_refused():
    names = [f"n{i}" for i in range(MAX_NODES + 1)]
    with pytest.raises(ConfigError, match=f"at most {MAX_NODES}"):
        joint_states(dict.fromkeys(names, ()), {n: np.full(3, 1 / 3) for n in names})

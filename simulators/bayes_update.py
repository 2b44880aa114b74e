"""A Bayesian network's readouts after some of them were measured in a number of cells.

The distribution over all states after the intervention is changed as little as possible (in relative entropy) so that
each measured node has the marginal that was observed: Jeffrey's rule for one node (Jeffrey 1965), iterative
proportional fitting for several (Deming & Stephan 1940; Csiszar 1975). Nodes move as far as the graph ties them
together, whichever way its arrows point.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from evidence.discrete import HIGH, N_LEVELS
from evidence.errors import ConfigError

Array: TypeAlias = NDArray[np.float64]

MAX_NODES = 13
"""All 3^n states are held at once: 1.6 million for 13 nodes."""
SWEEPS, TOLERANCE = 500, 1e-12


def joint_states(parents: Mapping[str, tuple[str, ...]], tables: Mapping[str, Array]) -> Array:
    """(3, ..., 3) probability of every state of the nodes, in the order of `tables`, from one CPT a node."""
    nodes = tuple(tables)
    if len(nodes) > MAX_NODES:
        raise ConfigError(f"a network of {len(nodes)} nodes cannot be refitted: expected at most {MAX_NODES}")
    place = {node: n for n, node in enumerate(nodes)}
    joint = np.ones((N_LEVELS,) * len(nodes))
    for node, table in tables.items():
        axes = [place[name] for name in (*parents[node], node)]
        shape = [N_LEVELS if n in axes else 1 for n in range(len(nodes))]
        joint = joint * np.transpose(table, np.argsort(axes)).reshape(shape)
    return joint


def high_fractions(joint: Array) -> Array:
    """(n_nodes,) probability of the high state of every node."""
    return np.array([float(np.take(joint, HIGH, axis=n).sum()) for n in range(joint.ndim)])


def impose(joint: Array, high: Mapping[int, float]) -> Array:
    """The joint nearest to this one whose nodes `high` (axis -> fraction) have these high-state fractions.

    Below high, the proportion of low to middle stays. A node that cannot be in a state keeps its distribution.
    """
    for _ in range(SWEEPS):
        before = joint
        for axis in sorted(high):
            joint = _scaled(joint, axis, high[axis])
        if float(np.abs(joint - before).max()) < TOLERANCE:
            break
    return joint


def _scaled(joint: Array, axis: int, high: float) -> Array:
    now = float(np.take(joint, HIGH, axis=axis).sum())
    if not 0 < now < 1:
        return joint
    factor = np.full(N_LEVELS, (1 - high) / (1 - now))
    factor[HIGH] = high / now
    return np.asarray(joint * factor.reshape([N_LEVELS if n == axis else 1 for n in range(joint.ndim)]))

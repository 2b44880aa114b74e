"""Layered places for a small acyclic graph, so that no edge runs through a node.

An edge over several layers is led through waypoints; all long edges of one parent share them (a bus), which keeps the
drawing narrow and is never ambiguous. Everything is deterministic: ties fall in the order of the nodes given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import networkx as nx

Stop: TypeAlias = tuple[str, int]
"""A place in the drawing: (node, layer). A node stands in its own layer, its waypoints in later ones."""

NODE_GAP, WAYPOINT_GAP = 1.0, 0.32
_SWEEPS = 12


class Layout(NamedTuple):
    """layers: stops from left to right, top layer first. x: place of each stop. home: node -> its own layer.

    links: (stop above, stop below) of neighbouring layers.
    """

    layers: tuple[tuple[Stop, ...], ...]
    x: Mapping[Stop, float]
    home: Mapping[str, int]
    links: tuple[tuple[Stop, Stop], ...]


def layered(nodes: Sequence[str], edges: Sequence[tuple[str, str]]) -> Layout:
    """Lay out an acyclic graph: layers by topological generation, few crossings, children near their parents."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(edges)
    home = {node: depth for depth, layer in enumerate(nx.topological_generations(graph)) for node in layer}
    links = _links(nodes, edges, home)
    stops = dict.fromkeys([(node, home[node]) for node in nodes] + [stop for link in links for stop in link])
    start = [[stop for stop in stops if stop[1] == depth] for depth in range(max(home.values()) + 1)]
    layers = _order(start, links)
    return Layout(tuple(tuple(layer) for layer in layers), _x(layers, links, home), home, links)


def _links(
    nodes: Sequence[str], edges: Sequence[tuple[str, str]], home: Mapping[str, int]
) -> tuple[tuple[Stop, Stop], ...]:
    links: dict[tuple[Stop, Stop], None] = {}
    for parent, child in sorted(edges, key=lambda e: (nodes.index(e[0]), nodes.index(e[1]))):
        for depth in range(home[parent], home[child] - 1):
            links[((parent, depth), (parent, depth + 1))] = None
        links[((parent, home[child] - 1), (child, home[child]))] = None
    return tuple(links)


def _order(layers: list[list[Stop]], links: Sequence[tuple[Stop, Stop]]) -> list[list[Stop]]:
    """Sweep down and up: order each layer by the mean place of its neighbours; keep the order with fewest crossings."""
    best, fewest = layers, _crossings(layers, links)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for depth in range(1, len(layers)) if down else range(len(layers) - 2, -1, -1):
            fixed = {stop: at for at, stop in enumerate(layers[depth - 1 if down else depth + 1])}
            pairs = [(b, a) if down else (a, b) for a, b in links]
            current = {stop: at for at, stop in enumerate(layers[depth])}
            wanted = {
                s: _mean([fixed[o] for mine, o in pairs if mine == s and o in fixed], current[s]) for s in current
            }
            layers = [*layers[:depth], sorted(layers[depth], key=wanted.__getitem__), *layers[depth + 1 :]]
        count = _crossings(layers, links)
        if count < fewest:
            best, fewest = layers, count
    return best


def _crossings(layers: Sequence[Sequence[Stop]], links: Sequence[tuple[Stop, Stop]]) -> int:
    at = {stop: place for layer in layers for place, stop in enumerate(layer)}
    spans = [(a[1], at[a], at[b]) for a, b in links]
    return sum(
        first[0] == second[0] and (first[1] - second[1]) * (first[2] - second[2]) < 0
        for number, first in enumerate(spans)
        for second in spans[number + 1 :]
    )


def _x(
    layers: Sequence[Sequence[Stop]], links: Sequence[tuple[Stop, Stop]], home: Mapping[str, int]
) -> dict[Stop, float]:
    """Relax: each stop moves to the mean of its neighbours, as far as the gaps of its layer allow."""
    x = {stop: float(at) for layer in layers for at, stop in enumerate(layer)}
    near: dict[Stop, list[Stop]] = {stop: [] for stop in x}
    for above, below in links:
        near[above].append(below)
        near[below].append(above)
    for _ in range(_SWEEPS):
        for layer in layers:
            wanted = [_mean([x[other] for other in near[stop]], x[stop]) for stop in layer]
            x.update(zip(layer, _spread(layer, wanted, home), strict=True))
    return x


def _spread(layer: Sequence[Stop], wanted: Sequence[float], home: Mapping[str, int]) -> list[float]:
    """Places nearest to the wanted ones that keep order and gaps: the mean of packing from the left and the right."""
    half = [(NODE_GAP if home[node] == depth else WAYPOINT_GAP) / 2 for node, depth in layer]
    left, right = list(wanted), list(wanted)
    for at in range(1, len(layer)):
        left[at] = max(left[at], left[at - 1] + half[at - 1] + half[at])
    for at in range(len(layer) - 2, -1, -1):
        right[at] = min(right[at], right[at + 1] - half[at + 1] - half[at])
    return [(a + b) / 2 for a, b in zip(left, right, strict=True)]


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise

"""Named consensus graphs of the 11 proteins, and a strict reader for a user's own.

Published graphs have 17, 18 or 20 edges and disagree on PIP2/PIP3, Erk -> Akt and PKC -> PKA, so a graph always goes by
its name. Each is checked when it is asked for: 11 nodes, the stated number of edges, no cycle.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import networkx as nx

from evidence.errors import ConfigError, DataError, did_you_mean
from evidence.sachs_conditions import PROTEINS

Edge: TypeAlias = tuple[str, str]
DiGraph: TypeAlias = "nx.DiGraph[str]"


@dataclass(frozen=True)
class NamedGraph:
    """A graph as data. parents: child -> its parents, blank separated. n_edges: the number its source states."""

    name: str
    source: str
    n_edges: int
    parents: Mapping[str, str]
    note: str = ""

    @property
    def edges(self) -> tuple[Edge, ...]:
        """(parent, child) pairs, children in the order written."""
        return tuple((parent, child) for child, parents in self.parents.items() for parent in parents.split())


_SACHS17 = NamedGraph(
    name="sachs17",
    source="the network `sachs` of bnlearn's Bayesian network repository",
    n_edges=17,
    parents={
        "PKA": "PKC",
        "PIP3": "Plcg",
        "Raf": "PKC PKA",
        "Jnk": "PKC PKA",
        "P38": "PKC PKA",
        "Mek": "PKC PKA Raf",
        "PIP2": "Plcg PIP3",
        "Erk": "Mek PKA",
        "Akt": "Erk PKA",
    },
)
_SACHS18 = NamedGraph(
    name="sachs18",
    source="the target graph of the package cdt 0.6.0 (CausalDiscoveryToolbox)",
    n_edges=18,
    parents={
        "PKC": "PIP2 Plcg",
        "PIP2": "Plcg PIP3",
        "Plcg": "PIP3",
        "Jnk": "PKC PKA",
        "P38": "PKC PKA",
        "Raf": "PKC PKA",
        "Mek": "Raf PKC PKA",
        "Erk": "Mek PKA",
        "Akt": "PKA PIP3",
    },
    note="cdt's file is cyclic (PIP2 -> PIP3 -> Plcg -> PIP2); here that file's edge PIP2 -> PIP3 points PIP3 -> PIP2",
)
_SACHS20 = NamedGraph(
    name="sachs20",
    source="the 20-edge consensus that causal-discovery tools use as ground truth for Sachs et al. 2005",
    n_edges=20,
    parents={
        "Plcg": "PIP3",
        "PIP2": "PIP3 Plcg",
        "PKC": "PIP2 Plcg",
        "PKA": "PKC",
        "Raf": "PKA PKC",
        "Mek": "PKA PKC Raf",
        "Erk": "Mek PKA",
        "Akt": "Erk PIP3 PKA",
        "Jnk": "PKA PKC",
        "P38": "PKA PKC",
    },
)
GRAPHS: Mapping[str, NamedGraph] = MappingProxyType({g.name: g for g in (_SACHS17, _SACHS18, _SACHS20)})


def named_graph(name: str) -> DiGraph:
    """The graph of this name with all 11 nodes; `graph["name"]`, ["source"] and ["note"] say what it is.

    Raises ConfigError for an unknown name.
    """
    if name not in GRAPHS:
        raise ConfigError(f"no graph named {name!r}.{did_you_mean(name, GRAPHS)}")
    named = GRAPHS[name]
    return build_graph(named.edges, name=name, source=named.source, note=named.note, n_edges=named.n_edges)


def build_graph(
    edges: Iterable[Edge], *, name: str, source: str = "", note: str = "", n_edges: int | None = None
) -> DiGraph:
    """A checked graph from (parent, child) pairs. Raises DataError listing every problem."""
    pairs = list(edges)
    problems = _problems([(str(n), parent, child) for n, (parent, child) in enumerate(pairs, start=1)], "edge")
    if n_edges is not None and len(pairs) != n_edges:
        problems.append(f"expected {n_edges} edges, got {len(pairs)}")
    if problems:
        raise DataError(f"graph {name!r}: " + "; ".join(problems))
    graph: DiGraph = nx.DiGraph(name=name, source=source, note=note)
    graph.add_nodes_from(PROTEINS)
    graph.add_edges_from(pairs)
    return graph


def read_graph(path: Path) -> DiGraph:
    """A user's graph: a CSV with the header from,to and one edge a row. Proteins without an edge become lone nodes.

    Raises DataError with all problems in one message: unknown proteins, repeated rows by line, cycles node by node.
    """
    try:
        lines = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: expected a CSV table of edges, got: {error}") from error
    header = [cell.strip().casefold() for cell in lines[0]] if lines else []
    if header != ["from", "to"]:
        raise DataError(f"{path}: expected the header from,to in line 1, got {','.join(header) or 'nothing'}")
    rows, problems = [], []
    for number, row in enumerate(lines[1:], start=2):
        if len(row) == 2:
            rows.append((str(number), row[0].strip(), row[1].strip()))
        elif row:
            problems.append(f"line {number}: expected two cells, got {len(row)}")
    if not rows and not problems:
        problems.append("expected at least one edge, got none")
    problems += _problems(rows, "line")
    if problems:
        raise DataError(f"{path}: " + "; ".join(problems))
    return build_graph([(parent, child) for _, parent, child in rows], name=path.stem, source=str(path.name))


def resolve_graph(name: str) -> DiGraph:
    """A named graph, or a user's from the path of a .csv file."""
    return read_graph(Path(name)) if name.casefold().endswith(".csv") else named_graph(name)


def _problems(rows: Sequence[tuple[str, str, str]], where: str) -> list[str]:
    problems: list[str] = []
    seen: dict[Edge, list[str]] = {}
    for number, parent, child in rows:
        seen.setdefault((parent, child), []).append(number)
        problems += [
            f"{where} {number}: unknown protein {node!r}.{did_you_mean(node, PROTEINS)}"
            for node in (parent, child)
            if node not in PROTEINS
        ]
    problems += [
        f"the edge {parent},{child} is repeated ({where}s {', '.join(numbers)})"
        for (parent, child), numbers in seen.items()
        if len(numbers) > 1
    ]
    return problems + [f"cycle {' -> '.join(cycle)}" for cycle in _cycles(list(seen))]


def _cycles(edges: Sequence[Edge]) -> list[list[str]]:
    """One cycle for each knot of nodes that reach each other, starting at its first edge as written."""
    graph: DiGraph = nx.DiGraph(edges)
    cycles = []
    for knot in nx.strongly_connected_components(graph):
        inside = [(a, b) for a, b in edges if a in knot and b in knot]
        if inside:
            start, following = inside[0]
            cycles.append([start, *nx.shortest_path(graph.subgraph(knot), following, start)])
    return sorted(cycles)

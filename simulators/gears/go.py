"""Gene Ontology annotations for GEARS' perturbation graph, from a file on disk. Nothing is downloaded.

Three forms: gene2go as JSON or JSON.gz (gene -> list of GO ids); GEARS' own `gene2go_all.pkl`, through a restricted
unpickler; or a folder with GEARS' originals (`gene2go_all.pkl`, `go_essential_all/go_essential_all.csv`).
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import sparse

from evidence.annotations import check_terms, read_terms
from evidence.errors import DataError
from evidence.values import sha256_of
from simulators.gears.compat import read_plain_pickle

MIN_JACCARD = 0.1
"""GEARS keeps an edge between two genes if the Jaccard index of their GO sets is above this."""


class Edge(NamedTuple):
    """One edge of the perturbation graph."""

    source: str
    target: str
    importance: float


@dataclass(frozen=True)
class GoAnnotations:
    """GO ids of genes; `edges` only where GEARS' own edge list was given. `sha256` is of the content, not the form."""

    gene2go: Mapping[str, frozenset[str]]
    sha256: str
    source: str
    edges: tuple[Edge, ...] = ()

    def graph(self, genes: Iterable[str]) -> tuple[Edge, ...]:
        """Edges among these genes, sorted, each gene to itself too: GEARS' list if given, else the Jaccard index."""
        names = sorted(set(genes))
        absent = [name for name in names if name not in self.gene2go]
        if absent:
            raise DataError(f"no GO annotation for {', '.join(absent[:10])} in {self.source}")
        if self.edges:
            inside = frozenset(names)
            return tuple(sorted(e for e in self.edges if e.source in inside and e.target in inside))
        return _jaccard(names, self.gene2go)


def read_go(path: Path) -> GoAnnotations:
    """Read annotations in any of the three forms. Raises DataError naming the file."""
    if path.is_dir():
        return _read_originals(path)
    if not path.is_file():
        raise DataError(f"no GO annotation file {path}")
    terms = check_terms(read_plain_pickle(path), path) if path.suffix == ".pkl" else read_terms(path)
    return make_go(terms, source=path.name)


def make_go(gene2go: Mapping[str, Iterable[str]], *, source: str, edges: Iterable[Edge] = ()) -> GoAnnotations:
    """Annotations from a mapping in memory."""
    sets = {gene: frozenset(gene2go[gene]) for gene in sorted(gene2go)}
    kept = tuple(sorted(edges))
    content = {"gene2go": {gene: sorted(terms) for gene, terms in sets.items()}, "edges": [list(e) for e in kept]}
    return GoAnnotations(sets, sha256_of(content), source, kept)


def _read_originals(folder: Path) -> GoAnnotations:
    gene2go, edges = folder / "gene2go_all.pkl", folder / "go_essential_all" / "go_essential_all.csv"
    for path in (gene2go, edges):
        if not path.is_file():
            raise DataError(f"expected GEARS' originals in {folder}: no {path.relative_to(folder)}")
    try:
        with edges.open(newline="") as file:
            rows = [Edge(r["source"], r["target"], float(r["importance"])) for r in csv.DictReader(file)]
    except (KeyError, ValueError, csv.Error) as error:
        raise DataError(f"{edges}: expected the columns source, target, importance ({error})") from error
    return make_go(check_terms(read_plain_pickle(gene2go), gene2go), source=str(folder.name), edges=rows)


def _jaccard(names: list[str], gene2go: Mapping[str, frozenset[str]]) -> tuple[Edge, ...]:
    """All pairs at once: with M (genes x terms, 0/1), M M' counts the shared terms."""
    terms = {term: n for n, term in enumerate(sorted({t for name in names for t in gene2go[name]}))}
    sizes = np.array([len(gene2go[name]) for name in names])
    rows = np.repeat(np.arange(len(names)), sizes)
    columns = np.array([terms[t] for name in names for t in sorted(gene2go[name])], dtype=np.intp)
    member = sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(names), len(terms)))
    shared = sparse.coo_matrix(member @ member.T)
    index = shared.data / (sizes[shared.row] + sizes[shared.col] - shared.data)
    kept = index > MIN_JACCARD
    triples = zip(shared.row[kept], shared.col[kept], index[kept], strict=True)
    return tuple(sorted(Edge(names[i], names[j], float(value)) for i, j, value in triples))

"""Gene Ontology annotations for GEARS' perturbation graph, from a file on disk. Nothing is downloaded.

Three forms: gene2go as JSON or JSON.gz (gene -> list of GO ids); GEARS' own `gene2go_all.pkl`, through a restricted
unpickler; or a folder with GEARS' originals (`gene2go_all.pkl`, `go_essential_all/go_essential_all.csv`).
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

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
    raw = read_plain_pickle(path) if path.suffix == ".pkl" else _read_json(path)
    return make_go(_gene2go(raw, path), source=path.name)


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
    return make_go(_gene2go(read_plain_pickle(gene2go), gene2go), source=str(folder.name), edges=rows)


def _read_json(path: Path) -> Any:
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return json.loads(data)
    except (OSError, EOFError, ValueError) as error:
        raise DataError(f"{path} is not JSON (or JSON.gz) of gene -> list of GO ids: {error}") from error


def _gene2go(raw: Any, path: Path) -> dict[str, frozenset[str]]:
    if not isinstance(raw, dict) or not raw:
        raise DataError(f"{path}: expected a mapping gene -> GO ids, got {type(raw).__name__}")
    for gene, terms in raw.items():
        if not isinstance(gene, str) or not isinstance(terms, list | set | frozenset | tuple):
            raise DataError(f"{path}: expected gene -> list of GO ids, got {gene!r} -> {type(terms).__name__}")
    return {gene: frozenset(map(str, terms)) for gene, terms in raw.items() if terms}


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


def file_sha256(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

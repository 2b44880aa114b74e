"""Gene annotations as JSON or JSON.gz: gene -> term ids. GEARS' pickles are read by simulators.gears.go."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from evidence.errors import DataError

Terms = dict[str, frozenset[str]]


def read_terms(path: Path) -> Terms:
    """Read a JSON file (may be .gz) of gene -> list of term ids. Raises DataError naming the file."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return check_terms(json.loads(data), path)
    except (OSError, EOFError, ValueError) as error:
        raise DataError(f"{path} is not JSON (or JSON.gz) of gene -> list of GO ids: {error}") from error


def check_terms(raw: Any, path: Path) -> Terms:
    """The mapping, checked; genes without a term are left out. Raises DataError naming what is wrong."""
    if not isinstance(raw, dict) or not raw:
        raise DataError(f"{path}: expected a mapping gene -> GO ids, got {type(raw).__name__}")
    for gene, terms in raw.items():
        if not isinstance(gene, str) or not isinstance(terms, list | set | frozenset | tuple):
            raise DataError(f"{path}: expected gene -> list of GO ids, got {gene!r} -> {type(terms).__name__}")
    return {gene: frozenset(map(str, terms)) for gene, terms in raw.items() if terms}

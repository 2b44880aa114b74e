"""Expression programs: a few groups of genes that vary together in training cells, and a cell's score in each.

Method: the correlation of genes within conditions (what cells do together) and the products of their changes under the
training perturbations, each in units of its own noise (what perturbations move together), scaled to equal weight, are
added; the leading eigenvectors are rotated by varimax, so that a program loads on few genes. Its strongest genes, on
the side of the larger loadings, are the program. Changes alone, of some tens of perturbations, give programs that a
resample of cells does not find again; cells alone give programs that no perturbation moves (measured on Norman's
cells). Chosen over NMF and ICA because nothing starts at random: randomness only enters as a bootstrap of cells, whose
matched solutions are averaged (consensus) and whose agreement is reported as `stability`.
Perturbed genes are no members: their over-expression is the treatment itself.

A score is a weighted mean of log1p expression over the program's genes, so that a change of 0.1 reads as "10 % up".
After Kaiser 1958 (varimax) and Kotliar et al. 2019 (consensus over restarts).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from evidence.conditions import CONTROL, Condition
from evidence.errors import DataError
from evidence.perturbed import PerturbedCells
from evidence.values import Name, Positive, Value, sha256_of

Array = NDArray[np.float64]
MIN_CELLS_EXPRESSING = 20
DIGITS = 6
"""Decimals of weights: beyond them the number of threads of the linear algebra shows."""
MAX_GENES = 1000
"""Programs are sought among this many genes of the largest variance."""


class Program(Value):
    """A group of genes with positive weights that sum to 1, to rounding. `stability`: mean bootstrap cosine."""

    id: Name
    name: Name
    genes: tuple[Name, ...]
    weights: tuple[Positive, ...]
    stability: float


class Programs(Value):
    """Programs and what they were learned from: the hash and the conditions of the training cells."""

    method: str = (
        "varimax of within-condition correlations plus noise-scaled changes, consensus over a bootstrap of cells"
    )
    programs: tuple[Program, ...]
    data_sha256: str
    conditions: tuple[str, ...]
    seed: int

    @property
    def weights(self) -> dict[str, dict[str, float]]:
        """Program id -> gene -> weight."""
        return {p.id: dict(zip(p.genes, p.weights, strict=True)) for p in self.programs}

    @property
    def sha256(self) -> str:
        """Hash of the definition."""
        return sha256_of(self)

    def matrix(self, genes: Collection[str]) -> Array:
        """(n_genes, n_programs) weights for these columns. Raises DataError for a program gene that is not there."""
        number = {gene: n for n, gene in enumerate(genes)}
        found = np.zeros((len(number), len(self.programs)))
        for column, program in enumerate(self.programs):
            absent = [gene for gene in program.genes if gene not in number]
            if absent:
                raise DataError(f"{program.id}: genes not measured here: {', '.join(absent)}")
            found[[number[gene] for gene in program.genes], column] = program.weights
        return found


class Scores(NamedTuple):
    """Program scores of a group of cells. mean, var: (n_programs,); var is the sample variance of single cells."""

    mean: Array
    var: Array
    n: int


class Effect(NamedTuple):
    """A difference of group means with its standard error from cells, (n_programs,) each, log1p units."""

    mean: Array
    se: Array


def learn_programs(
    training: PerturbedCells, *, n_programs: int, seed: int, n_genes: int = 25, n_bootstrap: int = 20
) -> Programs:
    """Learn programs from training cells; leave held-out conditions and reserved cells out before calling.

    Raises DataError unless there are at least as many perturbations as programs, and enough expressed genes.
    """
    perturbations = training.perturbations
    pool = _pool(training)
    if not 0 < n_programs <= min(len(perturbations), len(pool)):
        raise DataError(f"expected 1 to {min(len(perturbations), len(pool))} programs, got {n_programs}")
    rng = np.random.default_rng(seed)
    reference = _loadings(training, pool, n_programs, None)
    draws = [_match(_loadings(training, pool, n_programs, rng), reference) for _ in range(n_bootstrap)]
    consensus = np.mean(draws, axis=0) if draws else reference
    agreement = [_cosines(draw, consensus) for draw in draws] or [np.ones(n_programs)]
    stability = np.mean(agreement, axis=0)
    order = np.argsort(-(consensus**2).sum(axis=0), kind="stable")
    names = [training.genes[column] for column in pool]
    programs = [_program(rank + 1, consensus[:, k], names, n_genes, stability[k]) for rank, k in enumerate(order)]
    return Programs(
        programs=tuple(programs),
        data_sha256=training.data_sha256,
        conditions=tuple(c.id for c in perturbations),
        seed=seed,
    )


def programs_from_changes(
    changes: Array, genes: tuple[str, ...], names: list[str], *, n_programs: int, seed: int, sha256: str
) -> Programs:
    """Programs from mean changes alone: varimax of the leading components over genes, consensus over perturbations.

    changes: (n_perturbations, n_genes) of the training perturbations `names`. Perturbed genes are no members.
    Raises DataError unless there are more perturbations than programs.
    """
    if not 0 < n_programs < len(names):
        raise DataError(f"expected 1 to {len(names) - 1} programs from {len(names)} perturbations, got {n_programs}")
    allowed = np.array([gene not in names for gene in genes])
    scaled = changes[:, allowed] / (changes[:, allowed].std(axis=0) + np.median(changes[:, allowed].std(axis=0)))
    rng = np.random.default_rng(seed)
    reference = _components(scaled, n_programs)
    draws = [
        _match(_components(scaled[rng.integers(0, len(names), len(names))], n_programs), reference) for _ in range(20)
    ]
    consensus = np.mean(draws, axis=0)
    stability = np.mean([_cosines(draw, consensus) for draw in draws], axis=0)
    kept = [gene for gene, ok in zip(genes, allowed, strict=True) if ok]
    order = np.argsort(-(consensus**2).sum(axis=0), kind="stable")
    return Programs(
        method="varimax of the leading components of mean changes, consensus over a bootstrap of perturbations",
        programs=tuple(_program(r + 1, consensus[:, k], kept, 25, stability[k]) for r, k in enumerate(order)),
        data_sha256=sha256,
        conditions=tuple(names),
        seed=seed,
    )


def score_cells(x: sparse.csr_matrix, weights: Array) -> Scores:
    """Scores of cells. x: (n_cells, n_genes) log1p; weights: (n_genes, n_programs)."""
    if x.shape[0] < 2:
        raise DataError(f"expected at least 2 cells for a standard error, got {x.shape[0]}")
    scores = np.asarray(x.astype(np.float64) @ weights)
    return Scores(scores.mean(axis=0), scores.var(axis=0, ddof=1), len(scores))


def condition_scores(cells: PerturbedCells, programs: Programs) -> dict[Condition, Scores]:
    """Scores of every condition with at least two cells, the control among them."""
    weights = programs.matrix(cells.genes)
    return {c: score_cells(cells.of(c), weights) for c, rows in cells.rows.items() if len(rows) > 1}


def response(treated: Scores, control: Scores) -> Effect:
    """Change from control."""
    return _combine((treated, 1.0), (control, -1.0))


def interaction(ab: Scores, a: Scores, b: Scores, control: Scores) -> Effect:
    """AB - A - B of the changes from control, which is AB - A - B + control: the SE counts the control once."""
    return _combine((ab, 1.0), (a, -1.0), (b, -1.0), (control, 1.0))


class Term(NamedTuple):
    """An annotation over-represented among a program's genes: hypergeometric p, Benjamini-Hochberg q."""

    id: str
    genes: tuple[str, ...]
    p: float
    q: float


def enriched_terms(
    program: Program, background: Collection[str], annotations: Mapping[str, Collection[str]], *, max_q: float = 0.05
) -> tuple[Term, ...]:
    """Terms of the program's genes against the background (the measured genes), best first."""
    from scipy.stats import hypergeom

    universe = sorted(
        {gene for gene in background if gene in annotations} | {g for g in program.genes if g in annotations}
    )
    inside = frozenset(g for g in program.genes if g in annotations)
    members: dict[str, set[str]] = {}
    for gene in universe:
        for term in annotations[gene]:
            members.setdefault(term, set()).add(gene)
    tested = sorted(term for term, genes in members.items() if len(genes & inside) > 1)
    p = [float(hypergeom.sf(len(members[t] & inside) - 1, len(universe), len(members[t]), len(inside))) for t in tested]
    order = sorted(range(len(tested)), key=lambda i: (p[i], tested[i]))
    q = np.minimum.accumulate([p[i] * len(tested) / (r + 1) for r, i in enumerate(order)][::-1])[::-1]
    found = [
        Term(tested[i], tuple(sorted(members[tested[i]] & inside)), p[i], float(q[r])) for r, i in enumerate(order)
    ]
    return tuple(term for term in found if term.q <= max_q)


def _combine(*parts: tuple[Scores, float]) -> Effect:
    mean = np.sum([sign * s.mean for s, sign in parts], axis=0)
    return Effect(mean, np.sqrt(np.sum([s.var / s.n for s, _ in parts], axis=0)))


def _pool(training: PerturbedCells) -> NDArray[np.intp]:
    """Columns that may belong to a program: expressed, variable, and perturbed nowhere in the training cells."""
    targets = {target for condition in training.perturbations for target in condition.targets}
    expressing = np.asarray((training.X > 0).sum(axis=0)).ravel()
    allowed = np.array([gene not in targets for gene in training.genes])
    columns = np.flatnonzero(allowed & (expressing >= min(MIN_CELLS_EXPRESSING, len(training.barcodes) // 4)))
    _, variance = _moments(training.X[:, columns])
    return np.sort(columns[np.argsort(-variance, kind="stable")[:MAX_GENES]])


def _loadings(training: PerturbedCells, pool: NDArray[np.intp], k: int, rng: np.random.Generator | None) -> Array:
    """(n_pool, k) varimax-rotated loadings; with `rng`, of cells drawn with replacement in every condition."""
    x = sparse.csr_matrix(training.X[:, pool], dtype=np.float64)
    groups = {c: rows if rng is None else rng.choice(rows, len(rows)) for c, rows in training.rows.items()}
    moments = {c: _moments(x[rows]) for c, rows in groups.items()}
    sizes = {c: len(rows) for c, rows in groups.items()}
    both = _unit(_within(x[np.concatenate(list(groups.values()))], moments, sizes)) + _unit(_between(moments, sizes))
    values, vectors = np.linalg.eigh(both)
    leading = slice(None, -k - 1, -1)
    rotated = _varimax(vectors[:, leading] * np.sqrt(np.maximum(values[leading], 0)))
    return np.asarray(rotated * np.where((rotated**3).sum(axis=0) < 0, -1.0, 1.0))


def _moments(x: sparse.csr_matrix) -> tuple[Array, Array]:
    mean = np.asarray(x.mean(axis=0, dtype=np.float64)).ravel()
    return mean, np.maximum(np.asarray(x.multiply(x).mean(axis=0)).ravel() - mean**2, 0)


def _within(x: sparse.csr_matrix, moments: dict[Condition, tuple[Array, Array]], sizes: dict[Condition, int]) -> Array:
    """(n_genes, n_genes) covariance around the conditions' means, genes scaled to nearly unit variance."""
    centers = np.array([mean * np.sqrt(sizes[c]) for c, (mean, _) in moments.items()])
    covariance = (_gram(x) - centers.T @ centers) / x.shape[0]
    sd = np.sqrt(np.maximum(np.diag(covariance), 0))
    scale = sd + 0.1 * np.median(sd)
    return np.asarray(covariance / np.outer(scale, scale))


def _gram(x: sparse.csr_matrix) -> Array:
    """(n_genes, n_genes) x'x: dense blocks of rows where x is well filled, which is several times faster there."""
    if x.nnz < 0.05 * x.shape[0] * x.shape[1]:
        return np.asarray((x.T @ x).toarray())
    total = np.zeros((x.shape[1], x.shape[1]))
    for start in range(0, x.shape[0], 4096):
        block = x[start : start + 4096].toarray()
        total += block.T @ block
    return total


def _between(moments: dict[Condition, tuple[Array, Array]], sizes: dict[Condition, int]) -> Array:
    """(n_genes, n_genes) products of changes from control, in units of moderated standard errors."""
    errors = {c: variance / sizes[c] for c, (_, variance) in moments.items()}
    treated = [c for c in moments if not c.control]
    delta = np.array([moments[c][0] - moments[CONTROL][0] for c in treated])
    se = np.sqrt([errors[c] + errors[CONTROL] for c in treated])
    scaled = delta / (se + np.median(se))  # moderated: a gene without noise of its own is not infinitely sure
    return np.asarray(scaled.T @ scaled)


def _unit(matrix: Array) -> Array:
    return np.asarray(matrix / max(float(np.linalg.norm(matrix, 2)), 1e-300))


def _varimax(loadings: Array, tolerance: float = 1e-8, steps: int = 500) -> Array:
    """Kaiser's varimax by successive SVDs, started at the identity."""
    n, k = loadings.shape
    rotation, before = np.eye(k), 0.0
    for _ in range(steps):
        turned = loadings @ rotation
        gradient = loadings.T @ (turned**3 - turned * (turned**2).sum(axis=0) / n)
        u, s, vt = np.linalg.svd(gradient)
        rotation = u @ vt
        if s.sum() <= before * (1 + tolerance):
            break
        before = s.sum()
    return np.asarray(loadings @ rotation)


def _components(changes: Array, k: int) -> Array:
    """(n_genes, k) varimax-rotated loadings of the leading components, skewed to the positive side."""
    _, s, vt = np.linalg.svd(changes, full_matrices=False)
    rotated = _varimax(vt[:k].T * s[:k])
    return np.asarray(rotated * np.where((rotated**3).sum(axis=0) < 0, -1.0, 1.0))


def _match(found: Array, reference: Array) -> Array:
    """Columns of `found` in the order and with the signs of the reference's."""
    unit = [x / np.maximum(np.linalg.norm(x, axis=0), 1e-12) for x in (found, reference)]
    cosine = unit[1].T @ unit[0]
    rows, columns = linear_sum_assignment(-np.abs(cosine))
    return np.asarray(found[:, columns] * np.where(cosine[rows, columns] < 0, -1.0, 1.0))


def _cosines(a: Array, b: Array) -> Array:
    norms = np.linalg.norm(a, axis=0) * np.linalg.norm(b, axis=0)
    return np.asarray((a * b).sum(axis=0) / np.maximum(norms, 1e-12))


def _program(number: int, loading: Array, names: list[str], n_genes: int, stability: float) -> Program:
    best = [int(i) for i in np.argsort(-loading, kind="stable")[:n_genes] if loading[i] > 0]
    weights = loading[best] / loading[best].sum()
    genes = tuple(names[i] for i in best)
    return Program(
        id=f"program_{number}",
        name=" / ".join(genes[:4]),
        genes=genes,
        weights=tuple(round(float(w), DIGITS) for w in weights),
        stability=round(float(stability), DIGITS),
    )

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from evidence.conditions import CONTROL, Condition, pair
from evidence.errors import DataError
from evidence.perturbed import DataCard, make_cells
from evidence.programs import condition_scores, enriched_terms, interaction, learn_programs, response, score_cells

CARD = DataCard(name="generated", cell_line="none", modality="none")
GENES = (*tuple(f"G{n:02d}" for n in range(60)), "A", "B")
BLOCKS = (slice(0, 15), slice(15, 30), slice(30, 45))
EFFECTS = {
    "ctrl": (0, 0, 0),
    "A": (0.8, 0, 0),
    "B": (0, 0.6, 0),
    "C": (0, 0, 0.7),
    "D": (0.5, 0.5, 0),
    "A+B": (1.5, 0.6, 0.4),
}


def cells(seed=0, n=80):
    """Three blocks of genes that vary together; A+B is synergistic by 0.7 in the first and 0.4 in the third."""
    rng = np.random.default_rng(seed)
    rows, labels = [], []
    for label, effects in EFFECTS.items():
        x = 1.2 + 0.25 * rng.standard_normal((n, len(GENES)))
        for block, effect in zip(BLOCKS, effects, strict=True):
            x[:, block] += effect + 0.3 * rng.standard_normal((n, 1))
        x[:, -2] += 3.0 * ("A" in label)
        rows.append(np.maximum(x, 0))
        labels += [label] * n
    return make_cells(np.concatenate(rows), GENES, labels, card=CARD)


def matched_cosine(first, second, genes):
    a, b = (p.matrix(genes) / np.linalg.norm(p.matrix(genes), axis=0) for p in (first, second))
    rows, columns = linear_sum_assignment(-(a.T @ b))
    return (a.T @ b)[rows, columns]


@pytest.fixture(scope="module")
def training():
    return cells().without([pair("A", "B")])


@pytest.fixture(scope="module")
def programs(training):
    return learn_programs(training, n_programs=3, seed=1, n_genes=15)


def test_programs_are_the_groups_of_genes_that_move_together(programs):
    found = {frozenset(p.genes) for p in programs.programs}
    assert found == {frozenset(GENES[block]) for block in BLOCKS}
    for program in programs.programs:
        assert sum(program.weights) == pytest.approx(1, abs=2e-5)
        assert program.name.split(" / ")[0] == program.genes[0]
        assert program.stability > 0.95


def test_programs_are_stable_under_reseeding(training, programs):
    again = learn_programs(training, n_programs=3, seed=2, n_genes=15)
    assert matched_cosine(programs, again, GENES).min() > 0.99
    assert learn_programs(training, n_programs=3, seed=1, n_genes=15).sha256 == programs.sha256


def test_perturbed_genes_are_no_members(programs):
    assert not {"A", "B"} & {gene for p in programs.programs for gene in p.genes}


def test_held_out_cells_do_not_change_programs(programs):
    full = cells()
    rows = full.rows[pair("A", "B")]
    x = full.X.toarray()
    x[rows] = np.random.default_rng(3).permutation(x[rows].ravel()).reshape(x[rows].shape)
    labels = [c.id for c in full.conditions]
    hidden = make_cells(x, GENES, labels, card=CARD).without([pair("B", "A")])
    assert learn_programs(hidden, n_programs=3, seed=1, n_genes=15) == programs


def test_more_programs_than_perturbations_are_refused(training):
    with pytest.raises(DataError, match="expected 1 to 4 programs, got 5"):
        learn_programs(training, n_programs=5, seed=1)


def test_the_interaction_is_the_known_one_and_its_error_covers_it(programs):
    first = next(n for n, p in enumerate(programs.programs) if "G00" in p.genes)
    scores = condition_scores(cells(), programs)
    a, b, ab = Condition(("A",)), Condition(("B",)), pair("A", "B")
    found = interaction(scores[ab], scores[a], scores[b], scores[CONTROL])
    assert abs(found.mean[first] - 0.7) < 3 * found.se[first]
    changes = [response(scores[c], scores[CONTROL]) for c in (ab, a, b)]
    np.testing.assert_allclose(found.mean, changes[0].mean - changes[1].mean - changes[2].mean)
    assert (found.se < np.sqrt(sum(c.se**2 for c in changes))).all()


def test_the_standard_error_of_an_interaction_is_that_of_repeated_sampling(programs):
    draws = []
    for seed in range(60):
        scores = condition_scores(cells(seed=100 + seed, n=30), programs)
        draws.append(interaction(*(scores[c] for c in (pair("A", "B"), Condition(("A",)), Condition(("B",)), CONTROL))))
    observed, claimed = np.std([d.mean for d in draws], axis=0), np.mean([d.se for d in draws], axis=0)
    np.testing.assert_allclose(claimed, observed, rtol=0.35)


def test_a_standard_error_needs_two_cells_and_every_gene(training, programs):
    with pytest.raises(DataError, match="at least 2 cells"):
        score_cells(training.X[:1], programs.matrix(GENES))
    with pytest.raises(DataError, match="not measured here"):
        programs.matrix(GENES[20:])


def test_terms_over_represented_in_a_program_are_named(programs):
    program = next(p for p in programs.programs if "G00" in p.genes)
    terms = {gene: ["GO:block"] if gene in GENES[:15] else ["GO:other"] for gene in GENES}
    assert [t.id for t in enriched_terms(program, GENES, terms)] == ["GO:block"]

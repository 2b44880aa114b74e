"""The gene-pair setting on its three kinds of data."""

from pathlib import Path

import numpy as np
import pytest

from evidence.case_files import case_file_text
from evidence.cell_responses import CellResponses, training_cells
from evidence.conditions import CONTROL, Condition
from evidence.contracts import CaseFile, Prediction
from evidence.errors import ConfigError, DataError
from evidence.gene_pair import GenePair
from evidence.gene_pair_cases import choose_pairs, freeze_cells, read_frozen, split_cells
from evidence.pair_twin import make_twin
from evidence.perturbed import NORMAN_CARD, make_cells
from evidence.strict_yaml import read_value
from evidence.values import canonical_json

CASES = Path(__file__).resolve().parents[2] / "cases"
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "norman"


@pytest.fixture(scope="module")
def twin():
    return make_twin()


@pytest.fixture(scope="module")
def twin_file() -> CaseFile:
    return read_value(CASES / "gene-pair-twin.json", CaseFile, what="case file")


@pytest.fixture(scope="module")
def twin_setting(twin_file):
    return GenePair.open(twin_file, None)


def small(counts: dict[str, int], genes=("KLF1", "HBG1", "HBZ", "GYPA", "ALAS2"), seed=0):
    """Cells of these conditions with random expression."""
    rng = np.random.default_rng(seed)
    labels = [label for label, n in counts.items() for _ in range(n)]
    return make_cells(np.log1p(rng.poisson(3.0, (len(labels), len(genes))) + 0.5), genes, labels, card=NORMAN_CARD)


def test_published_shape_and_label(twin_file, twin_setting):
    assert len(twin_file.cases) == 12
    assert [len(case.readouts) for case in twin_file.cases] == [4] * 12
    assert twin_file.synthetic
    assert "Synthetic data" in twin_setting.evidence(twin_file.cases[0], ()).parts[0].text


def test_most_readouts_of_the_twin_are_near_zero(twin_setting):
    labels = [truth.label for case in twin_setting.cases() for truth in twin_setting.truth(case)]
    assert len(labels) == 48
    assert 34 <= labels.count("near zero") <= 42


def test_known_interactions_are_found_with_their_sign(twin, twin_file, twin_setting):
    """Programs are matched to the generated ones by their genes; strong known interactions have the right class."""
    frozen = read_frozen(twin_file)
    number = {p.id: int(p.genes[0][1]) - 1 for p in frozen.programs.programs}
    assert sorted(number.values()) == [0, 1, 2, 3]
    for case in twin_setting.cases():
        for truth in twin_setting.truth(case):
            known = twin.interactions[case.id][number[truth.readout]]
            if abs(known) > 0.45:
                assert truth.label == ("up" if known > 0 else "down")


def test_parts_are_disjoint_and_leave_no_cell_out(twin):
    cases = choose_pairs(twin.cells, 12, seed=1)
    parts = split_cells(twin.cells, cases, seed=1)
    rows = np.concatenate([part for three in parts.values() for part in three])
    assert len(rows) == len(set(rows.tolist())) == len(twin.cells.barcodes)
    assert all(len(parts[c].reserved) == 40 for c in cases)
    assert all(len(p.reserved) == 0 for c, p in parts.items() if c not in cases)


def test_training_cells_hold_no_case_and_no_truth(twin):
    cases = choose_pairs(twin.cells, 12, seed=1)
    parts = split_cells(twin.cells, cases, seed=1)
    training = training_cells(twin.cells, parts, cases)
    assert not set(cases) & set(training.rows)
    truth = {twin.cells.barcodes[i] for p in parts.values() for i in (*p.truth, *p.reserved)}
    assert not truth & set(training.barcodes)


def test_hidden_outcomes_shape_neither_the_case_file_nor_the_evidence(twin, twin_file):
    """With reserved and truth cells of every condition permuted, file (but for the hash) and evidence are the same."""
    cases = tuple(Condition(tuple(c.id.split("+"))) for c in twin_file.cases)
    parts = split_cells(twin.cells, cases, seed=twin_file.seed)
    x = twin.cells.X.toarray()
    rng = np.random.default_rng(3)
    for part in parts.values():
        for rows in (part.reserved, part.truth):
            x[rows] = x[rows][:, rng.permutation(x.shape[1])]
    changed = make_cells(
        x, twin.cells.genes, [c.id for c in twin.cells.conditions], card=twin.cells.card, barcodes=twin.cells.barcodes
    )
    frozen = freeze_cells(changed, source="twin", n_cases=12, seed=twin_file.seed, title=twin_file.title)
    same = frozen.model_copy(update={"data": twin_file.data})
    real, other = CaseFile.model_validate_json(case_file_text(twin_file)), same
    assert canonical_json(read_frozen(other).thresholds) == canonical_json(read_frozen(real).thresholds)
    assert canonical_json(read_frozen(other).programs) == canonical_json(read_frozen(real).programs)
    assert other.cases == real.cases
    responses = CellResponses(changed, parts, read_frozen(real).programs)
    opened = GenePair.open(twin_file, None)
    hidden = GenePair(real, read_frozen(real), responses, opened.pairs)
    for case in real.cases[:2]:
        assert hidden.evidence(case, ("table", "figure")) == opened.evidence(case, ("table", "figure"))
        assert hidden.responses(case) == opened.responses(case)
        assert hidden.truth(case) != opened.truth(case)


def test_interaction_is_ab_minus_a_minus_b(twin, twin_file, twin_setting):
    """Against plain means over the truth cells."""
    case = twin_file.cases[0]
    a, b = (Condition((t,)) for t in case.perturbation.targets)
    cases = tuple(Condition(tuple(c.id.split("+"))) for c in twin_file.cases)
    parts = split_cells(twin.cells, cases, seed=twin_file.seed)
    weights = read_frozen(twin_file).programs.matrix(twin.cells.genes)
    mean = {
        c: np.asarray(twin.cells.X[parts[c].truth].mean(axis=0)).ravel() @ weights
        for c in (a, b, CONTROL, Condition(case.perturbation.targets))
    }
    expected = mean[Condition(case.perturbation.targets)] - mean[a] - mean[b] + mean[CONTROL]
    assert [t.value for t in twin_setting.truth(case)] == pytest.approx(expected, abs=1e-6)


def test_g03_too_few_pairs_says_how_many_there_are():
    cells = small({"ctrl": 30, "KLF1+ctrl": 30, "CEBPE+ctrl": 30, "CEBPE+KLF1": 30})
    with pytest.raises(ConfigError) as caught:
        choose_pairs(cells, 20, seed=1)
    assert "asked for 20" in str(caught.value)
    assert "available 1" in str(caught.value)
    assert "1 in combo_seen2, 0 in combo_seen1, 0 in combo_seen0" in str(caught.value)
    assert choose_pairs(cells, 1, seed=1) == (Condition(("CEBPE", "KLF1")),)


def test_g03_no_pairs_at_all():
    cells = small({"ctrl": 30, "KLF1+ctrl": 30, "CEBPE+ctrl": 30})
    with pytest.raises(ConfigError, match=r"available 0 .*0 in combo_seen2"):
        choose_pairs(cells, 1, seed=1)


def test_other_data_is_refused(twin_file):
    other = twin_file.model_copy(update={"data": {"norman_twin": "0" * 64}})
    with pytest.raises(DataError, match="sha256 0000"):
        GenePair.open(other, None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"source": "cell"}, "expected cells, twin or tables"),
        ({"n_cases": "0"}, "whole number"),
        ({"n_case": "3"}, "Did you mean 'n_cases'"),
        ({"source": "twin", "n_cases": "99"}, "asked for 99"),
    ],
)
def test_bad_options_of_freeze(options, words):
    with pytest.raises(ConfigError, match=words):
        GenePair.freeze(data=None, shape="published", seed=1, options=options)


needs_devel = pytest.mark.skipif(not (SHARED / "devel.h5ad").is_file(), reason=f"needs {SHARED / 'devel.h5ad'}")
needs_tables = pytest.mark.skipif(not (SHARED / "pseudobulk").is_dir(), reason=f"needs {SHARED / 'pseudobulk'}")


@needs_devel
def test_g08_the_prompt_says_what_the_data_card_says():
    pytest.importorskip("anndata")
    case_file = read_value(CASES / "gene-pair-devel.json", CaseFile, what="case file")
    assert len(case_file.cases) == 5
    setting = GenePair.open(case_file, SHARED / "devel.h5ad")
    text = setting.evidence(case_file.cases[0], ()).parts[0].text
    assert "K562" in text
    assert "CRISPRa (over-expression)" in text
    assert "A549" not in text
    assert "knock" not in text


@needs_devel
def test_the_devel_file_freezes_to_the_shipped_case_file():
    pytest.importorskip("anndata")
    made = GenePair.freeze(data=SHARED / "devel.h5ad", shape="devel", seed=1, options={})
    shipped = read_value(CASES / "gene-pair-devel.json", CaseFile, what="case file")
    assert made.cases == shipped.cases
    assert made.data == shipped.data


@needs_tables
def test_tables_need_the_noise_and_say_so():
    with pytest.raises(ConfigError, match="the noise of a measurement must be given"):
        GenePair.freeze(data=SHARED / "pseudobulk", shape="published", seed=1, options={"source": "tables"})
    case_file = read_value(CASES / "gene-pair-tables.json", CaseFile, what="case file")
    setting = GenePair.open(case_file, SHARED / "pseudobulk")
    assert len(case_file.cases) == 38
    assert "There are no cells behind this data" in setting.evidence(case_file.cases[0], ()).parts[0].text
    case = case_file.cases[0]
    observed = setting.observe(case, case.menu[0], 0).observation
    assert observed.n_cells is None
    assert observed.se == 0.03
    assert observed.value != setting.truth(case)[0].value
    assert abs(observed.value - setting.truth(case)[0].value) < 5 * 0.03


def test_the_predicted_pair_is_shown_beside_each_gene_alone(twin_setting):
    case = twin_setting.cases()[0]
    predictions = tuple(Prediction(readout=r.id, mean=0.25, sd=0.1) for r in case.readouts)
    shown = twin_setting.predicted(case, predictions, ("table", "figure"))
    singles = next(p for p in twin_setting.evidence(case, ("table",)).parts if getattr(p, "name", "") == "singles")
    table, figure = shown.parts
    assert [row[2] for row in table.rows] == pytest.approx([row[-1] + 0.25 for row in singles.rows], abs=2e-4)
    assert set(shown.blobs) == {figure.sha256}
    assert twin_setting.predicted(case, predictions, ("table",)).blobs == {}

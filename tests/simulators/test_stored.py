import numpy as np
import pytest

from evidence.combination_cases import freeze
from evidence.contracts import CaseFile
from evidence.drug_combination import DrugCombination
from evidence.errors import ConfigError, ContractError, DataError
from evidence.program_cells import CHANGE_UNIT
from simulators.response_table import Provenance, load_table, make_table, save_table
from simulators.stored import Stored, StoredOptions


@pytest.fixture(scope="module")
def setting(combinations):
    opened = combinations()
    return DrugCombination.on_cells(freeze(opened, "published", 1), opened)


def table_for(setting, **changes):
    training = setting.training()
    made = {"data_sha256": training.cells.data_sha256, "held_out": training.held_out, **changes.pop("made", {})}
    names = ["A+B", "C+D", *(c.id for c in training.cells.perturbations)]
    members = np.random.default_rng(0).normal(size=(changes.pop("n", 3), len(names), len(training.cells.genes)))
    given = {"unit": CHANGE_UNIT, **changes}
    return make_table(names, training.cells.genes, members, provenance=Provenance(simulator="cpa", **made), **given)


def fitted(setting, table, folder):
    save_table(table, folder / "t.npz")
    stored = Stored(StoredOptions(table=str(folder / "t.npz")))
    stored.fit(setting.training(), seed=1)
    return stored


def test_it_predicts_what_the_table_says(setting, tmp_path):
    table = table_for(setting)
    case = setting.cases()[0]
    found = fitted(setting, table, tmp_path).predict(case.perturbation, ["program_3", "program_1"])
    readouts = table.project(setting.frozen.programs.weights)
    at = readouts.row(case.perturbation.id)
    assert [p.mean for p in found] == [readouts.mean[at, 2], readouts.mean[at, 0]]
    assert [p.sd for p in found] == [readouts.sd[at, 2], readouts.sd[at, 0]]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"made": {"data_sha256": "0" * 64}}, "was trained on cells with sha256 0000"),
        ({"made": {"held_out": ("A+B",)}}, r"trained on combinations that the cases hide: C\+D"),
        ({"unit": "counts"}, "expected predictions in 'log1p change from control', got 'counts'"),
        ({"n": 1}, "at least two ensemble members"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(setting, tmp_path, changes, problem):
    with pytest.raises(DataError, match=problem):
        fitted(setting, table_for(setting, **changes), tmp_path)


def test_names_are_checked(setting, tmp_path):
    stored = fitted(setting, table_for(setting), tmp_path)
    with pytest.raises(ConfigError, match="no program 'program_9'"):
        stored.predict(setting.cases()[0].perturbation, ["program_9"])
    with pytest.raises(ConfigError, match="absolute path or a shipped table"):
        Stored(StoredOptions(table="deep/none.npz")).fit(setting.training(), seed=1)
    with pytest.raises(ContractError, match="fit before predict"):
        Stored(StoredOptions(table="x.npz")).predict(setting.cases()[0].perturbation, ["program_1"])


def test_the_shipped_table_of_the_twin_is_small_and_fits_its_case_file(root):
    path = root / "cases" / "drug-combination-cpa.npz"
    case_file = CaseFile.model_validate_json((root / "cases" / "drug-combination.json").read_text())
    table = load_table(path)
    assert path.stat().st_size < 1_000_000
    assert table.provenance.synthetic
    assert set(table.provenance.held_out) == {case.perturbation.id for case in case_file.cases}
    stored = Stored(StoredOptions(table=path.name))
    stored.fit(DrugCombination.open(case_file, None).training(), seed=1)
    for case in case_file.cases:
        assert len(stored.predict(case.perturbation, [r.id for r in case.readouts])) == 3

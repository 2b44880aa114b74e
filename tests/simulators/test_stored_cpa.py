import numpy as np
import pytest

from evidence.combination_cases import freeze
from evidence.contracts import CaseFile
from evidence.drug_combination import DrugCombination
from evidence.errors import DataError
from simulators.response_table import Provenance, load_table, make_table, save_table
from simulators.stored import Cpa, StoredOptions


@pytest.fixture(scope="module")
def setting(combinations):
    opened = combinations()
    return DrugCombination.on_cells(freeze(opened, "published", 1), opened)


def table_for(setting, **changes):
    cells, held_out = setting.cell_data().cells, setting.frozen.held_out
    made = {"simulator": "cpa", "data_sha256": cells.data_sha256, "held_out": held_out, **changes.pop("made", {})}
    names = [*held_out, *(c.id for c in cells.perturbations)]
    members = np.random.default_rng(0).normal(size=(changes.pop("n", 3), len(names), len(cells.genes)))
    return make_table(names, cells.genes, members, unit="log1p change from control", provenance=Provenance(**made))


def fitted(setting, table, folder):
    save_table(table, folder / "t.npz")
    stored = Cpa(StoredOptions(table=folder / "t.npz"))
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
        ({"made": {"data_sha256": "0" * 64}}, "expected predictions made from the run's training cells.*says 0000"),
        ({"made": {"held_out": ("A+B",)}}, r"does not say so for C\+D"),
        ({"made": {"simulator": "gears"}}, "made by 'gears', not by 'cpa'"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(setting, tmp_path, changes, problem):
    with pytest.raises(DataError, match=problem):
        fitted(setting, table_for(setting, **changes), tmp_path)


def test_the_shipped_table_of_the_twin_is_small_and_fits_its_case_file(root):
    path = root / "cases" / "drug-combination-cpa.npz"
    case_file = CaseFile.model_validate_json((root / "cases" / "drug-combination.json").read_text())
    table = load_table(path)
    assert path.stat().st_size < 1_000_000
    assert table.provenance.synthetic
    assert set(table.provenance.held_out) == {case.perturbation.id for case in case_file.cases}
    stored = Cpa(StoredOptions(table=path))
    stored.fit(DrugCombination.open(case_file, None).training(), seed=1)
    for case in case_file.cases:
        assert len(stored.predict(case.perturbation, [r.id for r in case.readouts])) == 3

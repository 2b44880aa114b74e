import json

import numpy as np
import pytest

from evidence.cell_split import training_rows
from evidence.checks import SETTING_CHECKS, SettingUnderTest, run_checks
from evidence.combination_cases import freeze, read_frozen
from evidence.combination_rules import choose_pairs, drug_effects, naive, split_cells
from evidence.combination_twin import CELL_COUNTS
from evidence.conditions import CONTROL, Condition, normalise_condition, pair
from evidence.contracts import CaseFile
from evidence.drug_combination import DrugCombination
from evidence.errors import ConfigError, ContractError, DataError
from evidence.programs import Effect

MODALITIES = ("table", "figure")
HIDDEN = ("A+B", "C+D")


@pytest.fixture(scope="module")
def opened(combinations):
    return combinations()


@pytest.fixture(scope="module")
def case_file(opened):
    return freeze(opened, "published", 1)


@pytest.fixture(scope="module")
def setting(case_file, opened):
    return DrugCombination.on_cells(case_file, opened)


def test_the_published_shape_is_ten_cases_with_three_programs(root):
    shipped = CaseFile.model_validate_json((root / "cases" / "drug-combination.json").read_text())
    assert shipped.synthetic
    assert len(shipped.cases) == 10
    assert sum(len(case.readouts) for case in shipped.cases) == 30
    assert all(len(case.menu) == 3 for case in shipped.cases)
    setting = DrugCombination.open(shipped, None)
    held_out = {normalise_condition(case.perturbation.id) for case in shipped.cases}
    for condition, parts in setting.parts.items():
        taken = [set(part.tolist()) for part in parts]
        assert sum(map(len, taken)) == len(set().union(*taken)) == len(setting.opened.cells.rows[condition])
        assert (len(parts.reserved), len(parts.training) > 0) == ((48, False) if condition in held_out else (0, True))
    assert not held_out & set(setting.cell_data().cells.rows)
    assert not held_out & {normalise_condition(name) for name in setting.frozen.programs.conditions}


def test_pairs_are_chosen_by_label_so_that_every_drug_stays_in_training():
    rows = {normalise_condition(label): range(n // 5) for label, n in CELL_COUNTS.items()}
    chosen = choose_pairs(rows, "published")
    left = {target for c in rows if c not in chosen for target in c.targets}
    assert len(chosen) == 10
    assert {t for c in chosen for t in c.targets} <= left
    assert pair("Dacinostat", "Danusertib") not in chosen
    assert len(choose_pairs(rows, "extended")) > 10
    with pytest.raises(DataError, match="no pair can be held out"):
        choose_pairs({CONTROL: range(9), pair("A", "B"): range(500)}, "published")


def test_it_keeps_every_promise_of_a_setting(case_file, opened, monkeypatch):
    monkeypatch.setattr("evidence.drug_combination.open_combinations", lambda source, data: opened)
    subject = SettingUnderTest(case_file, lambda file: DrugCombination.open(file, None))
    assert [r for r in run_checks(SETTING_CHECKS, subject) if not r.passed] == []


def test_hidden_outcomes_change_neither_case_file_nor_evidence(case_file, setting, combinations):
    other = combinations(shuffle=HIDDEN)
    again = freeze(other, "published", 1)
    assert again.model_copy(update={"data": case_file.data}) == case_file
    assert again.data != case_file.data
    shuffled = DrugCombination.on_cells(case_file, other)
    for case in setting.cases():
        one, two = setting.evidence(case, MODALITIES), shuffled.evidence(case, MODALITIES)
        assert (one.parts, dict(one.blobs)) == (two.parts, dict(two.blobs))
        assert setting.responses(case) == shuffled.responses(case)
        assert setting.baselines(case) == shuffled.baselines(case)
        assert setting.truth(case) != shuffled.truth(case)
    assert setting.training() == shuffled.training()
    assert setting.cell_data().cells.data_sha256 == shuffled.cell_data().cells.data_sha256


def test_truth_and_observation_come_from_different_cells(setting):
    case = setting.cases()[0]
    measured = setting.observe(case, case.menu[0], 1).observation
    true = setting.truth(case)[0]
    assert measured.n_cells == 48
    assert measured.value != true.value
    assert abs(measured.value - true.value) < 5 * np.hypot(measured.se, true.se)
    with pytest.raises(ContractError, match="not on the menu"):
        setting.observe(case, setting.cases()[0].menu[0].model_copy(update={"id": "other"}), 1)


def test_naive_baselines_are_named_and_right(setting):
    case = next(case for case in setting.cases() if case.id == "A+B")
    alone = {c.id: effect.mean for c, effect in setting._responses.items()}
    found = {name: [p.mean for p in values] for name, values in setting.baselines(case).items()}
    assert set(found) == {"no change", "additive (log scale)", "mean of singles"}
    np.testing.assert_allclose(found["additive (log scale)"], alone["A"] + alone["B"])
    np.testing.assert_allclose(found["mean of singles"], (alone["A"] + alone["B"]) / 2)
    assert found["no change"] == [0.0, 0.0, 0.0]


def test_a_drug_not_measured_alone_gets_what_its_training_pairs_leave():
    effect = {c: Effect(np.array(v), np.zeros(1)) for c, v in {
        Condition(("A",)): [1.0], pair("A", "B"): [1.5], pair("A", "C"): [0.0]}.items()}  # fmt: skip
    effects = drug_effects(effect)
    assert effects["B"][0] == pytest.approx(0.5 / 1.05)
    assert naive(pair("B", "C"), effects)["additive (log scale)"][0] == pytest.approx(-0.5 / 1.05)
    with pytest.raises(DataError, match="no training condition holds Z"):
        naive(pair("A", "Z"), effects)


def test_simulators_get_training_cells_alone(opened, setting):
    data = setting.cell_data()
    assert {c.id for c in data.held_out} == set(HIDDEN)
    assert not set(data.held_out) & set(data.cells.rows)
    assert set(data.held_out) < set(data.wanted)
    assert data.cells.data_sha256 == setting.training().cells_sha256
    parts = split_cells(opened.cells, [normalise_condition(name) for name in HIDDEN], 1)
    assert len(training_rows(parts)) == 100 + 60 * 5 + 70


def test_a_case_file_that_was_changed_is_refused_with_the_field(case_file):
    changed = json.loads(case_file.model_dump_json())
    changed["cases"][0]["readouts"][0]["threshold"] = 0.5
    with pytest.raises(ConfigError, match="threshold that is not in frozen.thresholds"):
        read_frozen(CaseFile.model_validate_json(json.dumps(changed)))
    changed = json.loads(case_file.model_dump_json())
    changed["frozen"]["scale"] = "counts"
    with pytest.raises(ConfigError, match=r"field frozen\.scale"):
        read_frozen(CaseFile.model_validate_json(json.dumps(changed)))


def test_freezing_needs_known_options():
    with pytest.raises(ConfigError, match="Did you mean 'combosciplex'"):
        DrugCombination.freeze(data=None, shape="published", seed=1, options={"source": "combosciplx"})
    with pytest.raises(ConfigError, match="no option 'sorce'"):
        DrugCombination.freeze(data=None, shape="published", seed=1, options={"sorce": "twin"})
    with pytest.raises(ConfigError, match="shape"):
        DrugCombination.freeze(data=None, shape="all", seed=1, options={})


def test_real_pairs_of_norman_become_cases(norman_devel):
    pytest.importorskip("anndata", reason='needs: pip install -e ".[cells]"')
    case_file = DrugCombination.freeze(data=norman_devel, shape="published", seed=1, options={"source": "norman_devel"})
    setting = DrugCombination.open(case_file, norman_devel)
    assert not case_file.synthetic
    assert {"KLF1+MAP2K6", "KLF1+TGFBR2", "MAP2K3+MAP2K6", "MAP2K3+SLC38A2", "MAPK1+TGFBR2"} <= {
        case.id for case in case_file.cases
    }
    assert "K562" in str(setting.evidence(setting.cases()[0], ("table",)).parts[0])
    assert not any("A549" in str(part) for part in setting.evidence(setting.cases()[0], ("table",)).parts)

import json

import pytest

from evidence.checks import SETTING_CHECKS, SettingUnderTest, run_checks
from evidence.contracts import CaseFile
from evidence.drug_synergy import DrugSynergy
from evidence.errors import ConfigError, ContractError, DataError


@pytest.fixture(scope="module")
def folder(synergy_tables):
    return synergy_tables()


@pytest.fixture(scope="module")
def case_file(folder):
    return DrugSynergy.freeze(data=folder, shape="published", seed=1, options={})


@pytest.fixture(scope="module")
def setting(case_file, folder):
    return DrugSynergy.open(case_file, folder)


def test_it_keeps_every_promise_of_a_setting(case_file, folder):
    subject = SettingUnderTest(case_file, lambda file: DrugSynergy.open(file, folder))
    assert [r for r in run_checks(SETTING_CHECKS, subject) if not r.passed] == []


def test_hidden_scores_change_neither_case_file_nor_evidence(case_file, setting, synergy_tables):
    hidden = [tuple(pair) for pair in case_file.frozen["held_out"]]
    other = synergy_tables(shuffle=hidden)
    again = DrugSynergy.freeze(data=other, shape="published", seed=1, options={})
    assert again.model_copy(update={"data": case_file.data}) == case_file
    shuffled = DrugSynergy.open(again, other)
    for case in setting.cases():
        assert setting.evidence(case, ("table",)) == shuffled.evidence(case, ("table",))
        assert setting.responses(case) == shuffled.responses(case)
        assert setting.baselines(case) == shuffled.baselines(case)
        assert setting.truth(case) != shuffled.truth(case)


def test_a_measurement_is_not_the_truth(setting):
    frozen = setting.frozen
    assert not set(frozen.sisters) & set(frozen.sisters.values())
    case = setting.cases()[0]
    for measurement in case.menu:
        seen = setting.observe(case, measurement, 1).observation
        if measurement.readout is None:
            assert (seen.value, seen.parts[0].columns) == (None, ("dose (uM)", "inhibition (%)"))
        else:
            assert seen.se == frozen.sister_sd[measurement.readout]
            assert seen.value == setting._score(case.perturbation.targets, frozen.sisters[measurement.readout])


def test_no_held_out_pair_is_trained_on(setting):
    assert not set(setting.training().pairs) & set(setting.frozen.held_out)
    assert len(setting.training().pairs) == 45 - 12


def test_other_tables_and_options_are_refused(case_file, setting, synergy_tables):
    with pytest.raises(DataError, match="not the tables"):
        DrugSynergy.open(case_file, synergy_tables(shuffle=[("DRUG-A", "DRUG-B")]))
    with pytest.raises(ConfigError, match="shape published"):
        DrugSynergy.freeze(data=None, shape="big", seed=1, options={})
    with pytest.raises(ContractError, match="not on the menu"):
        setting.observe(setting.cases()[0], setting.cases()[0].menu[0].model_copy(update={"id": "x"}), 1)
    broken = json.loads(case_file.model_dump_json()) | {"frozen": {}}
    with pytest.raises(ConfigError, match="field frozen"):
        DrugSynergy.open(CaseFile.model_validate_json(json.dumps(broken)), setting_folder(setting, synergy_tables))


def setting_folder(setting, synergy_tables):
    return synergy_tables()

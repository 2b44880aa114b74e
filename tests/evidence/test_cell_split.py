"""The split rules of three settings, as data, against the arithmetic that their case files say in words."""

import numpy as np
import pytest

from evidence import combination_cases, combination_rules, gene_pair_cases, signaling_rules
from evidence.cell_split import check_parts, split_conditions, split_rows
from evidence.conditions import CONTROL, Condition, pair
from evidence.contracts import CaseFile
from evidence.errors import ConfigError, DataError

GENES, DRUGS = gene_pair_cases.SPLIT, combination_rules.SPLIT


@pytest.mark.parametrize("n", [100, 101, 102, 143, 144, 145, 399])
def test_parts_have_the_sizes_that_the_rules_say(n):
    third, reserved = round(2 * n / 3), min(48, n // 3)
    half = (n - reserved) // 2
    expected = {
        GENES.case: (half, n - reserved - half, reserved),
        GENES.single: (n // 2, n - n // 2, 0),
        GENES.pair: (n, 0, 0),
        DRUGS.case: (0, n - 48, 48),
        DRUGS.control: (third, n - third, 0),
        signaling_rules.BASELINE: (third, n - third, 0),
        signaling_rules.INTERVENTION: ((n - 96) // 2, n - 96 - (n - 96) // 2, 96),
    }
    for share, sizes in expected.items():
        parts = split_rows(np.arange(n), share, 1, "A")
        assert tuple(map(len, parts)) == sizes
        check_parts({"A": parts}, n)


def test_too_few_cells_and_a_pair_without_cells_are_refused_by_name():
    rows = {CONTROL: np.arange(5), pair("A", "B"): np.arange(5, 60)}
    with pytest.raises(DataError, match="control: expected at least 6 cells, got 5"):
        split_conditions(rows, [pair("A", "B")], DRUGS, 1)
    with pytest.raises(DataError, match=r"no cell of C\+D, which the case file holds out"):
        split_conditions(rows, [Condition(("C", "D"))], GENES, 1)


@pytest.mark.parametrize("name", ["gene-pair-twin", "drug-combination"])
def test_an_edited_case_is_refused_by_both_settings_on_programs(root, name):
    read = {"gene_pair": gene_pair_cases.read_frozen, "drug_combination": combination_cases.read_frozen}
    file = CaseFile.model_validate_json((root / "cases" / f"{name}.json").read_text())
    first, *others = file.cases
    treated = first.perturbation
    for problem, change in {
        "is not among the held-out pairs": {"perturbation": treated.model_copy(update={"id": "other"})},
        "the perturbation is not that of its pair": {"perturbation": treated.model_copy(update={"targets": ("X",)})},
        "no readout for program_1": {"readouts": first.readouts[1:], "menu": first.menu[1:]},
    }.items():
        edited = file.model_copy(update={"cases": (first.model_copy(update=change), *others)})
        with pytest.raises(ConfigError, match=problem):
            read[file.setting](edited)

import csv
import io

import numpy as np
import pytest

from evidence import combination_twin
from evidence.combination_cells import SOURCES, from_combinations, held_out_of_split, open_combinations
from evidence.conditions import CONTROL, Condition, choose_control, pair
from evidence.doses import target_doses
from evidence.errors import DataError

anndata = pytest.importorskip("anndata", reason='needs: pip install -e ".[cells]"')
pandas = pytest.importorskip("pandas", reason='needs: pip install -e ".[cells]"')

C02 = """cell,drug,split
1,A+B,train
2,A+B,test
3,A+control,train
4,B+control,train
5,control,train
"""


def adata(x, **columns):
    obs = pandas.DataFrame(columns, index=[f"cell{n}" for n in range(len(x))])
    return anndata.AnnData(np.asarray(x, dtype=np.float32), obs=obs, var=pandas.DataFrame(index=["G1", "G2", "G3"]))


def test_c02_a_split_that_tears_a_combination_apart_is_refused():
    rows = list(csv.DictReader(io.StringIO(C02)))
    labels, split = [r["drug"] for r in rows], [r["split"] for r in rows]
    with pytest.raises(DataError, match=r"A\+B is in both train and test"):
        held_out_of_split(labels, split)
    whole = ["test" if label == "A+B" else part for label, part in zip(labels, split, strict=True)]
    assert held_out_of_split(labels, whole) == (pair("A", "B"),)
    assert held_out_of_split([*labels[2:], "B+A", "A+B"], ["train"] * 3 + ["ood", "ood"]) == (pair("A", "B"),)


def test_c05_a_control_label_that_is_not_there_stops_with_near_matches():
    drug = ["Vehicle"] * 40 + ["DMSO"] * 38 + ["Givinostat+Dasatinib"] * 25
    x = np.full((103, 3), 0.5)
    spec = SOURCES["combosciplex"]._replace(column="drug", control="vehicle")
    with pytest.raises(DataError, match=r"'vehicle'\. Near matches: 'Vehicle' \(40\), 'DMSO' \(38\)"):
        from_combinations(adata(x, drug=drug), "combosciplex", spec)
    with pytest.raises(DataError, match="Near matches"):
        choose_control({"Vehicle": 40, "DMSO": 38, "Givinostat+Dasatinib": 25}, "vehicle")
    found = from_combinations(adata(x, drug=drug), "combosciplex", spec._replace(control="Vehicle"))
    assert len(found.cells.rows[CONTROL]) == 40


def test_c06_counts_declared_as_log1p_are_refused_and_empty_cells_are_dropped_by_name():
    x = [[388, 812, 0], [500, 400, 0], [0, 0, 0]]
    columns = {"condition": ["control+control", "control+A", "control+A"]}
    spec = SOURCES["combosciplex"]
    with pytest.raises(DataError, match=r"declared log1p but its maximum is 812.*scale='counts'"):
        from_combinations(adata(x, **columns), "combosciplex", spec)
    found = from_combinations(adata(x, **columns), "combosciplex", spec._replace(scale="counts"))
    assert found.cells.X.shape == (2, 3)
    assert np.isfinite(found.cells.X.toarray()).all()
    assert any("dropped 1 empty cells: cell2" in line for line in found.cells.report)


def test_combosciplex_labels_become_one_spelling():
    labels = ["control+control", "control+Dasatinib", "Givinostat+Dasatinib", "Dasatinib+Givinostat"]
    found = from_combinations(adata(np.full((4, 3), 0.5), condition=labels), "combosciplex", SOURCES["combosciplex"])
    assert found.cells.conditions == (CONTROL, Condition(("Dasatinib",)), *[pair("Dasatinib", "Givinostat")] * 2)
    assert found.cells.card.cell_line == "A549"
    assert not found.synthetic


def test_chembl_ids_and_their_doses_are_read_in_the_order_of_the_targets():
    columns = {
        "condition_ID": ["CHEMBL504", "CHEMBL483254+CHEMBL1213492", "CHEMBL504+CHEMBL1213492"],
        "log_dose": ["3.0", "0.25+1.0", "3.0+1.5"],
    }
    source = SOURCES["combosciplex_prep"]
    found = from_combinations(adata(np.full((3, 3), 0.5), **columns), "combosciplex_prep", source)
    assert [c.id for c in found.cells.conditions] == ["ctrl", "CHEMBL1213492+CHEMBL483254", "CHEMBL1213492"]
    assert found.doses == ((), (1.0, 0.25), (1.5,))
    with pytest.raises(DataError, match="no column 'condition_ID'"):
        from_combinations(adata(np.full((3, 3), 0.5), condition=["a"] * 3), "combosciplex_prep", source)


def test_doses_follow_their_drugs():
    assert target_doses("DrugC+DrugB", "0.25+1.0") == (1.0, 0.25)
    assert target_doses("control+DrugC", "0+0.25") == (0.25,)
    assert target_doses("DrugC+control", "0.25") == (0.25,)
    assert target_doses("control", "1.0") == ()
    for text in ("1", "1+x", "1+2+3"):
        with pytest.raises(DataError, match="dose"):
            target_doses("A+B", text)


def test_the_twin_has_the_published_conditions_and_says_that_it_is_made_up():
    opened = open_combinations("twin", None)
    assert opened.synthetic
    assert len(opened.cells.rows) == 32
    assert sum(combination_twin.CELL_COUNTS.values()) == 63_378
    for label, n in combination_twin.CELL_COUNTS.items():
        condition = (
            CONTROL if label == "control+control" else Condition(tuple(sorted({*label.split("+")} - {"control"})))
        )
        assert len(opened.cells.rows[condition]) == round(n / combination_twin.CELLS_PART)
    assert opened.cells.data_sha256 == combination_twin.make_twin().data_sha256
    assert "generated" in opened.cells.card.cell_line


def test_the_twin_is_not_read_from_a_path(tmp_path):
    with pytest.raises(DataError, match="generated"):
        open_combinations("twin", tmp_path)


def test_c02_a_files_own_split_column_says_what_is_held_out():
    labels = ["control+control", "control+A", "control+B", "A+B", "B+A"]
    spec, x = SOURCES["combosciplex"], np.full((5, 3), 0.5)
    whole = adata(x, condition=labels, split=["train", "train", "train", "ood", "ood"])
    assert from_combinations(whole, "combosciplex", spec, "split").held_out == (pair("A", "B"),)
    assert from_combinations(whole, "combosciplex", spec).held_out is None
    torn = adata(x, condition=labels, split=["train", "train", "train", "train", "ood"])
    with pytest.raises(DataError, match=r"A\+B is in both train and ood"):
        from_combinations(torn, "combosciplex", spec, "split")
    with pytest.raises(DataError, match="no split column 'part'"):
        from_combinations(whole, "combosciplex", spec, "part")

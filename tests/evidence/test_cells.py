import numpy as np
import pytest
from scipy import sparse

from evidence.cells import from_anndata, read_cells
from evidence.conditions import Condition, choose_control, normalise_condition, pair
from evidence.errors import DataError
from evidence.perturbed import NORMAN_CARD, DataCard

anndata = pytest.importorskip("anndata", reason='needs: pip install -e ".[cells]"')
pd = pytest.importorskip("pandas")

CARD = DataCard(name="test", cell_line="K562", modality="CRISPRa")


def adata(labels, x=None, genes=("KLF1", "HBG1", "HBZ"), **obs):
    x = np.full((len(labels), len(genes)), 0.5) if x is None else np.asarray(x, dtype=float)
    names = [f"c{n}" for n in range(1, len(labels) + 1)]
    var = pd.DataFrame({"gene_name": list(genes)}, index=[f"ENSG_{chr(65 + n)}" for n in range(len(genes))])
    return anndata.AnnData(sparse.csr_matrix(x), obs=pd.DataFrame({"condition": labels, **obs}, index=names), var=var)


def test_one_perturbation_in_many_spellings_is_one_item():
    labels = ["ctrl", " ctrl ", "KLF1+ctrl", "ctrl+KLF1", "CEBPE+RUNX1T1", "RUNX1T1+CEBPE"]
    labels += ["CEBPE+RUNX1T1+KLF1", "CEBPE_RUNX1T1"]
    cells = from_anndata(adata(labels), card=CARD)
    assert {c.id: len(rows) for c, rows in cells.rows.items()} == {"ctrl": 2, "CEBPE+RUNX1T1": 2, "KLF1": 2}
    assert pair("RUNX1T1", "CEBPE") == pair("CEBPE", " RUNX1T1 ") == Condition(("CEBPE", "RUNX1T1"))
    assert [line for line in cells.report if "set aside" in line] == [
        "set aside 'CEBPE+RUNX1T1+KLF1': 1 cells (3 genes; only singles and pairs are read)",
        "set aside 'CEBPE_RUNX1T1': 1 cells (underscore in 'CEBPE_RUNX1T1'; pairs are written with a plus (`A+B`))",
    ]


@pytest.mark.parametrize("text", ["", " ", "A+", "A+A", "A+B+C", "A_B", "+"])
def test_labels_that_are_no_perturbation_are_refused(text):
    with pytest.raises(DataError, match="condition"):
        normalise_condition(text)


def test_missing_labels_are_set_aside_and_na_stays_text():
    cells = from_anndata(adata(["ctrl", "NA", None]), card=CARD)
    assert [c.id for c in cells.rows] == ["ctrl", "NA"]
    assert any("set aside ''" in line for line in cells.report)


def test_a_perturbed_gene_that_is_not_measured_stays_usable():
    cells = from_anndata(adata(["ctrl", "CEBPE+RUNX1T1", "CEBPE+ctrl", "RUNX1T1+ctrl"]), card=CARD)
    assert pair("CEBPE", "RUNX1T1") in cells.perturbations
    assert not cells.measured("CEBPE")
    with pytest.raises(DataError, match="'CEBPE' is not measured"):
        cells.column("CEBPE")
    assert any("2 perturbed genes are not measured" in line for line in cells.report)


def test_a_symbol_with_two_columns_is_an_error_or_two_labels():
    data = adata(["ctrl"], [[1.0, 0.5, 4.0]], genes=("KLF1", "TMSB15B", "TMSB15B"))
    with pytest.raises(DataError, match="TMSB15B: ENSG_B, ENSG_C"):
        from_anndata(data, card=CARD)
    cells = from_anndata(data, card=CARD, duplicates="label")
    assert cells.genes == ("KLF1", "TMSB15B (ENSG_B)", "TMSB15B (ENSG_C)")
    assert not cells.measured("TMSB15B")


def test_the_control_label_is_never_guessed():
    with pytest.raises(DataError, match=r"'vehicle'. Near matches: 'Vehicle' \(40\), 'DMSO' \(38\)"):
        choose_control({"Vehicle": 40, "DMSO": 38, "Givinostat+Dasatinib": 25}, "vehicle")
    cells = from_anndata(adata(["DMSO", "A+DMSO", "A+B"]), card=CARD, control="DMSO")
    assert [c.id for c in cells.rows] == ["ctrl", "A", "A+B"]


def test_the_scale_is_checked_and_empty_cells_are_named():
    counts = [[812.0, 300, 88], [500, 300, 100], [0, 0, 0]]
    with pytest.raises(DataError, match="declared log1p but its maximum is 812"):
        from_anndata(adata(["ctrl"] * 3, counts), card=CARD)
    cells = from_anndata(adata(["ctrl"] * 3, counts), card=CARD, scale="counts")
    assert "dropped 1 empty cells: c3" in cells.report
    np.testing.assert_allclose(np.expm1(cells.X.toarray()).sum(axis=1), 1e4, rtol=1e-4)
    with pytest.raises(DataError, match="holds fractions"):
        from_anndata(adata(["ctrl"], [[0.5, 1, 2]]), card=CARD, scale="counts")
    for bad, message in ((np.nan, "NaN"), (-1.0, "minimum")):
        with pytest.raises(DataError, match=message):
            from_anndata(adata(["ctrl"], [[bad, 1.5, 2]]), card=CARD)


def test_the_cell_line_comes_from_the_card():
    cells = from_anndata(adata(["ctrl"], cell_type=["A549"]))
    assert (cells.card.cell_line, cells.card.modality) == ("K562", "CRISPRa (over-expression)")
    assert sum("A549" in line for line in cells.report) == 1
    assert from_anndata(adata(["ctrl"], cell_type=["A549"]), card=None).card.cell_line == "unknown"
    assert not any("cell_type" in line for line in from_anndata(adata(["ctrl"], cell_type=["k562"])).report)


def test_a_file_with_several_studies_is_read_for_the_study_of_its_card():
    data = adata(["control", "A", "B"], dataset=["norman19", "norman19", "mcfaline23"])
    assert [c.id for c in from_anndata(data).rows] == ["ctrl", "A"]
    with pytest.raises(DataError, match=r"mcfaline23 \(1\), norman19 \(2\)"):
        from_anndata(data, card=CARD)


def test_the_hash_is_of_content(tmp_path):
    data = adata(["ctrl", "A+B", "B"], [[0.5, 0, 1], [1, 2.5, 0], [0, 0, 0.25]])
    data.write_h5ad(tmp_path / "cells.h5ad")
    cells = read_cells(tmp_path / "cells.h5ad", card=CARD)
    data.obs["condition"] = ["ctrl", "B+A", "ctrl+B"]
    assert cells.data_sha256 == from_anndata(data, card=CARD).data_sha256
    data.X[0, 0] = 0.75
    assert cells.data_sha256 != from_anndata(data, card=CARD).data_sha256
    assert cells.without([pair("A", "B")]).data_sha256 == cells.select([0, 2]).data_sha256
    with pytest.raises(DataError, match="no file"):
        read_cells(tmp_path / "none.h5ad")


def test_real_files_of_both_forms(norman):
    devel, schema = (read_cells(norman / name) for name in ("devel.h5ad", "gears_schema_tiny.h5ad"))
    assert devel.X.shape == (3375, 500)
    assert sum(c.double for c in devel.perturbations) == 15
    assert pair("KLF1", "SET") in devel.rows
    assert devel.card == NORMAN_CARD
    assert len(devel.rows[Condition(())]) == 100
    assert len(schema.rows) == 42


@pytest.fixture
def norman(pytestconfig):
    folder = pytestconfig.rootpath.parent / "shared" / "data" / "norman"
    if not (folder / "devel.h5ad").is_file():
        pytest.skip(f"real data not found in {folder}")
    return folder

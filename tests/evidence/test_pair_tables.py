import numpy as np
import pytest

from evidence.errors import DataError
from evidence.pair_tables import read_curves, read_pair_rows, read_smiles, read_synergy, totals

C04 = "drug_a,drug_b,n_cells\nNone,Dasatinib,4\nNA,Panobinostat,3\nGivinostat,None,5\n"


def test_c04_texts_that_look_missing_stay_rows_and_names(tmp_path):
    (tmp_path / "pairs.csv").write_text(C04)
    rows = read_pair_rows(tmp_path / "pairs.csv", "n_cells")
    assert [row.drugs for row in rows] == [("Dasatinib",), ("NA", "Panobinostat"), ("Givinostat",)]
    assert sum(row.value for row in rows) == 12
    assert totals(rows) == {"Dasatinib": 4, "Givinostat": 5, "NA": 3, "Panobinostat": 3}
    assert "nan" not in str(rows)


def test_repeated_pairs_are_averaged_in_either_order_and_counted(tmp_path):
    (tmp_path / "s.tsv").write_text(
        "drug_a\tdrug_b\tcell_line\tscore\tfold\nB\tA\tL1\t1\t0\nA\tB\tL1\t3\t1\nA\tB\tL2\t5\t1\nNA\tB\tL1\t7\t0\n"
    )
    found = read_synergy(tmp_path / "s.tsv")
    assert found.pairs == (("A", "B"), ("B", "NA"))
    np.testing.assert_array_equal(found.scores, [[2, 5], [7, np.nan]])
    assert found.repeats == {("A", "B"): (2.0,)}
    assert found.report == (
        "4 rows, 2 pairs, 2 lines",
        "1 pairs and lines have several rows; their scores are averaged",
    )


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("None\tA\tL1\t1\t0", "1 rows with one drug have no synergy: rows 3"),
        ("A\tA\tL1\t1\t0", r"row 3: expected two different drugs"),
        ("\tA\tL1\t1\t0", r"row 3: expected two different drugs"),
        ("None\tNone\tL1\t1\t0", r"row 3: expected two different drugs"),
        ("A\tC\tL1\tnan\t0", r"row 3: expected a finite number, got 'nan'"),
        ("A\tC\tL1\tNA\t0", r"row 3: expected a finite number, got 'NA'"),
        ("A\tC\tL1", r"row 3 has another number of cells"),
    ],
)
def test_a_bad_row_is_refused_by_its_number(tmp_path, row, problem):
    (tmp_path / "s.tsv").write_text(f"drug_a\tdrug_b\tcell_line\tscore\tfold\nA\tB\tL1\t1\t0\n{row}\n")
    with pytest.raises(DataError, match=problem):
        read_synergy(tmp_path / "s.tsv")


def test_a_table_without_a_column_or_file_is_refused(tmp_path):
    with pytest.raises(DataError, match="no file"):
        read_synergy(tmp_path / "s.tsv")
    (tmp_path / "s.tsv").write_text("a\tb\n")
    with pytest.raises(DataError, match="no drug_a, drug_b, score, cell_line"):
        read_synergy(tmp_path / "s.tsv")


def test_the_published_tables(root):
    folder = root.parent / "shared" / "data" / "drug_pairs"
    if not folder.is_dir():
        pytest.skip(f"needs O'Neil's tables at {folder}")
    found = read_synergy(folder / "oneil_synergy.tsv")
    assert (len(found.pairs), len(found.lines), sum(map(len, found.repeats.values()))) == (583, 39, 315)
    curves, smiles = (
        read_curves(folder / "oneil_single_agent_dose_response.csv"),
        read_smiles(folder / "oneil_smiles.csv"),
    )
    drugs = {drug.upper() for pair in found.pairs for drug in pair}
    assert drugs == {drug for drug, _ in curves} == set(smiles)
    assert len(curves["5-FU", "A2058"]) == 8

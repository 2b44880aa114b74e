from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evidence import sachs
from evidence.errors import ConfigError, DataError
from evidence.sachs import make_cells, open_cells, read_text, transform
from evidence.sachs_conditions import FLUORESCENCE, LEVELS, PROTEINS, by_target_number, condition, protein
from evidence.sachs_tables import Sheet, parse, read_sheet

HEADER = "praf,pmek,plcg,PIP2,PIP3,p44/42,pakts473,PKA,PKC,P38,pjnk"
COUNTS = (853, 902, 911, 723, 810, 799, 848, 913, 707)


def fake_sheet(path: Path) -> Sheet:
    row: list[str | float] = [float(n) for n in range(1, 12)]
    return Sheet(path.name, [list(HEADER.split(",")), row, list(row)])


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).write_bytes(b"")
    return folder


def table(path: Path, *rows: str, header: str = HEADER) -> Path:
    path.write_text("\n".join((header, *rows)) + "\n")
    return path


# --- real files --------------------------------------------------------------------------------------------------


def test_csv_and_xls_give_the_same_hash(sachs_folder: Path, real_cells: sachs.SachsCells) -> None:
    if not (sachs_folder / "original_xls").is_dir():
        pytest.skip(f"no original_xls in {sachs_folder}")
    original = open_cells(sachs_folder / "original_xls")
    assert original.data_sha256 == real_cells.data_sha256
    assert np.array_equal(original.values, real_cells.values)
    assert original.report[3] == "4. cd3cd28+g0076.xls -> condition g0076, 723 rows (published 723)"


def test_real_cells_have_the_published_conditions(real_cells: sachs.SachsCells) -> None:
    assert tuple(len(real_cells.rows(entry.id)) for entry in FLUORESCENCE) == COUNTS
    assert real_cells.values.shape == (7466, 11)
    assert float(np.median(real_cells.values[real_cells.rows("g0076"), PROTEINS.index("Mek")])) == 422
    assert not real_cells.values.flags.writeable


def test_bnlearn_levels(sachs_folder: Path) -> None:
    if not (sachs_folder / "sachs.interventional.txt").is_file():
        pytest.skip(f"no sachs.interventional.txt in {sachs_folder}")
    levels = open_cells(sachs_folder, "levels")
    assert {entry.id: len(levels.rows(entry.id)) for entry in LEVELS} == {e.id: e.n_cells for e in LEVELS}
    assert set(np.unique(levels.values)) == {1.0, 2.0, 3.0}
    with pytest.raises(DataError, match="expected fluorescence, got levels"):
        open_cells(sachs_folder / "sachs.interventional.txt")


# --- S03: the folder of original tables ---------------------------------------------------------------------------


def test_s03_reports_every_file_and_lists_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sachs, "read_sheet", fake_sheet)
    touch(tmp_path, "10. cd3cd28icam2+aktinhib.xls", "2. cd3cd28icam2.xls", "1. cd3cd28.xls", "~$1. cd3cd28.xls")
    touch(tmp_path, "notes.txt")
    with pytest.raises(DataError) as caught:
        open_cells(tmp_path)
    message = str(caught.value)
    missing = "3. aktinhib, 4. g0076, 5. psitect, 6. u0126, 7. ly, 8. pma, 9. b2camp"
    assert f"missing of the nine: {missing}" in message
    order = ["1. cd3cd28.xls -> condition cd3cd28, 2 rows", "2. cd3cd28icam2.xls -> condition cd3cd28icam2, 2 rows"]
    order.append("10. cd3cd28icam2+aktinhib.xls -> left out")
    assert sorted(order, key=message.index) == order
    assert "~$1. cd3cd28.xls -> ignored (lock or hidden file)" in message
    assert "notes.txt -> ignored (not a table)" in message


def test_s03_unknown_repeated_and_wrong_kind_of_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sachs, "read_sheet", fake_sheet)
    touch(tmp_path, "1. cd3cd28.xls", "7. cd3cd28.xls", "3. cd3cd28+aktinhibb.xls", "8. pma.xlsx")
    with pytest.raises(DataError) as caught:
        open_cells(tmp_path)
    message = str(caught.value)
    assert "3. cd3cd28+aktinhibb.xls: unknown table" in message
    assert "7. cd3cd28.xls: condition cd3cd28 is also in 1. cd3cd28.xls" in message
    assert "8. pma.xlsx: expected .xls tables, got .xlsx" in message


def test_s03_nine_tables_in_any_spelling_of_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sachs, "read_sheet", fake_sheet)
    names = [e.id if e.baseline or n > 7 else f"cd3cd28+{e.id}" for n, e in enumerate(FLUORESCENCE, start=1)]
    names[6] = "cd3cd28+ly294002"
    touch(tmp_path, *(f"{n}. {name}.xls" for n, name in enumerate(names, start=1)))
    read = open_cells(tmp_path)
    assert [str(c) for c in dict.fromkeys(read.condition)] == [entry.id for entry in FLUORESCENCE]


def test_a_damaged_xls_is_a_data_error(tmp_path: Path) -> None:
    path = tmp_path / "1. cd3cd28.xls"
    path.write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 cut short")
    with pytest.raises(DataError, match=r"1\. cd3cd28\.xls: expected an \.xls table"):
        read_sheet(path)
    with pytest.raises(DataError, match="expected the folder of the nine tables"):
        open_cells(path)


# --- S04: zero and negative values --------------------------------------------------------------------------------


def test_s04_log_of_values_that_are_not_positive_is_refused() -> None:
    praf = np.array([-3.2, 0.0, 1.0, 250.0])
    with pytest.raises(DataError) as caught:
        transform(praf, "log")
    message = str(caught.value)
    assert "2 values are not positive (rows 1, 2)" in message
    assert "arcsinh(x/cofactor)" in message
    assert "log(x+c)" in message
    assert np.allclose(transform(praf, "arcsinh", 5), [-0.603, 0.0, 0.199, 4.605], atol=5e-4)
    assert np.allclose(transform(praf, "log_plus", 4), np.log(praf + 4))
    with pytest.raises(DataError, match=r"a c larger than 3\.2"):
        transform(praf, "log_plus", 3)
    with pytest.raises(ConfigError, match="positive cofactor"):
        transform(praf, "arcsinh", 0.0)
    assert np.array_equal(transform(praf, "none"), praf)


# --- S05: decimal commas and other cells that are no numbers ------------------------------------------------------


def test_s05_decimal_commas_are_refused(tmp_path: Path) -> None:
    path = table(tmp_path / "cells.csv", "26,4;13,2", "35,9;16,5", header="praf;pmek")
    with pytest.raises(DataError) as caught:
        open_cells(path)
    message = str(caught.value)
    assert "cells.csv: " in message
    assert "column praf is not numeric: 26,4 (row 2)" in message
    assert "columns missing: Plcg" in message


@pytest.mark.parametrize("bad", ["", "nan", "inf", "1e999", "1_0", "0x1", "1,5", "٣", "-"])
def test_cells_that_are_no_numbers_are_refused(bad: str) -> None:
    sheet = fake_sheet(Path("a.xls"))
    sheet.rows[2][8] = bad
    with pytest.raises(DataError, match=r"a\.xls: column PKC is not numeric: .* \(row 3\)"):
        parse(sheet)


def test_columns_in_any_order_and_spelling_give_one_hash(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(1, 99, size=(4, 11)).astype(float)
    plain = [",".join(f"{x:g}" for x in row) + ",pma" for row in values]
    turned = [",".join(f"{x:g}" for x in row[::-1]) + ",pma" for row in values]
    names = "Jnk,p38,PKC,pka,Akt,Erk,pip3,pip2,plc,Mek,Raf"
    first = read_text(table(tmp_path / "a.csv", *plain, header=HEADER + ",condition"))
    second = read_text(table(tmp_path / "b.csv", *turned, header=names + ",condition"))
    assert first.data_sha256 == second.data_sha256
    assert np.array_equal(first.values, values)


def test_wrong_columns_and_ragged_rows_are_named() -> None:
    sheet = fake_sheet(Path("a.xls"))
    sheet.rows[0][0] = "mek"
    sheet.rows[0][1] = "GFP"
    sheet.rows[2].pop()
    with pytest.raises(DataError) as caught:
        parse(sheet)
    message = str(caught.value)
    assert "column 'GFP' is none of the 11 proteins" in message
    assert "columns missing: Raf" in message
    assert "row 3: expected 11 cells, got 10" in message


def test_a_csv_without_labels_needs_the_published_number_of_rows(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected 7466 rows \(853 \+ 902.*got 1"):
        open_cells(table(tmp_path / "cyto_full_data.csv", ",".join("1" * 11)))


def test_levels_are_1_2_3_and_int_is_known(tmp_path: Path) -> None:
    header = "Raf Mek Plcg PIP2 PIP3 Erk Akt PKA PKC P38 Jnk INT"
    path = tmp_path / "sachs.interventional.txt"
    read = read_text(table(path, "1 1 1 1 2 2 1 3 1 2 1 8", "1 1 1 1 2 2 1 1 1 2 1 0", header=header))
    assert read.kind == "levels"
    assert read.condition.tolist() == ["int_none", "int_pka"]
    with pytest.raises(DataError, match=r"column Mek, row 2: expected a level 1, 2 or 3, got 4"):
        read_text(table(path, "1 4 1 1 2 2 1 3 1 2 1 8", header=header))
    with pytest.raises(DataError, match=r"column INT, row 2: no entry for the condition INT 3"):
        read_text(table(path, "1 1 1 1 2 2 1 3 1 2 1 3", header=header))


# --- S07: reagents and targets ------------------------------------------------------------------------------------


def test_s07_directions_and_the_unmeasured_target() -> None:
    assert [entry.id for entry in FLUORESCENCE if entry.baseline] == ["cd3cd28", "cd3cd28icam2"]
    assert (condition("cd3cd28+aktinhib").target, condition("pma").action) == ("Akt", "activate")
    assert condition("pma").words == "PMA (PKC activator): PKC activated"
    assert "inhibit" not in condition("b2camp").words
    assert "without CD3/CD28" in condition("pma").note
    ly = condition("cd3cd28+ly294002")
    assert ly.proxy
    assert ly.target == "PIP3"
    assert "PI3K, which is not among the 11 measured" in ly.note
    assert "stand-in" in ly.words
    assert [entry.id for entry in FLUORESCENCE if entry.proxy] == ["ly"]


def test_s07_a_condition_without_entry_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no entry for the condition 'cd3cd28\+wortmannin'"):
        condition("cd3cd28+wortmannin")
    with pytest.raises(DataError, match="no entry for the condition INT 1"):
        by_target_number(1)
    row = ",".join("1" * 11)
    path = table(tmp_path / "a.csv", f"{row},pma", f"{row},heat", header=HEADER + ",condition")
    with pytest.raises(DataError, match=r"a\.csv: column condition, row 3: no entry for the condition 'heat'"):
        read_text(path)


def test_bnlearn_pkc_pools_both_directions() -> None:
    pooled = by_target_number(9)
    assert (pooled.target, pooled.action) == ("PKC", "mixed")
    assert "g0076" in pooled.note
    assert by_target_number(0).baseline


def test_every_published_column_is_known() -> None:
    assert tuple(protein(column) for column in HEADER.split(",")) == PROTEINS
    assert protein("GFP") is None


# --- the canonical hash -------------------------------------------------------------------------------------------


def test_the_hash_sees_values_and_conditions() -> None:
    values = np.arange(1.0, 23.0).reshape(2, 11)
    first = make_cells(values, ["pma", "ly"], "fluorescence", Path("a"))
    assert first.condition.tolist() == ["ly", "pma"]
    assert first.data_sha256 == make_cells(values[::-1], ["ly", "pma"], "fluorescence", Path("b")).data_sha256
    assert first.data_sha256 != make_cells(values, ["pma", "u0126"], "fluorescence", Path("a")).data_sha256
    assert first.data_sha256 != make_cells(values + 1, ["pma", "ly"], "fluorescence", Path("a")).data_sha256
    with pytest.raises(DataError, match="expected conditions of levels"):
        make_cells(values, ["pma", "ly"], "levels", Path("a"))
    with pytest.raises(DataError, match="expected values of shape"):
        make_cells(values[:, :3], ["pma", "ly"], "fluorescence", Path("a"))

import numpy as np
import pytest

from evidence.errors import DataError
from simulators.response_table import Provenance, load_table, make_table, save_table

PROVENANCE = Provenance(simulator="gears", data_sha256="0" * 64, held_out=("A+B",), synthetic=True)
NAMES, GENES = ("A", "A+B", "B"), ("G1", "G2")
MEMBERS = np.arange(12, dtype=float).reshape(2, 3, 2) ** 2


def table(**change):
    return make_table(NAMES, GENES, MEMBERS, unit="log1p", provenance=PROVENANCE, **change)


def test_a_table_comes_back_as_it_was(tmp_path):
    save_table(table(), tmp_path / "deep" / "t.npz")
    back = load_table(tmp_path / "deep" / "t.npz")
    assert back.sha256 == table().sha256
    assert back.provenance == PROVENANCE
    np.testing.assert_array_equal(back.members, MEMBERS)
    np.testing.assert_array_equal(back.sd, MEMBERS.std(axis=0, ddof=1))
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["t.npz"]


def test_a_changed_or_foreign_file_is_refused(tmp_path):
    path = tmp_path / "t.npz"
    save_table(table(), path)
    with np.load(path) as file:
        arrays = {name: file[name].copy() for name in file.files}
    arrays["mean"][0, 0] += 1
    np.savez_compressed(path, **arrays)
    with pytest.raises(DataError, match="was changed"):
        load_table(path)
    for bad in (b"<html>", b"", b"PK\x03\x04"):
        path.write_bytes(bad)
        with pytest.raises(DataError, match="not a response table"):
            load_table(path)
    np.savez_compressed(path, header=np.array([{"a": 1}], dtype=object))
    with pytest.raises(DataError, match="not a response table"):
        load_table(path)
    with pytest.raises(DataError, match="no response table"):
        load_table(tmp_path / "none.npz")


def test_readouts_are_weighted_sums_with_the_sd_of_the_members():
    readouts = table().project({"p": {"G1": 0.25, "G2": 0.75}})
    each = MEMBERS @ [0.25, 0.75]
    np.testing.assert_allclose(readouts.mean[:, 0], each.mean(axis=0))
    np.testing.assert_allclose(readouts.sd[:, 0], each.std(axis=0, ddof=1))
    with pytest.raises(DataError, match="no column for G9"):
        table().project({"p": {"G9": 1.0}})


def test_an_interaction_is_taken_inside_each_member():
    found = table().interaction("A+B", ("A", "B"))
    each = MEMBERS[:, 1] - MEMBERS[:, 0] - MEMBERS[:, 2]
    np.testing.assert_allclose(found.mean, each.mean(axis=0))
    np.testing.assert_allclose(found.sd, each.std(axis=0, ddof=1))
    with pytest.raises(DataError, match=r"'A\+C'"):
        table().interaction("A+C", ("A", "C"))


def test_published_means_without_members_have_no_sd():
    means = make_table(NAMES, GENES, np.empty((0, 3, 2)), mean=MEMBERS[0], unit="log1p", provenance=PROVENANCE)
    assert means.sd is None
    assert means.estimate("A").sd is None
    assert means.interaction("A+B", ("A", "B")).sd is None
    with pytest.raises(DataError, match="no members"):
        make_table(NAMES, GENES, np.empty((0, 3, 2)), unit="log1p", provenance=PROVENANCE)
    with pytest.raises(DataError, match="expected members of shape"):
        make_table(NAMES, GENES, MEMBERS[0], unit="log1p", provenance=PROVENANCE)
    with pytest.raises(DataError, match="finite"):
        make_table(NAMES, GENES, MEMBERS * np.nan, unit="log1p", provenance=PROVENANCE)

"""BBBC021: tables, joins, legality, and pixels from windows, folders, zips and the twin."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from evidence.bbbc021 import content_hash, open_source
from evidence.bbbc021_plates import Plates, read_tiff
from evidence.bbbc021_tables import Field, Treatment, evaluable, folder_of, join_labels, legal_references, same_dose
from evidence.errors import DataError

tifffile = pytest.importorskip("tifffile", reason="needs the images extra: pip install -e '.[images]'")

SHARED = Path(__file__).parents[3] / "shared" / "data" / "bbbc021"
real = pytest.mark.skipif(not SHARED.is_dir(), reason=f"needs real BBBC021 files at {SHARED}")
HEAD = (
    "TableNumber,ImageNumber,Image_FileName_DAPI,Image_PathName_DAPI,Image_FileName_Tubulin,Image_PathName_Tubulin,"
    "Image_FileName_Actin,Image_PathName_Actin,Image_Metadata_Plate_DAPI,Image_Metadata_Well_DAPI,Replicate,"
    "Image_Metadata_Compound,Image_Metadata_Concentration\n"
)
LABEL = [("taxol", "0.3", "Microtubule stabilizers"), ("DMSO", "0.0", "DMSO")]


def test_b04_only_the_labelled_dose_is_eligible():
    joined = join_labels([("taxol", "0.3"), ("taxol", "3.0"), ("DMSO", "0.0"), ("nocodazole", "1.0")], LABEL)
    assert [t.moa for t in joined.treatments] == ["Microtubule stabilizers", None, None, None]
    assert (joined.report.matched, joined.report.unlabelled, joined.report.control) == (1, 2, 1)
    assert joined.treatments[2].control


@pytest.mark.parametrize("as_float32", [False, True])
def test_b05_doses_join_by_tolerance_never_by_the_nearest(as_float32):
    texts = ["0.3", "3e-1", "0.30000000000000004", "0.1"]
    doses = [np.float32(t) for t in texts] if as_float32 else texts
    joined = join_labels([("taxol", d) for d in doses], LABEL)
    assert [t.moa is not None for t in joined.treatments] == [True, True, True, False]
    assert joined.report.words() == "3 matched, 1 unlabelled, 0 control"


def test_doses_that_differ_a_little_more_do_not_join():
    assert not same_dose(0.3, 0.30001)
    with pytest.raises(DataError, match="row 2"):
        join_labels([("taxol", "0.3"), ("taxol", "low")], LABEL)
    with pytest.raises(DataError, match="two mechanisms"):
        join_labels([], [("taxol", "0.3", "A"), ("taxol", "3e-1", "B")])


def test_b06_legal_references_and_what_is_not_evaluable():
    rows = [("X", 0.1, "Aurora", "W1"), ("X", 0.3, "Aurora", "W2"), ("Y", 1.0, "Aurora", "W1"), ("Z", 0.5, "Eg5", "W2")]
    fields = [Field(f"{week}_1", f"B0{n}", "1", Treatment(c, d, moa)) for n, (c, d, moa, week) in enumerate(rows, 1)]
    fields.append(Field("W1_1", "B05", "1", Treatment("DMSO", 0.0, None)))

    def numbers(rule):
        return {fields.index(f) + 1 for f in legal_references(fields[0], fields, rule)}

    assert numbers("compound") == {3, 4}
    assert numbers("compound_batch") == {4}
    assert numbers("compound_plate") == {4}
    assert evaluable(fields[0], fields, "compound")
    assert not evaluable(fields[0], fields, "compound_batch")


def test_b03_slashes_lean_either_way():
    assert {folder_of(p) for p in ("Week1\\Week1_22123", "Week1/Week1_22123/", "Week1_22123")} == {"Week1_22123"}
    with pytest.raises(DataError):
        folder_of("Week1/../..")


@pytest.fixture
def plate(tmp_path: Path) -> Path:
    """Two whole fields, one with its table path in backslashes, and one that lacks a file."""
    rng = np.random.default_rng(0)
    rows = []
    for site, path in (("1", "Week1\\Week1_22123"), ("2", "Week1/Week1_22123/"), ("3", "Week1/Week1_22123")):
        names = {c: f"G10_s{site}_w{w}{c}-UUID-{site}.tif" for c, w in (("DAPI", 1), ("Tubulin", 2), ("Actin", 4))}
        for number, (channel, name) in enumerate(names.items()):
            if (site, channel) != ("3", "DAPI"):
                image = rng.integers(200, 260, size=(200, 220)).astype(np.uint16)
                image[90:115, 100:125] += np.uint16(3000 + number)
                (tmp_path / "Week1_22123").mkdir(exist_ok=True)
                tifffile.imwrite(tmp_path / "Week1_22123" / name, image)
        cells = [c for n in ("DAPI", "Tubulin", "Actin") for c in (names[n], path)]
        rows.append(",".join(["1", site, *cells, "Week1_22123", "G10", "1", "taxol", "0.3"]))
    (tmp_path / "BBBC021_v1_image.csv").write_text(HEAD + "\n".join(rows) + "\n")
    (tmp_path / "BBBC021_v1_moa.csv").write_text("compound,concentration,moa\ntaxol,0.3,Microtubule stabilizers\n")
    return tmp_path


def test_b03_all_missing_files_are_reported_together(plate: Path):
    source = Plates.open(plate)
    source.check(source.fields[:2])
    (next((plate / "Week1_22123").glob("G10_s2_w4*"))).unlink()
    with pytest.raises(DataError, match="2 image files are missing") as caught:
        source.check(source.fields)
    assert "table row 2, Actin: Week1_22123/G10_s2_w4Actin-UUID-2.tif" in str(caught.value)
    assert "table row 3, DAPI: Week1_22123/G10_s3_w1DAPI-UUID-3.tif" in str(caught.value)
    assert str(plate) in str(caught.value)


def test_channels_pair_through_the_table_and_a_zip_gives_the_same(plate: Path):
    source = Plates.open(plate)
    field = source.fields[0]
    image = source.image(field)
    assert image.shape == (200, 220, 3)
    assert [int(image[100, 110, c]) // 100 for c in range(3)] == [32, 32, 32]
    windows = source.windows(field)
    assert windows.shape == (1, 68, 68, 3)
    before = content_hash(source, source.fields[:2])
    archive = plate / "BBBC021_v1_images_Week1_22123.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted((plate / "Week1_22123").iterdir()):
            file.write(path, f"Week1_22123/{path.name}")
    shutil.rmtree(plate / "Week1_22123")
    zipped = Plates.open(plate)
    assert content_hash(zipped, zipped.fields[:2]) == before


def test_a_file_that_is_no_tiff_is_named():
    with pytest.raises(DataError, match=r"a\.tif: expected a TIFF"):
        read_tiff(b"<html>not found</html>", "a.tif")


@real
def test_a_real_window_lies_bit_for_bit_in_its_field():
    crops, plates = open_source("crops", SHARED), open_source("plates", SHARED)
    field = next(f for f in crops.fields if f.id == "Week2_24381/B02/2")
    (window,) = crops.windows(field)
    image = plates.image(field)  # type: ignore[attr-defined]
    assert image.shape == (1024, 1280, 3)
    assert image.dtype == np.uint16
    assert np.array_equal(image[565 : 565 + 68, 1139 : 1139 + 68], window)


@real
def test_real_tables_and_the_field_that_lacks_actin():
    source = Plates.open(SHARED)
    assert (source.report.matched, source.report.unlabelled, source.report.control) == (2528, 9352, 1320)
    ids = ["Week2_24381/B02/1", "Week2_24381/B02/2"]
    assert [f.id for f in source.fields if f.plate == "Week2_24381" and f.well == "B02" and f.site in "12"] == ids
    third = next(f for f in source.fields if f.id == "Week2_24381/B02/3")
    with pytest.raises(DataError, match="1 image files are missing.*\n  table row .*, Actin: Week2_24381/Week2_180607"):
        source.check([third])
    assert all(len(source.windows(f)) == 24 for f in source.fields if f.id in ids)


@real
def test_real_windows_join_with_the_label_table():
    source = open_source("crops", SHARED)
    assert source.report.words().startswith("1869 matched, 0 unlabelled, 127 control")
    assert len(source.fields) == 1067
    assert sum(len(source.windows(f)) for f in source.fields) == 1996

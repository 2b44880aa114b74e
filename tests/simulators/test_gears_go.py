import gzip
import importlib.metadata
import json
import pickle
import subprocess
import sys

import pytest

from evidence.errors import ConfigError, DataError
from simulators.gears import compat
from simulators.gears.go import Edge, make_go, read_go

GENE2GO = {"A": ["GO:1", "GO:2"], "B": ["GO:2", "GO:3"], "C": ["GO:9"]}


def test_the_same_annotations_in_every_form_have_one_hash(tmp_path):
    (tmp_path / "go.json").write_text(json.dumps(GENE2GO))
    (tmp_path / "go.json.gz").write_bytes(gzip.compress(json.dumps(GENE2GO).encode()))
    (tmp_path / "go.pkl").write_bytes(pickle.dumps({gene: set(terms) for gene, terms in GENE2GO.items()}))
    assert len({read_go(tmp_path / name).sha256 for name in ("go.json", "go.json.gz", "go.pkl")}) == 1


def test_edges_are_jaccard_indices_above_a_tenth():
    edges = make_go(GENE2GO, source="test").graph(["C", "B", "A"])
    assert edges == (
        *(Edge("A", "A", 1.0), Edge("A", "B", pytest.approx(1 / 3))),
        *(Edge("B", "A", pytest.approx(1 / 3)), Edge("B", "B", 1.0), Edge("C", "C", 1.0)),
    )
    with pytest.raises(DataError, match="no GO annotation for D"):
        make_go(GENE2GO, source="test").graph(["A", "D"])


def test_gears_originals_bring_their_own_edges(tmp_path):
    with pytest.raises(DataError, match=r"no gene2go_all\.pkl"):
        read_go(tmp_path)
    (tmp_path / "gene2go_all.pkl").write_bytes(pickle.dumps({gene: set(terms) for gene, terms in GENE2GO.items()}))
    (tmp_path / "go_essential_all").mkdir()
    table = tmp_path / "go_essential_all" / "go_essential_all.csv"
    table.write_text("source,target,importance\nA,B,0.5\nA,Z,0.2\n")
    assert read_go(tmp_path).graph(["A", "B"]) == (Edge("A", "B", 0.5),)
    table.write_text("<html>")
    assert read_go(tmp_path).edges == ()
    table.write_text("source,goal\nA,B\n")
    with pytest.raises(DataError, match="expected the columns"):
        read_go(tmp_path)


class _Run:
    def __reduce__(self):
        return (print, ("run",))


def test_a_pickle_runs_nothing(tmp_path, capsys):
    (tmp_path / "go.pkl").write_bytes(pickle.dumps({"A": _Run()}))
    with pytest.raises(DataError, match=r"builtins\.print: refused"):
        read_go(tmp_path / "go.pkl")
    (tmp_path / "go.pkl").write_bytes(b"<html>503</html>")
    with pytest.raises(DataError, match="saved error page"):
        read_go(tmp_path / "go.pkl")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("content", ["[1, 2]", "{}", '{"A": "GO:1"}', '{"A": ', "<html>"])
def test_json_that_is_no_annotation_is_refused(tmp_path, content):
    (tmp_path / "go.json").write_text(content)
    with pytest.raises(DataError, match=r"go\.json"):
        read_go(tmp_path / "go.json")


def test_a_missing_package_names_the_install_line(monkeypatch):
    def version(name):
        if name == "cell-gears":
            raise importlib.metadata.PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(
        ConfigError, match=r'cell-gears, which is not installed\. Install it with: pip install -e "\.\[gears\]"'
    ):
        compat.require()
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "9.9")
    with pytest.raises(ConfigError, match=r"expected cell-gears 0\.1\.2, got 9\.9"):
        compat.require()


def test_naming_gears_imports_neither_torch_nor_gears():
    code = "import sys, simulators.gears, simulators.gears.go; print({'torch', 'gears', 'scanpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"

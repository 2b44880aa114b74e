from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest

from evidence import sachs_graphs
from evidence.errors import ConfigError, DataError
from evidence.sachs_conditions import PROTEINS, protein
from evidence.sachs_graphs import GRAPHS, build_graph, named_graph, read_graph, resolve_graph


def graph_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "reference.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(("name", "n_edges"), [("sachs17", 17), ("sachs18", 18), ("sachs20", 20)])
def test_named_graphs(name: str, n_edges: int) -> None:
    graph = named_graph(name)
    assert graph.graph["name"] == name
    assert graph.graph["source"]
    assert tuple(graph) == PROTEINS
    assert graph.number_of_edges() == GRAPHS[name].n_edges == n_edges
    assert nx.is_directed_acyclic_graph(graph)


def test_sachs20_is_the_published_file(sachs_folder: Path) -> None:
    path = sachs_folder / "graphs" / "sachs.2005.ground.truth.graph.txt"
    if not path.is_file():
        pytest.skip(f"no {path}")
    lines = [line.split(". ", 1)[1].split(" --> ") for line in path.read_text().splitlines() if " --> " in line]
    assert {(protein(a), protein(b)) for a, b in lines} == set(GRAPHS["sachs20"].edges)


def test_sachs18_is_cdts_file_with_one_edge_turned(sachs_folder: Path) -> None:
    path = sachs_folder / "cyto_full_target.csv"
    if not path.is_file():
        pytest.skip(f"no {path}")
    rows = [line.replace('"', "").split(",") for line in path.read_text().splitlines()[1:]]
    theirs = {(protein(a), protein(b)) for a, b in rows}
    ours = set(GRAPHS["sachs18"].edges)
    assert theirs - ours == {("PIP2", "PIP3")}
    assert ours - theirs == {("PIP3", "PIP2")}
    assert "PIP3 -> PIP2" in GRAPHS["sachs18"].note


def test_s01_cycle_and_repeated_row_in_one_message(tmp_path: Path) -> None:
    text = "from,to\nPlcg,PIP3\nPIP3,PIP2\nPIP2,Plcg\nRaf,Mek\nRaf,Mek\n"
    with pytest.raises(DataError) as caught:
        read_graph(graph_file(tmp_path, text))
    assert "cycle Plcg -> PIP3 -> PIP2 -> Plcg" in str(caught.value)
    assert "the edge Raf,Mek is repeated (lines 5, 6)" in str(caught.value)


def test_unknown_nodes_ragged_lines_and_self_loops(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read_graph(graph_file(tmp_path, "from,to\nRaff,Mek\nErk\nAkt,Akt\n"))
    message = str(caught.value)
    assert "line 2: unknown protein 'Raff'. Did you mean 'Raf'?" in message
    assert "line 3: expected two cells, got 1" in message
    assert "cycle Akt -> Akt" in message


@pytest.mark.parametrize("text", ["", "a,b\nRaf,Mek\n", "from,to\n"])
def test_a_file_without_header_or_edges_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match="expected"):
        read_graph(graph_file(tmp_path, text))


def test_a_users_graph_has_all_proteins_and_its_files_name(tmp_path: Path) -> None:
    graph = resolve_graph(str(graph_file(tmp_path, "from,to\n Raf , Mek\n\nMek,Erk\n")))
    assert tuple(graph) == PROTEINS
    assert list(graph.edges) == [("Raf", "Mek"), ("Mek", "Erk")]
    assert graph.graph["name"] == "reference"


def test_the_stated_edge_count_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(GRAPHS["sachs17"], n_edges=18)
    monkeypatch.setattr(sachs_graphs, "GRAPHS", {"sachs17": wrong})
    with pytest.raises(DataError, match="expected 18 edges, got 17"):
        named_graph("sachs17")
    with pytest.raises(ConfigError, match="Did you mean 'sachs17'"):
        named_graph("sachs71")


def test_two_separate_cycles_are_both_named() -> None:
    edges = [("Raf", "Mek"), ("Mek", "Raf"), ("P38", "Jnk"), ("Jnk", "P38")]
    with pytest.raises(DataError) as caught:
        build_graph(edges, name="two")
    assert "cycle P38 -> Jnk -> P38; cycle Raf -> Mek -> Raf" in str(caught.value)

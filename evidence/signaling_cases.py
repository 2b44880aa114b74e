"""Signaling case files: made from cells by the frozen rules, and checked when they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import networkx as nx

from evidence.case_files import frozen_part
from evidence.contracts import Case, CaseFile, Measurement, Perturbation, Readout
from evidence.errors import ConfigError
from evidence.sachs import DATASET_NAMES, SachsCells
from evidence.sachs_conditions import PROTEINS, Condition, conditions
from evidence.sachs_graphs import GRAPHS, named_graph, resolve_graph
from evidence.signaling_rules import (
    RESERVED_CELLS,
    RULES,
    Shape,
    SignalingFrozen,
    baseline_rows,
    choose_interventions,
    choose_readouts,
    find_cuts,
    high_fraction,
    split_cells,
    threshold,
    to_levels,
)

SETTING = "signaling"
UNIT = "fraction of cells"


def freeze(cells: SachsCells, shape: Shape, graph: str = "sachs20", seed: int = 1) -> CaseFile:
    """Make a case file: the published shape (5 interventions x 6 readouts) or the extended one (all x all non-targets).

    graph: the name of a consensus graph, or the path of a CSV of edges. Cuts, readouts and thresholds come from the
    training part of the baseline cells alone; no cell value of an intervention is looked at.
    """
    network = resolve_graph(graph)
    frozen = compute_frozen(cells, shape, network.graph["name"], tuple(network.edges), seed)
    entries = choose_interventions(cells.kind, shape)
    parts = split_cells(cells, seed)
    rows = baseline_rows(parts, cells.kind, "training")
    readouts = choose_readouts(entries, shape, to_levels(cells, frozen.cuts), rows)
    return CaseFile(
        version=1,
        setting=SETTING,
        title=f"Signaling ({shape}): {len(entries)} interventions, Sachs 2005 {cells.kind}, graph {frozen.graph}",
        data={DATASET_NAMES[cells.kind]: cells.data_sha256},
        seed=seed,
        frozen=frozen.model_dump(mode="json"),
        cases=tuple(_case(entry, readouts[entry.id], frozen.thresholds) for entry in entries),
    )


def compute_frozen(
    cells: SachsCells, shape: Shape, graph: str, edges: tuple[tuple[str, str], ...], seed: int
) -> SignalingFrozen:
    """What the rules fix for these cells and this seed."""
    parts = split_cells(cells, seed)
    rows = baseline_rows(parts, cells.kind, "training")
    cuts = find_cuts(cells, rows)
    levels = to_levels(cells, cuts)
    high = {name: high_fraction(levels, rows, name) for name in PROTEINS}
    return SignalingFrozen(
        kind=cells.kind,
        shape=shape,
        graph=graph,
        edges=edges,
        cuts=cuts,
        baseline_high=high,
        thresholds={name: threshold(high[name], len(rows)) for name in PROTEINS},
        reserved_cells=RESERVED_CELLS,
        split={c: {part: len(taken) for part, taken in three._asdict().items()} for c, three in parts.items()},
        rules=dict(RULES),
    )


def check_frozen(case_file: CaseFile, frozen: SignalingFrozen, cells: SachsCells) -> None:
    """Raise ConfigError naming the first field that the rules would fix otherwise for these cells and this seed."""
    expected = compute_frozen(cells, frozen.shape, frozen.graph, frozen.edges, case_file.seed)
    for name in ("split", "cuts", "baseline_high", "thresholds", "reserved_cells"):
        if getattr(frozen, name) != getattr(expected, name):
            raise ConfigError(
                f"case file {case_file.title!r}, field frozen.{name}: not what the rules give for these cells and seed "
                f"{case_file.seed}; freeze the file again instead of editing it"
            )


def read_frozen(case_file: CaseFile) -> SignalingFrozen:
    """The frozen part of a signaling case file, checked. Raises ConfigError naming the field."""
    frozen = frozen_part(case_file, SignalingFrozen)
    problems = [*_graph_problems(frozen), *(p for case in case_file.cases for p in _case_problems(case, frozen))]
    if problems:
        raise ConfigError(f"case file {case_file.title!r}: " + "; ".join(problems))
    return frozen


def _graph_problems(frozen: SignalingFrozen) -> list[str]:
    if len(set(frozen.edges)) != len(frozen.edges):
        return ["frozen.edges: an edge is repeated"]
    graph: nx.DiGraph[str] = nx.DiGraph(frozen.edges)
    if frozen.graph in GRAPHS and set(named_graph(frozen.graph).edges) != set(frozen.edges):
        return [f"frozen.edges are not those of the graph {frozen.graph!r}; freeze the file again"]
    if not set(graph) <= set(PROTEINS):
        return [f"frozen.edges: expected proteins, got {', '.join(sorted(set(graph) - set(PROTEINS)))}"]
    return [] if nx.is_directed_acyclic_graph(graph) else ["frozen.edges: expected an acyclic graph"]


def _case_problems(case: Case, frozen: SignalingFrozen) -> list[str]:
    known = {entry.id: entry for entry in conditions(frozen.kind) if not entry.baseline}
    entry = known.get(case.perturbation.id)
    if entry is None:
        return [f"case {case.id!r}: expected an intervention of {', '.join(known)}, got {case.perturbation.id!r}"]
    problems = [
        f"case {case.id!r}: readout {readout.id!r} has a threshold that is not in frozen.thresholds"
        for readout in case.readouts
        if readout.id not in frozen.thresholds or readout.threshold != frozen.thresholds[readout.id]
    ]
    own = sorted({r.id for r in case.readouts} & set(case.perturbation.targets))
    if own:
        problems.append(f"case {case.id!r}: readout {own[0]!r} is the target of the intervention itself")
    if case.perturbation != perturbation_of(entry):
        problems.append(f"case {case.id!r}: the perturbation is not the table's entry for {entry.id}")
    return problems


def _case(entry: Condition, readouts: Sequence[str], thresholds: Mapping[str, float]) -> Case:
    return Case(
        id=entry.id,
        title=f"{entry.words}, CD4+ T cells",
        perturbation=perturbation_of(entry),
        readouts=tuple(_readout(name, thresholds[name]) for name in readouts),
        menu=tuple(_measurement(name) for name in readouts),
    )


def perturbation_of(entry: Condition) -> Perturbation:
    """The perturbation of one condition of the table. `targets` names the proxy where there is one; `note` says so."""
    targets = (entry.target,) if entry.target else ()
    return Perturbation(id=entry.id, name=entry.words, targets=targets, action=entry.action, note=entry.note)


def _readout(name: str, limit: float) -> Readout:
    words = f"change of the fraction of cells in the high state of {name}, perturbed minus baseline"
    return Readout(id=name, name=name, description=words, threshold=limit, unit=UNIT)


def _measurement(name: str) -> Measurement:
    return Measurement(
        id=f"measure_{name}",
        name=f"Measure {name}",
        description=f"measure the high-state fraction of {name} in {RESERVED_CELLS} reserved cells",
        readout=name,
        cost=1.0,
    )

"""The signaling setting: Sachs 2005, change of the high-state fraction of phosphoproteins under an intervention.

In order: open on cells (split, levels), then what a run asks for: evidence, menu, observation, truth. Case files are
made by `freeze`; the rules are in evidence.signaling_rules and, in words, in every case file under `frozen.rules`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from evidence.cell_split import Parts
from evidence.contracts import (
    Case,
    CaseFile,
    Evidence,
    Measurement,
    Observation,
    Observed,
    Part,
    Prediction,
    Response,
    Table,
    Text,
    Truth,
)
from evidence.discrete import DiscreteCells
from evidence.errors import ConfigError, ContractError, DataError, did_you_mean
from evidence.sachs import DATASET_NAMES, SachsCells, open_cells
from evidence.sachs_conditions import PROTEINS, Kind, condition, conditions
from evidence.signaling_cases import check_frozen, freeze, perturbation_of, read_frozen
from evidence.signaling_rules import (
    Change,
    Levels,
    Shape,
    SignalingFrozen,
    baseline_rows,
    change,
    split_cells,
    to_levels,
)

__all__ = ["Signaling", "freeze"]

SYSTEM = (
    "Primary human CD4+ T cells, single-cell measurements of 11 phosphorylated proteins and phospholipids by "
    "multiparameter flow cytometry (Sachs et al. 2005). Baseline cells were stimulated with anti-CD3/CD28, with or "
    "without ICAM-2. "
)
OPTIONS = ("graph", "kind")
KINDS: Mapping[str, Kind] = {"fluorescence": "fluorescence", "levels": "levels"}
SHAPES: Mapping[str, Shape] = {"published": "published", "extended": "extended"}
LEVEL_WORDS = {
    "fluorescence": "Each protein has three states, low, middle, high: thirds of the baseline cells by fluorescence.",
    "levels": "Each protein has three states, low, average and high, as discretised by the authors of the file.",
}
ASKED = (
    "Asked for is the change of the fraction of cells in the high state, perturbed minus baseline. It counts as up "
    "above the readout's threshold, down below minus the threshold, and near zero between."
)


@dataclass(frozen=True, eq=False)
class Signaling:
    """The setting, opened on a case file and on cells.

    levels: (n, 11) int8 levels of all cells. parts: condition -> disjoint row numbers. Made by `open`.
    """

    case_file: CaseFile
    frozen: SignalingFrozen
    levels: Levels
    parts: Mapping[str, Parts]
    report: tuple[str, ...] = ()

    @classmethod
    def freeze(cls, *, data: Path | None, shape: str, seed: int, options: Mapping[str, str]) -> CaseFile:
        """Read cells and freeze a case file. Options: graph (a name or a .csv path), kind (fluorescence or levels)."""
        unknown = sorted(set(options) - {"graph", "kind"})
        if unknown:
            raise ConfigError(f"no option {unknown[0]!r} for signaling case files.{did_you_mean(unknown[0], OPTIONS)}")
        kind, graph = options.get("kind", "fluorescence"), options.get("graph", "sachs20")
        if kind not in KINDS:
            raise ConfigError(f"option kind: expected fluorescence or levels, got {kind!r}")
        if shape not in SHAPES:
            raise ConfigError(f"shape: expected published or extended, got {shape!r}")
        return freeze(open_cells(data, KINDS[kind]), SHAPES[shape], graph, seed)

    @classmethod
    def open(cls, case_file: CaseFile, data: Path | None) -> Self:
        """Open the case file on cells. Raises DataError if they are not the cells it was frozen on."""
        frozen = read_frozen(case_file)
        cells = open_cells(data, frozen.kind)
        expected = case_file.data.get(DATASET_NAMES[frozen.kind], "nothing")
        if cells.data_sha256 != expected:
            raise DataError(
                f"{cells.path}: expected the cells that the case file {case_file.title!r} was frozen on, sha256 "
                f"{expected}, got {cells.data_sha256}. Use the published cells (`vcloop data`), or freeze a case file "
                "on these cells"
            )
        check_frozen(case_file, frozen, cells)
        return cls.on_cells(case_file, cells)

    @classmethod
    def on_cells(cls, case_file: CaseFile, cells: SachsCells) -> Self:
        """Open on cells already read, without comparing the hash (`open` does)."""
        frozen = read_frozen(case_file)
        parts = split_cells(cells, case_file.seed)
        return cls(case_file, frozen, to_levels(cells, frozen.cuts), parts, cells.report)

    def cases(self) -> tuple[Case, ...]:
        """The cases, in the order of the case file."""
        return self.case_file.cases

    def evidence(self, case: Case, modalities: Sequence[str]) -> Evidence:
        """The system, the perturbation and the graph: the same whatever the outcome.

        Text is always there; "table" adds the baseline and the edges as tables, "figure" the graph as a figure.
        """
        parts: list[Part] = [Text(text=f"{SYSTEM}{LEVEL_WORDS[self.frozen.kind]} {ASKED}"), self._intervention(case)]
        blobs: dict[str, bytes] = {}
        if "table" in modalities:
            parts += [self._baseline_table(case), self._graph_table()]
        if "figure" in modalities:
            from evidence import figures  # matplotlib is slow to import: only runs that show figures pay for it

            image = figures.graph_figure(
                PROTEINS,
                self.frozen.edges,
                targets=case.perturbation.targets,
                mark=condition(case.perturbation.id).mark,
                title=f"Consensus signalling graph {self.frozen.graph}; {case.perturbation.name}",
            )
            caption = f"The graph {self.frozen.graph} ({len(self.frozen.edges)} edges); the target is marked."
            figure, data = figures.figure_part("graph", image, caption)
            parts.append(figure)
            blobs[figure.sha256] = data
        return Evidence(tuple(parts), blobs)

    def observe(self, case: Case, measurement: Measurement, seed: int) -> Observed:
        """The change of one readout in the case's 96 reserved cells. The seed changes nothing: the cells are frozen."""
        if measurement not in case.menu or measurement.readout is None:
            raise ContractError(f"measurement {measurement.id!r} is not on the menu", case=case.id, step="observe")
        found = self._change(case.perturbation.id, measurement.readout, "reserved")
        return Observed(
            Observation(
                measurement=measurement.id,
                readout=measurement.readout,
                value=found.value,
                se=found.se,
                n_cells=found.n_cells,
            ),
            {},
        )

    def truth(self, case: Case) -> tuple[Truth, ...]:
        """The change of every readout in truth cells, against the truth part of the baseline. For scoring only."""
        found = [(readout, self._change(case.perturbation.id, readout.id, "truth")) for readout in case.readouts]
        return tuple(Truth(readout=r.id, label=r.classify(c.value), value=c.value, se=c.se) for r, c in found)

    def training(self) -> DiscreteCells:
        """Training baseline cells as levels, with the graph."""
        rows = baseline_rows(self.parts, self.frozen.kind, "training")
        return DiscreteCells(PROTEINS, self.levels[rows], self.frozen.edges, self.frozen.graph)

    def responses(self, case: Case) -> tuple[Response, ...]:
        """Responses in training cells of every other intervention of the data that shares no target with the case.

        The interventions need not be cases of the file. A readout that an intervention acts on itself is left out.
        """
        others = [entry for entry in conditions(self.frozen.kind) if not entry.baseline]
        return tuple(
            Response(perturbation=perturbation_of(entry), readout=readout.id, value=found.value, se=found.se)
            for entry in others
            if entry.target not in case.perturbation.targets
            for readout in case.readouts
            if readout.id != entry.target
            for found in [self._change(entry.id, readout.id, "training")]
        )

    def baselines(self, case: Case) -> Mapping[str, tuple[Prediction, ...]]:
        """None of its own: the constant row is the scorer's."""
        return {}

    def _change(self, condition_id: str, readout: str, part: Literal["training", "truth", "reserved"]) -> Change:
        baseline = baseline_rows(self.parts, self.frozen.kind, "truth" if part == "truth" else "training")
        return change(self.levels, getattr(self.parts[condition_id], part), baseline, readout)

    def _intervention(self, case: Case) -> Text:
        done = case.perturbation
        note = f" Note: {done.note}." if done.note else ""
        return Text(
            text=f"Intervention: {done.name}.{note} The changes of {', '.join(r.id for r in case.readouts)} are asked. "
            f"Graph: {self.frozen.graph}, {len(self.frozen.edges)} edges, from the literature."
        )

    def _baseline_table(self, case: Case) -> Table:
        high = self.frozen.baseline_high
        rows = tuple((r.id, round(high[r.id], 4), r.threshold) for r in case.readouts)
        return Table(name="baseline", columns=("readout", "baseline high fraction", "threshold"), rows=rows)

    def _graph_table(self) -> Table:
        return Table(name="graph", columns=("from", "to"), rows=self.frozen.edges)

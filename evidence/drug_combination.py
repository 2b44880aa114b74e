"""The drug-combination setting: change of expression programs under held-out pairs of drugs.

In order: open on cells (split), then what a run asks for: evidence, menu, observation, truth. Case files are made by
`freeze`; the rules are in evidence.combination_rules and, in words, in every case file under `frozen.rules`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from evidence.cell_responses import CellResponses, training_cells
from evidence.cell_split import PartName, Parts, training_rows
from evidence.combination_cases import freeze, read_frozen
from evidence.combination_cells import NAMES, CombinationCells, SourceName, open_combinations
from evidence.combination_rules import CombinationFrozen, Shape, drug_effects, naive, split_cells
from evidence.conditions import CONTROL, Condition
from evidence.contracts import Case, CaseFile, Evidence, Part, Prediction, Table, Text
from evidence.errors import ConfigError, did_you_mean
from evidence.expression import CellData, ExpressionPrograms
from evidence.perturbed import PerturbedCells
from evidence.program_cases import ProgramSetting, check_data, named, program_table
from evidence.programs import Effect

__all__ = ["DrugCombination", "freeze"]

SHAPES: Mapping[str, Shape] = {"published": "published", "extended": "extended"}
OPTIONS = ("source", "split_column")
SOURCE_NAMES: Mapping[str, SourceName] = {name: name for name in NAMES}
ASKED = (
    "Asked for is the change of each program's mean score under the pair, against control cells. It counts as up above "
    "the readout's threshold, down below minus the threshold, and near zero between. A score is the weighted mean of "
    "log1p expression over the program's genes."
)


@dataclass(frozen=True, eq=False)
class DrugCombination(ProgramSetting[CombinationFrozen]):
    """The setting, opened on a case file and on cells. parts: condition -> disjoint row numbers. Made by `open`."""

    opened: CombinationCells
    parts: Mapping[Condition, Parts]

    @classmethod
    def freeze(cls, *, data: Path | None, shape: str, seed: int, options: Mapping[str, str]) -> CaseFile:
        """Read cells and freeze a case file. Options: source (twin, combosciplex, combosciplex_prep, norman_devel),
        split_column (an obs column that says which whole pairs are held out: test or ood)."""
        unknown = sorted(set(options) - set(OPTIONS))
        if unknown:
            raise ConfigError(f"no option {unknown[0]!r} for these case files.{did_you_mean(unknown[0], OPTIONS)}")
        source = options.get("source", "twin")
        if source not in SOURCE_NAMES:
            raise ConfigError(f"option source: no source {source!r}.{did_you_mean(source, SOURCE_NAMES)}")
        if shape not in SHAPES:
            raise ConfigError(f"shape: expected published or extended, got {shape!r}")
        opened = open_combinations(SOURCE_NAMES[source], data, options.get("split_column"))
        alone = [c.id for c in opened.held_out or () if not c.double]
        if alone or opened.held_out == ():
            said = f"holds out {', '.join(alone)}, which is no pair" if alone else "holds nothing out"
            raise ConfigError(f"option split_column: {options['split_column']!r} {said}; only pairs can be cases")
        return freeze(opened, SHAPES[shape], seed, held_out=opened.held_out)

    @classmethod
    def open(cls, case_file: CaseFile, data: Path | None) -> Self:
        """Open the case file on cells. Raises DataError if they are not the cells it was frozen on."""
        frozen = read_frozen(case_file)
        opened = open_combinations(frozen.source, data)
        check_data(case_file, opened.cells.data_sha256)
        return cls.on_cells(case_file, opened)

    @classmethod
    def on_cells(cls, case_file: CaseFile, opened: CombinationCells) -> Self:
        """Open on cells already read, without comparing the hash (`open` does)."""
        frozen = read_frozen(case_file)
        return cls(case_file, frozen, opened, split_cells(opened.cells, frozen.pairs, case_file.seed))

    @property
    def report(self) -> tuple[str, ...]:
        """What was set aside when the cells were read, and which combinations are hidden."""
        return (*self.opened.cells.report, f"hidden combinations: {', '.join(self.frozen.held_out)}")

    def evidence(self, case: Case, modalities: Sequence[str]) -> Evidence:
        """The system, the programs, and what each drug does alone where that is known: the same whatever the outcome.

        Text is always there; "table" adds programs and drugs as tables, "figure" the drugs' changes as figures.
        """
        parts: list[Part] = [Text(text=f"{self._system()} {ASKED}"), self._pair(case)]
        blobs: dict[str, bytes] = {}
        if "table" in modalities:
            parts += [self._program_table(case), self._drug_table(case)]
        if "figure" in modalities:
            from evidence import figures  # matplotlib is slow to import: only runs that show figures pay for it

            for drug in self._alone(case):
                values = named(self.frozen.programs, self._responses[drug])
                title = f"{drug.id} alone: measured change"
                image = figures.change_figure(case.readouts, [figures.Series("measured", values)], title=title)
                figure, data = figures.figure_part(drug.id, image, f"{title}, with 95 % intervals.")
                parts.append(figure)
                blobs[figure.sha256] = data
        return Evidence(tuple(parts), blobs)

    def training(self) -> ExpressionPrograms:
        """The frozen programs, what is held out, and the hash of the cells that a simulator may have seen."""
        weights, seen = self.frozen.programs.weights, self._training_cells.data_sha256
        return ExpressionPrograms(weights, "change", self.frozen.held_out, cells_sha256=seen)

    def cell_data(self) -> CellData:
        """Training cells for a simulator (`vcloop simulate`); no cell of a held-out pair is among them."""
        cells, doses = self._training_cells, self.opened.doses
        return CellData(
            cells=cells,
            held_out=self.frozen.pairs,
            wanted=tuple(sorted({*cells.perturbations, *self.frozen.pairs})),
            terms=None,
            synthetic=self.opened.synthetic,
            doses=None if doses is None else tuple(doses[row] for row in training_rows(self.parts)),
            readout_genes=frozenset(gene for p in self.frozen.programs.programs for gene in p.genes),
        )

    def baselines(self, case: Case) -> Mapping[str, tuple[Prediction, ...]]:
        """No change, additive on the log scale, and the mean of the two singles; sd 0: they claim no interval."""
        found = naive(Condition(case.perturbation.targets), drug_effects(self._responses))
        names = [p.id for p in self.frozen.programs.programs]
        by_name = {rule: dict(zip(names, values, strict=True)) for rule, values in found.items()}
        return {
            rule: tuple(Prediction(readout=r.id, mean=float(values[r.id]), sd=0.0) for r in case.readouts)
            for rule, values in by_name.items()
        }

    @cached_property
    def _training_cells(self) -> PerturbedCells:
        return training_cells(self.opened.cells, self.parts)

    @cached_property
    def _known(self) -> CellResponses:
        return CellResponses(self.opened.cells, self.parts, self.frozen.programs)

    @cached_property
    def _responses(self) -> dict[Condition, Effect]:
        """Training condition -> measured change of every program."""
        seen = [c for c, three in self.parts.items() if c != CONTROL and len(three.training) > 1]
        return {condition: self._known.change(condition, "training") for condition in seen}

    def _effect(self, condition: Condition, part: PartName) -> Effect:
        return self._known.change(condition, part)

    def _reserved_cells(self, pair: Condition) -> int | None:
        return self._known.cells(pair)

    def _known_conditions(self) -> tuple[Condition, ...]:
        return tuple(self._responses)

    def _alone(self, case: Case) -> list[Condition]:
        return [c for c in Condition(case.perturbation.targets).singles if c in self._responses]

    def _system(self) -> str:
        card = self.opened.cells.card
        made = "Synthetic data: generated cells. " if self.opened.synthetic else ""
        return f"{made}{card.cell_line} cells, single-cell RNA sequencing; {card.modality}."

    def _pair(self, case: Case) -> Text:
        alone = {c.targets[0] for c in self._alone(case)}
        missing = [drug for drug in case.perturbation.targets if drug not in alone]
        said = f" Not measured alone: {', '.join(missing)}." if missing else ""
        return Text(text=f"Combination: {case.perturbation.name}.{said} No cell treated with this pair has been seen.")

    def _program_table(self, case: Case) -> Table:
        control = {name: round(score, 4) for name, score in self.frozen.control.items()}
        return program_table(case, self.frozen.programs, 8, "control score", control)

    def _drug_table(self, case: Case) -> Table:
        rows = tuple(
            (c.id, name, round(mean, 4), round(se, 4), len(self.parts[c].training))
            for c in self._alone(case)
            for name, (mean, se) in named(self.frozen.programs, self._responses[c]).items()
        )
        return Table(name="each alone", columns=("perturbation", "readout", "change", "se", "cells"), rows=rows)

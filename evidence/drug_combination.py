"""The drug-combination setting: change of expression programs under held-out pairs of drugs.

In order: open on cells (split), then what a run asks for: evidence, menu, observation, truth. Case files are made by
`freeze`; the rules are in evidence.combination_rules and, in words, in every case file under `frozen.rules`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, Self

import numpy as np

from evidence.combination_cases import freeze, perturbation_of, read_frozen
from evidence.combination_cells import NAMES, CombinationCells, SourceName, open_combinations
from evidence.combination_rules import (
    Change,
    CombinationFrozen,
    Parts,
    Shape,
    drug_effects,
    naive,
    split_cells,
    training_rows,
)
from evidence.conditions import CONTROL, Condition, normalise_condition
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
from evidence.errors import ConfigError, ContractError, DataError, did_you_mean
from evidence.expression import CellData, ExpressionPrograms
from evidence.perturbed import PerturbedCells
from evidence.programs import Effect, Scores, response, score_cells

__all__ = ["DrugCombination", "freeze"]

SHAPES: Mapping[str, Shape] = {"published": "published", "extended": "extended"}
SOURCE_NAMES: Mapping[str, SourceName] = {name: name for name in NAMES}
ASKED = (
    "Asked for is the change of each program's mean score under the pair, against control cells. It counts as up above "
    "the readout's threshold, down below minus the threshold, and near zero between. A score is the weighted mean of "
    "log1p expression over the program's genes."
)


@dataclass(frozen=True, eq=False)
class DrugCombination:
    """The setting, opened on a case file and on cells. parts: condition -> disjoint row numbers. Made by `open`."""

    case_file: CaseFile
    frozen: CombinationFrozen
    opened: CombinationCells
    parts: Mapping[Condition, Parts]

    @classmethod
    def freeze(cls, *, data: Path | None, shape: str, seed: int, options: Mapping[str, str]) -> CaseFile:
        """Read cells and freeze a case file. Option: source (twin, combosciplex, combosciplex_prep, norman_devel)."""
        unknown = sorted(set(options) - {"source"})
        if unknown:
            raise ConfigError(f"no option {unknown[0]!r} for these case files.{did_you_mean(unknown[0], ['source'])}")
        source = options.get("source", "twin")
        if source not in SOURCE_NAMES:
            raise ConfigError(f"option source: no source {source!r}.{did_you_mean(source, SOURCE_NAMES)}")
        if shape not in SHAPES:
            raise ConfigError(f"shape: expected published or extended, got {shape!r}")
        return freeze(open_combinations(SOURCE_NAMES[source], data), SHAPES[shape], seed)

    @classmethod
    def open(cls, case_file: CaseFile, data: Path | None) -> Self:
        """Open the case file on cells. Raises DataError if they are not the cells it was frozen on."""
        frozen = read_frozen(case_file)
        opened = open_combinations(frozen.source, data)
        expected = case_file.data.get(frozen.source, "nothing")
        if opened.cells.data_sha256 != expected:
            raise DataError(
                f"{frozen.source}: expected the cells that the case file {case_file.title!r} was frozen on, sha256 "
                f"{expected}, got {opened.cells.data_sha256}. Use those cells, or freeze a case file on these"
            )
        return cls.on_cells(case_file, opened)

    @classmethod
    def on_cells(cls, case_file: CaseFile, opened: CombinationCells) -> Self:
        """Open on cells already read, without comparing the hash (`open` does)."""
        frozen = read_frozen(case_file)
        held_out = [normalise_condition(name) for name in frozen.held_out]
        return cls(case_file, frozen, opened, split_cells(opened.cells, held_out, case_file.seed))

    @property
    def report(self) -> tuple[str, ...]:
        """What was set aside when the cells were read, and which combinations are hidden."""
        return (*self.opened.cells.report, f"hidden combinations: {', '.join(self.frozen.held_out)}")

    def cases(self) -> tuple[Case, ...]:
        """The cases, in the order of the case file."""
        return self.case_file.cases

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
                mean, se = self._responses[drug]
                values = {r.id: (float(m), float(s)) for r, m, s in zip(case.readouts, mean, se, strict=True)}
                title = f"{drug.id} alone: measured change"
                image = figures.change_figure(case.readouts, [figures.Series("measured", values)], title=title)
                figure, data = figures.figure_part(drug.id, image, f"{title}, with 95 % intervals.")
                parts.append(figure)
                blobs[figure.sha256] = data
        return Evidence(tuple(parts), blobs)

    def observe(self, case: Case, measurement: Measurement, seed: int) -> Observed:
        """The change of one program in the pair's reserved cells. The seed changes nothing: the cells are frozen."""
        if measurement not in case.menu or measurement.readout is None:
            raise ContractError(f"measurement {measurement.id!r} is not on the menu", case=case.id, step="observe")
        found = self._changes(normalise_condition(case.perturbation.id), "reserved")[measurement.readout]
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
        """The change of every program in truth cells, against the truth part of the control. For scoring only."""
        found = self._changes(normalise_condition(case.perturbation.id), "truth")
        return tuple(
            Truth(readout=r.id, label=r.classify(found[r.id].value), value=found[r.id].value, se=found[r.id].se)
            for r in case.readouts
        )

    def training(self) -> ExpressionPrograms:
        """The frozen programs, what is held out, and the hash of the cells that a simulator may have seen."""
        weights, seen = self.frozen.programs.weights, self._training_cells.data_sha256
        return ExpressionPrograms(weights, "change", self.frozen.held_out, cells_sha256=seen)

    def cell_data(self) -> CellData:
        """Training cells for a simulator (`vcloop simulate`); no cell of a held-out pair is among them."""
        cells, doses = self._training_cells, self.opened.doses
        held_out = tuple(normalise_condition(name) for name in self.frozen.held_out)
        return CellData(
            cells=cells,
            held_out=held_out,
            wanted=tuple(sorted({*cells.perturbations, *held_out})),
            terms=None,
            synthetic=self.opened.synthetic,
            doses=None if doses is None else tuple(doses[row] for row in training_rows(self.parts)),
            readout_genes=frozenset(gene for p in self.frozen.programs.programs for gene in p.genes),
        )

    def responses(self, case: Case) -> tuple[Response, ...]:
        """Measured changes under every training condition that shares no drug with the case."""
        names = [p.id for p in self.frozen.programs.programs]
        return tuple(
            Response(perturbation=perturbation_of(condition), readout=name, value=float(mean), se=float(se))
            for condition, effect in self._responses.items()
            if not set(condition.targets) & set(case.perturbation.targets)
            for name, mean, se in zip(names, effect.mean, effect.se, strict=True)
        )

    def baselines(self, case: Case) -> Mapping[str, tuple[Prediction, ...]]:
        """No change, additive on the log scale, and the mean of the two singles; sd 0: they claim no interval."""
        found = naive(normalise_condition(case.perturbation.id), drug_effects(self._responses))
        names = [p.id for p in self.frozen.programs.programs]
        by_name = {rule: dict(zip(names, values, strict=True)) for rule, values in found.items()}
        return {
            rule: tuple(Prediction(readout=r.id, mean=float(values[r.id]), sd=0.0) for r in case.readouts)
            for rule, values in by_name.items()
        }

    @cached_property
    def _training_cells(self) -> PerturbedCells:
        return self.opened.cells.select(training_rows(self.parts))

    @cached_property
    def _responses(self) -> dict[Condition, Effect]:
        """Training condition -> measured change of every program."""
        control = self._scores(self.parts[CONTROL].training)
        return {
            condition: response(self._scores(three.training), control)
            for condition, three in self.parts.items()
            if condition != CONTROL and len(three.training) > 1
        }

    def _changes(self, pair: Condition, part: Literal["truth", "reserved"]) -> dict[str, Change]:
        rows = getattr(self.parts[pair], part)
        control = self.parts[CONTROL]
        found = response(self._scores(rows), self._scores(control.truth if part == "truth" else control.training))
        names = [p.id for p in self.frozen.programs.programs]
        return {n: Change(float(m), float(s), len(rows)) for n, m, s in zip(names, *found, strict=True)}

    def _scores(self, rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Scores:
        return score_cells(self.opened.cells.X[rows], self._weights)

    @cached_property
    def _weights(self) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return self.frozen.programs.matrix(self.opened.cells.genes)

    def _alone(self, case: Case) -> list[Condition]:
        return [c for c in normalise_condition(case.perturbation.id).singles if c in self._responses]

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
        known = {p.id: p for p in self.frozen.programs.programs}
        rows = tuple(
            (r.id, ", ".join(known[r.id].genes[:8]), round(self.frozen.control[r.id], 4), r.threshold)
            for r in case.readouts
        )
        return Table(name="programs", columns=("readout", "strongest genes", "control score", "threshold"), rows=rows)

    def _drug_table(self, case: Case) -> Table:
        names = [p.id for p in self.frozen.programs.programs]
        rows = tuple(
            (c.id, name, round(float(mean), 4), round(float(se), 4), len(self.parts[c].training))
            for c in self._alone(case)
            for name, mean, se in zip(names, *self._responses[c], strict=True)
        )
        return Table(name="each alone", columns=("perturbation", "readout", "change", "se", "cells"), rows=rows)

"""The gene-pair setting: Norman 2019, non-additive response AB - A - B of expression programs under two genes at once.

In order: open on data (cells, the embedded twin, or tables of mean changes), then what a run asks for: evidence, menu,
observation, truth. Case files are made by `freeze`; the rules are in evidence.gene_pair_cases and in every case file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from evidence.annotations import read_terms
from evidence.cell_responses import CellResponses, training_cells
from evidence.cell_split import PartName
from evidence.conditions import Condition
from evidence.contracts import Case, CaseFile, Evidence, Part, Perturbation, Prediction, Table, Text
from evidence.errors import ConfigError, did_you_mean
from evidence.expression import CellData, ExpressionPrograms
from evidence.gene_pair_cases import ACTION, GenePairFrozen, freeze_cells, read_frozen, split_cells
from evidence.pair_responses import PairResponses
from evidence.pair_sources import OpenedPairs, freeze_tables, open_cells, open_tables
from evidence.pair_twin import make_twin
from evidence.perturbed import PerturbedCells
from evidence.program_cases import ProgramSetting, check_data, named, program_table
from evidence.programs import Effect

if TYPE_CHECKING:
    from evidence.figures import Series

OPTIONS = ("annotations", "n_cases", "source", "noise_sd")
SHAPES = {"published": 12, "devel": 5}


@dataclass(frozen=True, eq=False)
class GenePair(ProgramSetting[GenePairFrozen]):
    """The setting, opened on a case file and on responses. `pairs` are all pairs with both singles known."""

    known: PairResponses
    pairs: tuple[Condition, ...]

    @classmethod
    def freeze(cls, *, data: Path | None, shape: str, seed: int, options: Mapping[str, str]) -> CaseFile:
        """Freeze a case file. Shapes: published (12 pairs) or devel (5). Options: n_cases, source, noise_sd,
        annotations (a JSON file gene -> GO terms, for the terms of the programs).

        source: "cells" (an .h5ad file), "twin" (generated, synthetic) or "tables" (a folder of mean changes).
        """
        unknown = sorted(set(options) - set(OPTIONS))
        if unknown:
            raise ConfigError(f"no option {unknown[0]!r} for gene_pair case files.{did_you_mean(unknown[0], OPTIONS)}")
        if shape not in SHAPES:
            raise ConfigError(f"no shape {shape!r} for gene_pair.{did_you_mean(shape, SHAPES)}")
        n_cases = _whole(options.get("n_cases", str(SHAPES[shape])))
        match options.get("source", "cells"):
            case "tables":
                return freeze_tables(data, n_cases=n_cases, seed=seed, noise_sd=options.get("noise_sd"))
            case "cells" | "twin" as source:
                cells = open_cells(source, data)
                title = f"Gene pairs ({shape}): {n_cases} pairs, {cells.card.name}, {cells.card.cell_line}"
                terms = read_terms(Path(options["annotations"])) if "annotations" in options else None
                return freeze_cells(cells, source=source, n_cases=n_cases, seed=seed, title=title, annotations=terms)
            case other:
                raise ConfigError(f"option source: expected cells, twin or tables, got {other!r}")

    @classmethod
    def open(cls, case_file: CaseFile, data: Path | None) -> Self:
        """Open the case file on data. Raises DataError if it is not the data it was frozen on."""
        frozen = read_frozen(case_file)
        if frozen.source == "tables":
            opened = open_tables(data, frozen, case_file.seed)
        else:
            cells = open_cells(frozen.source, data)
            parts = split_cells(cells, frozen.pairs, case_file.seed)
            opened = OpenedPairs(CellResponses(cells, parts, frozen.programs), _pairs(cells), cells.data_sha256)
        check_data(case_file, opened.sha256)
        return cls(case_file, frozen, opened.known, opened.pairs)

    def evidence(self, case: Case, modalities: Sequence[str]) -> Evidence:
        """The system, what each gene alone does to the programs, and what an additive pair would do."""
        card = self.frozen.card
        synthetic = "Synthetic data: a generated twin, not real cells. " if self.case_file.synthetic else ""
        intro = (
            f"{synthetic}Single-cell RNA sequencing, cell line {card.cell_line}, perturbation {card.modality}: "
            f"{' and '.join(case.perturbation.targets)} are perturbed, alone and together. A program is a group of "
            "genes that vary together; its score is a weighted mean of log1p expression, so 0.1 is about 10 %. "
            "Asked for is what the pair does beyond the sum of both genes, AB - A - B: up above the threshold, down "
            "below minus the threshold, near zero between."
        )
        if self.frozen.noise_sd is not None:
            intro += (
                f" There are no cells behind this data: a measurement has given noise (sd {self.frozen.noise_sd:g})."
            )
        parts: list[Part] = [Text(text=intro)]
        if "table" in modalities:
            terms = {p.id: ", ".join(self.frozen.terms.get(p.id, ())) for p in self.frozen.programs.programs}
            parts += [program_table(case, self.frozen.programs, 10, "GO terms", terms), self._singles_table(case)]
        return Evidence(tuple(parts), {})

    def predicted(self, case: Case, predictions: Sequence[Prediction], modalities: Sequence[str]) -> Evidence:
        """What the pair would do in all (the sum of both genes and the predicted interaction), beside each gene."""
        effects = [named(self.frozen.programs, self.known.single(gene)) for gene in case.perturbation.targets]
        additive = {r.id: sum(e[r.id].value for e in effects) for r in case.readouts}
        pair = {p.readout: (additive[p.readout] + p.mean, p.sd) for p in predictions}
        parts: list[Part] = []
        if "table" in modalities:
            rows = tuple(
                (r.id, round(additive[r.id], 4), round(pair[r.id][0], 4), round(pair[r.id][1], 4))
                for r in case.readouts
            )
            parts.append(Table(name="pair", columns=("readout", "additive pair", "predicted pair", "sd"), rows=rows))
        if "figure" not in modalities:
            return Evidence(tuple(parts), {})
        from evidence import figures  # matplotlib is slow to import: only runs that show figures pay for it

        title = f"Each gene alone, and the predicted pair: {case.perturbation.name}"
        series = [*self._singles_series(case), figures.Series("predicted", pair)]
        image = figures.change_figure(case.readouts, series, title)
        figure, data = figures.figure_part("pair", image, f"{title}, with 95 % intervals.")
        return Evidence((*parts, figure), {figure.sha256: data})

    def training(self) -> ExpressionPrograms:
        """Programs, what is held out, and the known responses of single genes."""
        genes = sorted({gene for pair in self.pairs for gene in pair.targets})
        ids = list(self.frozen.programs.weights)
        singles = {g: dict(zip(ids, self.known.single(g).mean.tolist(), strict=True)) for g in genes}
        return ExpressionPrograms(self.frozen.programs.weights, "interaction", self.frozen.held_out, singles)

    def cell_data(self) -> CellData:
        """Cells for training a simulator (`vcloop simulate`). Raises ConfigError where there are none."""
        if not isinstance(self.known, CellResponses):
            raise ConfigError("this case file is on tables of mean changes: there are no cells to train on")
        singles = {single for pair in self.pairs for single in pair.singles}
        return CellData(
            cells=training_cells(self.known.cells_, self.known.parts),
            held_out=self.frozen.pairs,
            wanted=(*sorted(singles), *self.pairs),
            terms=make_twin().terms if self.frozen.source == "twin" else None,
            synthetic=self.case_file.synthetic,
        )

    def baselines(self, case: Case) -> Mapping[str, tuple[Prediction, ...]]:
        """Additive: the pair does what both genes do alone, so the interaction is 0."""
        return {"additive": tuple(Prediction(readout=r.id, mean=0.0, sd=0.0) for r in case.readouts)}

    def _told(self, condition: Condition) -> Perturbation:
        return Perturbation(id=condition.id, name=condition.id, targets=condition.targets, action=ACTION)

    def _effect(self, condition: Condition, part: PartName) -> Effect:
        return self.known.interaction(condition, part)

    def _reserved_cells(self, pair: Condition) -> int | None:
        return self.known.cells(pair)

    def _known_conditions(self) -> tuple[Condition, ...]:
        return self.pairs

    def _singles_table(self, case: Case) -> Table:
        first, second = (self.known.single(gene) for gene in case.perturbation.targets)
        a, b = case.perturbation.targets
        numbers = np.column_stack([first.mean, first.se, second.mean, second.se, first.mean + second.mean]).round(4)
        rows = tuple((r.id, *row) for r, row in zip(case.readouts, numbers.tolist(), strict=True))
        columns = ("readout", f"{a} alone", f"se {a}", f"{b} alone", f"se {b}", "additive pair")
        return Table(name="singles", columns=columns, rows=rows)

    def _singles_series(self, case: Case) -> list[Series]:
        from evidence.figures import Series

        return [
            Series(f"{gene} alone", named(self.frozen.programs, self.known.single(gene)))
            for gene in case.perturbation.targets
        ]


def _pairs(cells: PerturbedCells) -> tuple[Condition, ...]:
    return tuple(c for c in cells.rows if c.double and set(c.singles) <= set(cells.rows))


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"option n_cases: expected a whole number of at least 1, got {text!r}")
    return int(text)

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
from evidence.conditions import Condition
from evidence.contracts import (
    Case,
    CaseFile,
    Evidence,
    Measurement,
    Observation,
    Observed,
    Part,
    Perturbation,
    Prediction,
    Response,
    Table,
    Text,
    Truth,
)
from evidence.errors import ConfigError, ContractError, DataError, did_you_mean
from evidence.expression import CellData, ExpressionPrograms
from evidence.gene_pair_cases import GenePairFrozen, freeze_cells, read_frozen
from evidence.pair_responses import CellResponses, PairResponses, split_cells
from evidence.pair_responses import Part as CellPart
from evidence.pair_sources import OpenedPairs, freeze_tables, open_cells, open_tables
from evidence.pair_twin import make_twin
from evidence.perturbed import PerturbedCells

if TYPE_CHECKING:
    from evidence.figures import Series

OPTIONS = ("annotations", "n_cases", "source", "noise_sd")
SHAPES = {"published": 12, "devel": 5}


@dataclass(frozen=True, eq=False)
class GenePair:
    """The setting, opened on a case file and on responses. `pairs` are all pairs with both singles known."""

    case_file: CaseFile
    frozen: GenePairFrozen
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
            opened = OpenedPairs(_on_cells(cells, frozen, case_file.seed), _pairs(cells), cells.data_sha256)
        (name, expected), *_ = case_file.data.items()
        if opened.sha256 != expected:
            raise DataError(
                f"expected the data {name!r} that the case file {case_file.title!r} was frozen on, sha256 {expected}, "
                f"got {opened.sha256}. Use that data (`vcloop data`), or freeze a case file on this one"
            )
        return cls(case_file, frozen, opened.known, opened.pairs)

    def cases(self) -> tuple[Case, ...]:
        """The held-out pairs, in the order of the case file."""
        return self.case_file.cases

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
            parts += [self._programs_table(case), self._singles_table(case)]
        return Evidence(tuple(parts), {})

    def predicted(self, case: Case, predictions: Sequence[Prediction], modalities: Sequence[str]) -> Evidence:
        """What the pair would do in all (the sum of both genes and the predicted interaction), beside each gene."""
        effects = [self.known.single(gene) for gene in case.perturbation.targets]
        additive = {r.id: float(sum(e.mean[n] for e in effects)) for n, r in enumerate(case.readouts)}
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

    def observe(self, case: Case, measurement: Measurement, seed: int) -> Observed:
        """The interaction of one program in the pair's reserved cells. The seed changes nothing: they are frozen."""
        if measurement not in case.menu or measurement.readout is None:
            raise ContractError(f"measurement {measurement.id!r} is not on the menu", case=case.id, step="observe")
        value, se = self._readouts(case, "reserved")[measurement.readout]
        return Observed(
            Observation(
                measurement=measurement.id,
                readout=measurement.readout,
                value=value,
                se=se,
                n_cells=self.known.cells(_pair(case.perturbation)),
            ),
            {},
        )

    def truth(self, case: Case) -> tuple[Truth, ...]:
        """The interaction of every program in truth cells. For scoring only."""
        found = self._readouts(case, "truth")
        return tuple(
            Truth(readout=r.id, label=r.classify(found[r.id][0]), value=found[r.id][0], se=found[r.id][1])
            for r in case.readouts
        )

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
        cells, parts = self.known.cells_, self.known.parts
        rows = np.sort(np.concatenate([p.training for p in parts.values()]))
        singles = {single for pair in self.pairs for single in pair.singles}
        return CellData(
            cells=cells.select(rows),
            held_out=tuple(Condition(tuple(name.split("+"))) for name in self.frozen.held_out),
            wanted=(*sorted(singles), *self.pairs),
            terms=make_twin().terms if self.frozen.source == "twin" else None,
            synthetic=self.case_file.synthetic,
        )

    def responses(self, case: Case) -> tuple[Response, ...]:
        """Interactions of every other pair that shares no gene with the case, in training cells."""
        others = [pair for pair in self.pairs if not set(pair.targets) & set(case.perturbation.targets)]
        return tuple(
            Response(perturbation=perturbation, readout=readout, value=value, se=se)
            for pair in others
            for perturbation in [Perturbation(id=pair.id, name=pair.id, targets=pair.targets, action="activate")]
            for readout, (value, se) in self._effects(pair, "training").items()
        )

    def baselines(self, case: Case) -> Mapping[str, tuple[Prediction, ...]]:
        """Additive: the pair does what both genes do alone, so the interaction is 0."""
        return {"additive": tuple(Prediction(readout=r.id, mean=0.0, sd=0.0) for r in case.readouts)}

    def _readouts(self, case: Case, part: CellPart) -> dict[str, tuple[float, float]]:
        return self._effects(_pair(case.perturbation), part)

    def _effects(self, pair: Condition, part: CellPart) -> dict[str, tuple[float, float]]:
        effect = self.known.interaction(pair, part)
        ids = [p.id for p in self.frozen.programs.programs]
        return {i: (float(m), float(s)) for i, m, s in zip(ids, effect.mean, effect.se, strict=True)}

    def _programs_table(self, case: Case) -> Table:
        frozen = self.frozen
        rows = tuple(
            (p.id, ", ".join(p.genes[:10]), ", ".join(frozen.terms.get(p.id, ())), frozen.thresholds[p.id])
            for p in frozen.programs.programs
        )
        columns = ("readout", "strongest genes", "GO terms", "threshold")
        return Table(name="programs", columns=columns, rows=rows)

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
            Series(f"{gene} alone", {r.id: (float(e.mean[n]), float(e.se[n])) for n, r in enumerate(case.readouts)})
            for gene in case.perturbation.targets
            for e in [self.known.single(gene)]
        ]


def _pair(perturbation: Perturbation) -> Condition:
    return Condition(perturbation.targets)


def _pairs(cells: PerturbedCells) -> tuple[Condition, ...]:
    return tuple(c for c in cells.rows if c.double and set(c.singles) <= set(cells.rows))


def _on_cells(cells: PerturbedCells, frozen: GenePairFrozen, seed: int) -> CellResponses:
    held_out = tuple(Condition(tuple(name.split("+"))) for name in frozen.held_out)
    absent = sorted({c.id for c in held_out} - {c.id for c in cells.rows})
    if absent:
        raise DataError(f"the data has no cell of {', '.join(absent)}, which the case file holds out")
    return CellResponses(cells, split_cells(cells, held_out, seed), frozen.programs)


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"option n_cases: expected a whole number of at least 1, got {text!r}")
    return int(text)

"""The drug-synergy setting: Loewe synergy of a held-out pair of drugs in several cell lines (O'Neil 2016).

The worked example of docs/adding-a-setting.md: data, cases, menu, observation, truth, in this order, and nothing else.
Each readout is the pair's score in one line. A measurement is the same pair in that line's sister, the line whose
scores agree best over training pairs; its standard error says how far sisters differ there. Or a single-agent curve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from evidence.case_files import frozen_part
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
    Readout,
    Response,
    Table,
    Text,
    Truth,
)
from evidence.datasets import locate
from evidence.errors import ConfigError, ContractError, DataError
from evidence.pair_tables import Pair, Synergy, read_curves, read_smiles, read_synergy
from evidence.values import Value, derive_seed, sha256_of

SETTING, DATASET = "drug_synergy", "oneil2016"
FILES = ("oneil_synergy.tsv", "oneil_single_agent_dose_response.csv", "oneil_smiles.csv")
N_CASES, N_LINES, N_RESPONSES = 12, 4, 60
THRESHOLD, UNIT = 10.0, "Loewe synergy score"
"""A score above 10 is the usual cut for synergy, below -10 for antagonism."""
RULES = (
    "pairs scored in every line are permuted with the seed; the first 12 are cases, held out in every line. Readouts: "
    "the four disjoint couples of lines that correlate best over training pairs; the first by name is read out, the "
    "other, its sister, can be measured. Threshold: 10. SE of a truth: replicates"
)
Curve = tuple[tuple[float, float], ...]


class SynergyFrozen(Value):
    """Held-out pairs, readout line -> sister line, and standard errors: of a score, and of a sister for its line."""

    held_out: tuple[tuple[str, str], ...]
    sisters: dict[str, str]
    replicate_sd: float
    sister_sd: dict[str, float]
    rules: str


@dataclass(frozen=True, eq=False)
class PairScores:
    """Training data of the kind "pair_scores". scores: (n_pairs, n_lines), NaN where unmeasured. curves: % inhibition
    by (drug, line). No held-out pair is in it."""

    kind: ClassVar[str] = "pair_scores"
    pairs: tuple[Pair, ...]
    lines: tuple[str, ...]
    scores: NDArray[np.float64]
    curves: Mapping[tuple[str, str], Curve]
    smiles: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class DrugSynergy:
    """The setting, opened on a case file and on tables. Made by `open`."""

    case_file: CaseFile
    frozen: SynergyFrozen
    synergy: Synergy
    curves: Mapping[tuple[str, str], Curve]
    smiles: Mapping[str, str]

    @classmethod
    def freeze(cls, *, data: Path | None, shape: str, seed: int, options: Mapping[str, str]) -> CaseFile:
        """12 pairs, drawn by name with the seed, in four lines chosen on training pairs."""
        if shape != "published" or options:
            raise ConfigError(f"expected shape published and no options, got {shape!r} and {sorted(options)}")
        folder = locate(DATASET, data)
        synergy = read_synergy(folder / FILES[0])
        whole = [pair for pair, row in zip(synergy.pairs, synergy.scores, strict=True) if np.isfinite(row).all()]
        order = np.random.default_rng(derive_seed(seed, "cases")).permutation(len(whole))
        held_out = tuple(sorted(whole[i] for i in order[:N_CASES]))
        frozen = _frozen(synergy, held_out)
        readouts = tuple(_readout(line) for line in frozen.sisters)
        return CaseFile(
            version=1,
            setting=SETTING,
            title=f"Drug synergy: {len(held_out)} held-out pairs x {len(readouts)} lines, O'Neil 2016",
            data={DATASET: _sha(folder)},
            seed=seed,
            frozen=frozen.model_dump(mode="json"),
            cases=tuple(_case(pair, readouts, frozen) for pair in held_out),
        )

    @classmethod
    def open(cls, case_file: CaseFile, data: Path | None) -> Self:
        """Open the case file on the tables. Raises DataError if they are not those it was frozen on."""
        folder = locate(DATASET, data)
        if _sha(folder) != case_file.data.get(DATASET):
            raise DataError(f"{folder}: not the tables that the case file {case_file.title!r} was frozen on")
        frozen = frozen_part(case_file, SynergyFrozen)
        tables = read_synergy(folder / FILES[0]), read_curves(folder / FILES[1]), read_smiles(folder / FILES[2])
        return cls(case_file, frozen, *tables)

    def cases(self) -> tuple[Case, ...]:
        """The held-out pairs."""
        return self.case_file.cases

    def evidence(self, case: Case, modalities: Sequence[str]) -> Evidence:
        """What each drug does with its other partners, over training pairs: the same whatever the outcome."""
        said = "Loewe synergy: positive where two drugs inhibit growth more than an additive dose would."
        parts: list[Part] = [Text(text=f"Pair {case.perturbation.name}, human cancer cell lines (O'Neil 2016). {said}")]
        if "table" in modalities:
            rows = tuple((drug, r.id, *self._partners(drug, r.id)) for drug in _pair(case) for r in case.readouts)
            columns = ("drug", "line", "mean score with other partners", "sd", "partners")
            parts.append(Table(name="other partners", columns=columns, rows=rows))
        return Evidence(tuple(parts), {})

    def observe(self, case: Case, measurement: Measurement, seed: int) -> Observed:
        """The pair's score in a sister line, or a single-agent curve. The seed changes nothing."""
        if measurement not in case.menu:
            raise ContractError(f"measurement {measurement.id!r} is not on the menu", case=case.id, step="observe")
        line = measurement.readout
        if line is not None:
            value = self._score(_pair(case), self.frozen.sisters[line])
            se = self.frozen.sister_sd[line]
            return Observed(Observation(measurement=measurement.id, readout=line, value=value, se=se), {})
        drug, line = next(
            (d, line) for d in _pair(case) for line in self.frozen.sisters if _curve_id(d, line) == measurement.id
        )
        curve = self.curves.get((drug.upper(), line))
        if curve is None:
            return Observed(Observation(measurement=measurement.id, status="missing", reason="no such curve"), {})
        table = Table(name=measurement.name, columns=("dose (uM)", "inhibition (%)"), rows=curve)
        return Observed(Observation(measurement=measurement.id, parts=(table,)), {})

    def truth(self, case: Case) -> tuple[Truth, ...]:
        """The pair's score in every readout line. For scoring only."""
        values = {r.id: self._score(_pair(case), r.id) for r in case.readouts}
        se = self.frozen.replicate_sd
        return tuple(
            Truth(readout=r.id, label=r.classify(values[r.id]), value=values[r.id], se=se) for r in case.readouts
        )

    def training(self) -> PairScores:
        """Every pair but the held-out ones, in every line."""
        keep = self._training
        pairs = tuple(self.synergy.pairs[i] for i in keep)
        return PairScores(pairs, self.synergy.lines, self.synergy.scores[keep], self.curves, self.smiles)

    def responses(self, case: Case) -> tuple[Response, ...]:
        """Scores of 60 training pairs, drawn by name, that share no drug with the case."""
        free = [i for i in self._training if not set(self.synergy.pairs[i]) & set(_pair(case))]
        order = np.random.default_rng(derive_seed(self.case_file.seed, "responses", case.id)).permutation(len(free))
        found = [
            (pair, r.id, self._score(pair, r.id))
            for pair in sorted(self.synergy.pairs[free[i]] for i in order[:N_RESPONSES])
            for r in case.readouts
        ]
        se = self.frozen.replicate_sd
        return tuple(
            Response(perturbation=_perturbation(pair), readout=line, value=value, se=se)
            for pair, line, value in found
            if np.isfinite(value)
        )

    def baselines(self, case: Case) -> Mapping[str, tuple[Prediction, ...]]:
        """The mean of what the two drugs do with their other partners."""
        means = {r.id: [self._partners(d, r.id)[:2] for d in _pair(case)] for r in case.readouts}
        return {
            "mean of other partners": tuple(
                Prediction(readout=r.id, mean=sum(m for m, _ in means[r.id]) / 2, sd=sum(s for _, s in means[r.id]) / 2)
                for r in case.readouts
            )
        }

    @cached_property
    def _training(self) -> list[int]:
        return [i for i, pair in enumerate(self.synergy.pairs) if pair not in self.frozen.held_out]

    def _score(self, pair: Pair, line: str) -> float:
        return float(self.synergy.scores[self.synergy.pairs.index(pair), self.synergy.lines.index(line)])

    def _partners(self, drug: str, line: str) -> tuple[float, float, int]:
        rows = [i for i in self._training if drug in self.synergy.pairs[i]]
        column = self.synergy.lines.index(line)
        known = [float(value) for value in self.synergy.scores[rows][:, column] if np.isfinite(value)]
        if not known:
            return 0.0, 0.0, 0
        return round(float(np.mean(known)), 4), round(float(np.std(known)), 4), len(known)


def _frozen(synergy: Synergy, held_out: tuple[Pair, ...]) -> SynergyFrozen:
    """Sister lines and standard errors, from training pairs alone."""
    training = np.array([pair not in held_out for pair in synergy.pairs])
    scores = synergy.scores[training & np.isfinite(synergy.scores).all(axis=1)]
    agreement = np.asarray(np.corrcoef(scores.T))
    couples = sorted((-agreement[i, j], i, j) for i in range(len(agreement)) for j in range(i))
    chosen: list[tuple[str, str, float]] = []
    for _, i, j in couples:
        line, sister = sorted((synergy.lines[i], synergy.lines[j]))
        if len(chosen) < N_LINES and not {line, sister} & {name for couple in chosen for name in couple[:2]}:
            apart = float(np.sqrt(((scores[:, i] - scores[:, j]) ** 2).mean()))
            chosen.append((line, sister, round(apart, 4)))
    known = [variance for pair, found in synergy.repeats.items() if pair not in held_out for variance in found]
    return SynergyFrozen(
        held_out=held_out,
        sisters={line: sister for line, sister, _ in chosen},
        sister_sd={line: sd for line, _, sd in chosen},
        replicate_sd=round(float(np.sqrt(np.mean(known))), 4) if known else 0.0,
        rules=RULES,
    )


def _case(pair: Pair, readouts: tuple[Readout, ...], frozen: SynergyFrozen) -> Case:
    first = next(iter(frozen.sisters))
    menu = [
        Measurement(id=f"pair_{sister}", name=f"The same pair in {sister}, the line most like {line}", readout=line)
        for line, sister in frozen.sisters.items()
    ] + [Measurement(id=_curve_id(d, first), name=f"Dose-response curve of {d} alone in {first}") for d in pair]
    perturbation = _perturbation(pair)
    title = f"Synergy of {perturbation.name}"
    return Case(id=perturbation.id, title=title, perturbation=perturbation, readouts=readouts, menu=tuple(menu))


def _readout(line: str) -> Readout:
    return Readout(id=line, name=f"synergy in {line}", threshold=THRESHOLD, unit=UNIT)


def _perturbation(pair: Pair) -> Perturbation:
    return Perturbation(id="+".join(pair), name=" + ".join(pair), targets=pair)


def _pair(case: Case) -> Pair:
    first, second = case.perturbation.targets
    return first, second


def _curve_id(drug: str, line: str) -> str:
    return f"curve_{drug}_{line}"


def _sha(folder: Path) -> str:
    return sha256_of(b"\0".join((folder / name).read_bytes() for name in FILES))

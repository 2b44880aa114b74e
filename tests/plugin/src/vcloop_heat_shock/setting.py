"""The setting: data, cases, menu, observation, evidence, truth, in this order."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from evidence.contracts import (
    Case,
    CaseFile,
    Evidence,
    Measurement,
    Observation,
    Observed,
    Perturbation,
    Prediction,
    Readout,
    Response,
    Table,
    Text,
    Truth,
)
from evidence.errors import DataError
from evidence.expression import CellData
from evidence.perturbed import DataCard, make_cells
from evidence.values import sha256_of

GENES = ("HSP70", "HSP90", "CDC6")
STRAINS = ("wildtype", "hsf1-weak", "hsf1-strong", "slow-growth")
TABLE = Path(__file__).with_name("responses.csv")
Rows = dict[tuple[str, str, str], tuple[float, float]]


class KnownResponses(NamedTuple):
    """Training data for simulators: changes by strain and gene."""

    responses: tuple[Response, ...]
    kind: ClassVar[str] = "known_responses"


class HeatShock:
    """Change of three genes after heat shock, by strain. Synthetic."""

    def __init__(self, case_file: CaseFile, rows: Rows):
        self.case_file = case_file
        self.rows = rows

    @classmethod
    def freeze(cls, *, data: Path | None, shape: str, seed: int, options: Mapping[str, str]) -> CaseFile:
        """Every strain is a case; every gene is a readout and can be measured."""
        readouts = tuple(Readout(id=g, name=f"{g} log2 change", threshold=0.3, unit="log2") for g in GENES)
        menu = tuple(Measurement(id=g, name=f"measure {g}", readout=g) for g in GENES)
        cases = tuple(
            Case(
                id=strain,
                title=f"Heat shock of strain {strain}",
                perturbation=_perturbation(strain),
                readouts=readouts,
                menu=menu,
            )
            for strain in STRAINS
        )
        return CaseFile(
            version=1,
            setting="heat_shock",
            title="Heat shock of made-up strains",
            data={"responses": sha256_of((data or TABLE).read_bytes())},
            synthetic=True,
            seed=seed,
            frozen={},
            cases=cases,
        )

    @classmethod
    def open(cls, case_file: CaseFile, data: Path | None) -> HeatShock:
        """Read the table and refuse another one than the case file was frozen on."""
        path = data or TABLE
        found = sha256_of(path.read_bytes())
        if found != case_file.data["responses"]:
            raise DataError(f"{path}: expected sha256 {case_file.data['responses']}, got {found}")
        with path.open(newline="") as file:
            rows = {
                (r["strain"], r["gene"], r["part"]): (float(r["change"]), float(r["se"])) for r in csv.DictReader(file)
            }
        return cls(case_file, rows)

    def cases(self) -> tuple[Case, ...]:
        """The strains."""
        return self.case_file.cases

    def evidence(self, case: Case, modalities: Sequence[str]) -> Evidence:
        """What is known of the other strains."""
        intro = Text(text="Synthetic data. Log2 change of expression 30 minutes after heat shock.")
        if "table" not in modalities:
            return Evidence((intro,), {})
        rows = tuple((r.perturbation.id, r.readout, r.value, r.se) for r in self.responses(case))
        return Evidence((intro, Table(name="other strains", columns=("strain", "gene", "change", "se"), rows=rows)), {})

    def observe(self, case: Case, measurement: Measurement, seed: int) -> Observed:
        """The change in the reserved replicate."""
        value, se = self.rows[case.id, measurement.id, "reserved"]
        observation = Observation(measurement=measurement.id, readout=measurement.readout, value=value, se=se)
        return Observed(observation, {})

    def truth(self, case: Case) -> tuple[Truth, ...]:
        """The change in the truth replicate."""
        values = {r.id: self.rows[case.id, r.id, "truth"] for r in case.readouts}
        return tuple(
            Truth(readout=r.id, label=r.classify(values[r.id][0]), value=values[r.id][0], se=values[r.id][1])
            for r in case.readouts
        )

    def training(self) -> KnownResponses:
        """Every strain's training replicate."""
        return KnownResponses(tuple(r for strain in STRAINS for r in self._responses(strain)))

    def responses(self, case: Case) -> tuple[Response, ...]:
        """The other strains' training replicates."""
        return tuple(r for other in STRAINS if other != case.id for r in self._responses(other))

    def baselines(self, case: Case) -> Mapping[str, tuple[Prediction, ...]]:
        """The mean of the other strains."""
        known = self.responses(case)
        means = {r.id: [k.value for k in known if k.readout == r.id] for r in case.readouts}
        return {
            "mean of strains": tuple(
                Prediction(readout=r.id, mean=sum(means[r.id]) / len(means[r.id]), sd=0.3) for r in case.readouts
            )
        }

    def cell_data(self) -> CellData:
        """Made-up cells around the training replicate, for trainers: 20 of every strain and 20 of the control."""
        means = {"control": [2.0] * len(GENES)} | {
            strain: [2.0 + r.value for r in self._responses(strain)] for strain in STRAINS
        }
        rng = np.random.default_rng(1)
        x = np.concatenate([np.maximum(rng.normal(mean, 0.2, (20, len(GENES))), 0.01) for mean in means.values()])
        labels = [name for name in means for _ in range(20)]
        cells = make_cells(x, GENES, labels, card=DataCard(name="heat shock"))
        return CellData(cells, held_out=(), wanted=cells.perturbations, terms=None, synthetic=True)

    def _responses(self, strain: str) -> tuple[Response, ...]:
        rows = [(gene, *self.rows[strain, gene, "training"]) for gene in GENES]
        return tuple(Response(perturbation=_perturbation(strain), readout=g, value=v, se=e) for g, v, e in rows)


def _perturbation(strain: str) -> Perturbation:
    return Perturbation(id=strain, name=f"heat shock of {strain}", targets=(strain,))

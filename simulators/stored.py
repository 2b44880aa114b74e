"""Simulators that answer from a response table: predictions made once with `vcloop simulate`."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from evidence.conditions import Condition
from evidence.contracts import Observation, Perturbation, Prediction
from evidence.errors import ConfigError, ContractError, DataError
from evidence.expression import ExpressionPrograms
from evidence.values import Number, Value
from simulators.response_table import Estimate, Provenance, ResponseTable, load_table, make_table


class StoredOptions(Value):
    """Options of a stored simulator.

    table: an .npz response table, or a .csv of mean changes (first column the perturbation, one column a gene).
    sd: standard deviation of a prediction where the table knows none; without it such a table is refused.
    singles: for an interaction, take A and B from the table ("predicted") or from their known responses ("observed").
    trust_held_out: take a table that does not record what it was trained on at its maker's word.
    """

    table: Path
    sd: Annotated[Number, Field(gt=0)] | None = None
    singles: Literal["predicted", "observed"] = "predicted"
    trust_held_out: bool = False


class StoredResponses:
    """Predictions from a response table, projected onto the setting's readouts."""

    Options: ClassVar[type[Value]] = StoredOptions
    accepts: ClassVar[str] = ExpressionPrograms.kind
    made_by: ClassVar[str | None] = None

    def __init__(self, options: StoredOptions):
        self.options = options
        self._table: ResponseTable | None = None
        self._training: ExpressionPrograms | None = None
        self._members: Any = None

    def identity(self) -> dict[str, Any]:
        """Which table answers: its content hash and who made it."""
        table = self._load()
        return {"simulator": table.provenance.simulator, "table_sha256": table.sha256, "n_members": len(table.members)}

    def fit(self, training: ExpressionPrograms, *, seed: int) -> None:
        """Project the table onto the readouts. Raises DataError where it was trained on held-out or on other cells."""
        table = self._load()
        seen = sorted(set(training.held_out) - set(table.provenance.held_out))
        if seen and not self.options.trust_held_out:
            raise DataError(
                f"{self.options.table}: expected predictions made without any cell of {', '.join(training.held_out)}; "
                f"the table does not say so for {', '.join(seen)}. Make it again with them held out (vcloop simulate), "
                "or set trust_held_out: true if its maker says so"
            )
        made_on = table.provenance.data_sha256
        if training.cells_sha256 not in ("", made_on):
            raise DataError(
                f"{self.options.table}: expected predictions made from the run's training cells, sha256 "
                f"{training.cells_sha256}; the table says {made_on}. Make it again for this case file (vcloop simulate)"
            )
        self._training = training
        self._table = table.project(training.weights)

    def predict(self, perturbation: Perturbation, readouts: Sequence[str]) -> tuple[Prediction, ...]:
        """Mean and standard deviation over members. Raises DataError for a perturbation the table does not have."""
        if self._table is None or self._training is None:
            raise ContractError("expected fit before predict")
        estimate = self._estimate(self._table, self._training, perturbation)
        place = {name: n for n, name in enumerate(self._table.columns)}
        sd = self._sd(estimate)
        return tuple(
            Prediction(readout=r, mean=float(estimate.mean[place[r]]), sd=float(sd[place[r]])) for r in readouts
        )

    def _load(self) -> ResponseTable:
        path = self.options.table
        table = read_delta_csv(path) if path.suffix == ".csv" else load_table(path)
        if self.made_by not in (None, table.provenance.simulator):
            raise DataError(f"{path} was made by {table.provenance.simulator!r}, not by {self.made_by!r}")
        return table

    def _estimate(self, table: ResponseTable, training: ExpressionPrograms, perturbation: Perturbation) -> Estimate:
        name = "+".join(sorted(perturbation.targets))
        if training.contrast == "change":
            return table.estimate(name)
        first, second = sorted(perturbation.targets)
        if self.options.singles == "predicted":
            return table.interaction(name, (first, second))
        absent = [target for target in (first, second) if target not in training.singles]
        if absent:
            raise DataError(f"no known response of {', '.join(absent)}: singles: observed cannot predict {name}")
        both = table.estimate(name)
        known = [[training.singles[target][column] for column in table.columns] for target in (first, second)]
        return Estimate(both.mean - np.sum(known, axis=0), both.sd)

    def _sd(self, estimate: Estimate) -> Any:
        if estimate.sd is not None:
            return estimate.sd
        if self.options.sd is None:
            raise ConfigError(
                f"{self.options.table} has one member or means only, so no standard deviation: set the option sd, or "
                "make the table with at least two members"
            )
        return np.full(estimate.mean.shape, self.options.sd)


class GearsOptions(StoredOptions):
    """Options of GEARS. members: folder of the trained members behind the table, which adapter refit fine-tunes."""

    members: Path | None = None


class Gears(StoredResponses):
    """GEARS (Roohani et al. 2023) through a response table made by `vcloop simulate gears`."""

    Options: ClassVar[type[Value]] = GearsOptions
    made_by: ClassVar[str | None] = "gears"
    options: GearsOptions

    def refit(
        self, perturbation: Perturbation, readouts: Sequence[str], observations: Sequence[Observation]
    ) -> tuple[Prediction, ...]:
        """Predictions of the stored members fine-tuned on measured readouts (see simulators.gears.refit).

        Raises ConfigError without the option members or without torch, DataError for members of another table.
        """
        if self._table is None or self._training is None:
            raise ContractError("expected fit before refit")
        ensemble, training = self._ensemble(), self._training
        seen = [o for o in observations if o.informs(readouts)]
        first, second = sorted(perturbation.targets) if len(perturbation.targets) == 2 else ("", "")
        wanted, signs, constant = [Condition(tuple(sorted(perturbation.targets)))], [1.0], dict.fromkeys(readouts, 0.0)
        if training.contrast == "interaction" and self.options.singles == "predicted":
            wanted, signs = [*wanted, Condition((first,)), Condition((second,))], [1.0, -1.0, -1.0]
        elif training.contrast == "interaction":
            constant = {r: training.singles[first][r] + training.singles[second][r] for r in readouts}

        from simulators.gears.refit import Goal, refitted_changes  # torch is slow to import

        weights = np.array([[training.weights[r].get(gene, 0.0) for gene in ensemble.genes] for r in readouts])
        rows = [readouts.index(str(o.readout)) for o in seen]
        goal = Goal(
            np.array(signs),
            weights[rows],
            np.array([float(o.value or 0.0) + constant[str(o.readout)] for o in seen]),
            np.array([o.se or 0.0 for o in seen]),
        )
        changes = np.tensordot(refitted_changes(ensemble, wanted, goal), goal.signs, axes=(1, 0))
        each = changes @ weights.T - np.array([constant[r] for r in readouts])
        sd = self._sd(Estimate(each.mean(axis=0), each.std(axis=0, ddof=1) if len(each) > 1 else None))
        return tuple(
            Prediction(readout=r, mean=float(m), sd=float(s))
            for r, m, s in zip(readouts, each.mean(axis=0), sd, strict=True)
        )

    def _ensemble(self) -> Any:
        if self.options.members is None:
            raise ConfigError(
                "adapter 'refit' fine-tunes GEARS from its trained members: set the simulator's option members to the "
                "folder that `vcloop simulate gears` left them in"
            )
        if self._members is None:
            from simulators.gears import compat

            compat.require()
            from simulators.gears.model import Gears as Ensemble

            found = Ensemble.load(self.options.members)
            table = self._load()
            if found.member_names != table.provenance.members:
                raise DataError(f"{self.options.members}: not the members that {self.options.table} was made with")
            self._members = found
        return self._members


class Cpa(StoredResponses):
    """CPA (Lotfollahi et al. 2023) through a response table made by `vcloop simulate cpa`."""

    made_by: ClassVar[str | None] = "cpa"


def read_delta_csv(path: Path) -> ResponseTable:
    """Mean changes from a CSV. Raises DataError naming row and column of what is no number, and repeated rows."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot read the table of changes {path}: {error}") from error
    if len(rows) < 2 or len(rows[0]) < 2:
        raise DataError(f"{path}: expected a header (perturbation, then genes) and at least one row")
    header, body = rows[0], rows[1:]
    values = [[_number(path, header, n, row, c) for c in range(1, len(header))] for n, row in enumerate(body, start=2)]
    provenance = Provenance(simulator="gears", data_sha256="unknown", note=f"means from {path.name}, as published")
    names = ["+".join(sorted(row[0].split("+"))) for row in body]
    return make_table(
        names, header[1:], np.empty((0, *np.shape(values))), unit="log1p change", provenance=provenance, mean=values
    )


def _number(path: Path, header: Sequence[str], row_number: int, row: Sequence[str], column: int) -> float:
    text = row[column].strip() if column < len(row) else ""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataError(f"{path} row {row_number}, column {header[column]}: expected a number, got {text!r}")
    return value

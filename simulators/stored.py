"""The stored simulator: predictions of a heavy simulator from its response table, so that no run trains by accident.

The table says what it was trained on; it is refused for other cells, and where a case's combination was not held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from evidence.conditions import normalise_condition
from evidence.contracts import Perturbation, Prediction
from evidence.errors import ConfigError, ContractError, DataError, did_you_mean
from evidence.program_cells import CHANGE_UNIT, ProgramCells
from evidence.values import Name, Value
from simulators.response_table import ResponseTable, load_table

SHIPPED = Path(__file__).resolve().parent.parent / "cases"


class StoredOptions(Value):
    """table: a response table (.npz), as an absolute path or as the name of one that is shipped in cases/."""

    table: Name


class Stored:
    """Simulator of kind "program_cells" that reads its predictions from a table over genes."""

    Options: ClassVar[type[Value]] = StoredOptions
    accepts: ClassVar[str] = ProgramCells.kind

    def __init__(self, options: StoredOptions):
        self.options = options
        self._table: ResponseTable | None = None

    def fit(self, training: ProgramCells, *, seed: int) -> None:
        """Read the table and project it on the programs. Raises DataError if it was made from other cells."""
        if getattr(training, "kind", None) != self.accepts:
            raise ContractError(f"expected training data of kind {self.accepts!r}, got {type(training).__name__}")
        table = load_table(table_path(self.options.table))
        _check_fits(table, training, self.options.table)
        self._table = table.project(training.programs.weights)
        if self._table.sd is None:
            raise DataError(f"{self.options.table}: expected at least two ensemble members for a standard deviation")

    def predict(self, perturbation: Perturbation, readouts: Sequence[str]) -> tuple[Prediction, ...]:
        """The stored change of every program, mean and standard deviation over the members."""
        if self._table is None:
            raise ContractError("expected fit before predict")
        columns = {name: at for at, name in enumerate(self._table.columns)}
        unknown = [name for name in readouts if name not in columns]
        if unknown:
            raise ConfigError(f"no program {unknown[0]!r}.{did_you_mean(unknown[0], columns)}")
        mean, sd = self._table.estimate(normalise_condition("+".join(perturbation.targets)).id)
        if sd is None:
            raise ContractError("expected a table with members")
        return tuple(
            Prediction(readout=name, mean=float(mean[columns[name]]), sd=float(sd[columns[name]])) for name in readouts
        )


def table_path(name: str) -> Path:
    """Where a table is. Raises ConfigError for a relative path: it would depend on the working folder."""
    path = Path(name).expanduser()
    if path.is_absolute():
        return path
    if path.parent != Path() or not (SHIPPED / path).is_file():
        shipped = [p.name for p in SHIPPED.glob("*.npz")]
        raise ConfigError(
            f"table {name!r}: expected an absolute path or a shipped table.{did_you_mean(path.name, shipped)}"
        )
    return SHIPPED / path


def _check_fits(table: ResponseTable, training: ProgramCells, name: str) -> None:
    made = table.provenance
    if made.data_sha256 != training.cells.data_sha256:
        raise DataError(
            f"{name}: {made.simulator} was trained on cells with sha256 {made.data_sha256}, the run's training cells "
            f"have {training.cells.data_sha256}; make a table for this case file"
        )
    if table.unit != CHANGE_UNIT:
        raise DataError(f"{name}: expected predictions in {CHANGE_UNIT!r}, got {table.unit!r}")
    missing = sorted(set(training.held_out) - set(made.held_out))
    if missing:
        raise DataError(
            f"{name}: {made.simulator} was trained on combinations that the cases hide: {', '.join(missing)}"
        )

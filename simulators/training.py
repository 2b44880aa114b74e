"""What `vcloop simulate` asks of a simulator that is trained: its members one by one, and the table they give."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from evidence.expression import CellData
from evidence.strict_yaml import parse_value
from evidence.values import Value
from simulators.response_table import ResponseTable

V = TypeVar("V", bound=Value)


class Training(NamedTuple):
    """One training: the cells, the simulator's own options, how many members, and where they are kept.

    annotations: gene terms, for simulators that need them. folder: holds trained members by seed and hash; one found
    there is not trained again.
    """

    data: CellData
    options: Mapping[str, Any]
    members: int
    seed: int
    annotations: Path | None
    folder: Path
    say: Callable[[str], None]

    @property
    def kept(self) -> Path:
        """The folder of the trained members."""
        return self.folder / "members"

    def options_as(self, kind: type[V]) -> V:
        """The options as the simulator's own. Raises ConfigError."""
        return parse_value(json.dumps(dict(self.options)), kind, where="options", as_json=True)


class Trainer(Protocol):
    """A simulator that can be trained. Members do not depend on each other, so that each may be made by another
    process; a process that makes one twice gives the same one."""

    def check(self, training: Training) -> None:
        """Check options, annotations and data, and write what members share. Raises ConfigError or DataError."""
        ...

    def train_member(self, training: Training, number: int) -> Path:
        """Train member `number`, from 1, and store it in a folder under `training.folder`, which is returned; nothing
        is done if it is there."""
        ...

    def table(self, training: Training) -> ResponseTable:
        """The predictions of the whole ensemble; members that are not there yet are trained."""
        ...

"""Errors a person can act on.

    VcloopError
    ├── ConfigError     the run config, a case file or an option says something we cannot do
    ├── DataError       a data file is missing, damaged, or not the one the case file was frozen on
    ├── ContractError   a component (setting, simulator, adapter, interpreter, policy) breaks its contract
    ├── ArchiveError    a run folder cannot be read, resumed or written
    ├── ReplyError      a reply could not be had or used (carries case and step)
    └── BudgetError     a limit of the run was reached; the run can be resumed

Every message says what was expected, what came, where, and what to do next.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class VcloopError(Exception):
    """Base of every error vcloop raises on purpose.

    `case` and `step` name the place in a run, where there is one.
    """

    def __init__(self, message: str, *, case: str | None = None, step: str | None = None):
        super().__init__(message)
        self.case = case
        self.step = step

    def __str__(self) -> str:
        place = ", ".join(f"{name} {value}" for name, value in (("case", self.case), ("step", self.step)) if value)
        ours = (note for note in getattr(self, "__notes__", ()) if not note.startswith("During task with name"))
        notes = "".join(f"\n{note}" for note in ours)
        return (f"{place}: " if place else "") + super().__str__() + notes


class ConfigError(VcloopError):
    """The run config, a case file or an option says something we cannot do."""


class DataError(VcloopError):
    """A data file is missing, damaged, or not the one the case file was frozen on."""


class ContractError(VcloopError):
    """A component breaks the contract that its kind has with the loop."""


class ArchiveError(VcloopError):
    """A run folder cannot be read, resumed or written."""


class ReplyError(VcloopError):
    """A reply could not be had or used."""


class BudgetError(VcloopError):
    """A limit of the whole run was reached; the run stops cleanly and can be resumed."""


def kind_of(error: VcloopError) -> type[VcloopError]:
    """The kind of error above that this one is of: a plugin's own may be made in another way."""
    return next(kind for kind in type(error).__mro__ if kind.__module__ == __name__)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """One sentence part that helps with a mis-spelled name: the nearest known names, then all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name.casefold(), [n.casefold() for n in names], n=1, cutoff=0.6)
    hint = ""
    if near:
        original = next(n for n in names if n.casefold() == near[0])
        hint = f" Did you mean {original!r}?"
    return f"{hint} Known: {', '.join(names) if names else 'none'}"

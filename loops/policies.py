"""Selection policies: which entry of the menu is measured next."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import Field

from evidence.contracts import Case, Measurement, NoOptions, SelectionView
from evidence.errors import ConfigError, ContractError, did_you_mean
from evidence.values import Name, Value
from loops.information import Worth, worth


class ModelProposal:
    """Measure what the interpretation model proposed."""

    Options: ClassVar[type[Value]] = NoOptions
    uses_proposal: ClassVar[bool] = True

    def __init__(self, options: NoOptions):
        self.options = options

    def select(self, view: SelectionView, *, seed: int) -> str | None:
        """The proposal; None where the model declined to measure."""
        return view.proposal


class RandomChoice:
    """Measure one entry of the menu, each as likely as the next, from the seed alone."""

    Options: ClassVar[type[Value]] = NoOptions
    uses_proposal: ClassVar[bool] = False

    def __init__(self, options: NoOptions):
        self.options = options

    def select(self, view: SelectionView, *, seed: int) -> str | None:
        """A uniform draw from the open menu; its order does not matter."""
        ids = sorted(m.id for m in view.open_menu)
        return random.Random(seed).choice(ids) if ids else None  # noqa: S311 - a seeded experiment, not a secret


class MaxVariance:
    """Measure the readout whose calibrated prediction is least certain; ties go to the first id."""

    Options: ClassVar[type[Value]] = NoOptions
    uses_proposal: ClassVar[bool] = False

    def __init__(self, options: NoOptions):
        self.options = options

    def select(self, view: SelectionView, *, seed: int) -> str | None:
        """The open measurement with the largest standard deviation; entries that measure no readout come last."""
        sd = {p.readout: p.sd for p in view.predictions}
        ranked = sorted(view.open_menu, key=lambda m: (-sd.get(m.readout or "", -1.0), m.id))
        return ranked[0].id if ranked else None


class FixedOptions(Value):
    """order: ids of measurements, the first that is still open is made."""

    order: tuple[Name, ...] = Field(min_length=1)


class FixedOrder:
    """Measure in a fixed order, the same in every case; an id that a case does not have is passed over there."""

    Options: ClassVar[type[Value]] = FixedOptions
    uses_proposal: ClassVar[bool] = False

    def __init__(self, options: FixedOptions):
        self.options = options

    def check(self, cases: Sequence[Case], measurements: int) -> None:
        """Raise ConfigError for an id on no menu, and for a case with fewer of the ids than it may measure."""
        known = {m.id for case in cases for m in case.menu}
        for name in self.options.order:
            if name not in known:
                raise ConfigError(f"policy 'fixed': no case can measure {name!r}.{did_you_mean(name, known)}")
        for case in cases:
            found = sorted({m.id for m in case.menu} & set(self.options.order))
            wanted = min(measurements, len(case.menu))
            if len(found) < wanted:
                raise ConfigError(
                    f"policy 'fixed': expected at least {wanted} of the order's ids on the menu of case {case.id!r}, "
                    f"got {', '.join(found) or 'none'}"
                )

    def select(self, view: SelectionView, *, seed: int) -> str | None:
        """The first id of the order that is open; None where none is."""
        ids = {m.id for m in view.open_menu}
        return next((name for name in self.options.order if name in ids), None)


class ExpectedInformationGain:
    """Measure what tells most about the values of all readouts together, for its cost (nats)."""

    Options: ClassVar[type[Value]] = NoOptions
    uses_proposal: ClassVar[bool] = False
    needs_joint: ClassVar[bool] = True

    def __init__(self, options: NoOptions):
        self.options = options

    def select(self, view: SelectionView, *, seed: int) -> str | None:
        """The open measurement with the largest expected information gain per cost; ties go to the first id."""
        return best_for_cost(view.open_menu, {k: w.information for k, w in _worths(view).items()})


class ExpectedAccuracyGain:
    """Measure what is expected to put most readouts right, for its cost."""

    Options: ClassVar[type[Value]] = NoOptions
    uses_proposal: ClassVar[bool] = False
    needs_joint: ClassVar[bool] = True

    def __init__(self, options: NoOptions):
        self.options = options

    def select(self, view: SelectionView, *, seed: int) -> str | None:
        """The open measurement with the largest expected accuracy gain per cost; ties go to the first id."""
        return best_for_cost(view.open_menu, {k: w.accuracy for k, w in _worths(view).items()})


def best_for_cost(menu: Sequence[Measurement], gains: Mapping[str, float]) -> str | None:
    """The id with the largest gain per cost. What costs nothing and gains something comes before all that costs."""

    def rate(entry: Measurement) -> float:
        gain = gains[entry.id]
        return gain / entry.cost if entry.cost else (math.inf if gain > 0 else 0.0)

    return min(menu, key=lambda m: (-rate(m), -gains[m.id], m.id)).id if menu else None


def _worths(view: SelectionView) -> dict[str, Worth]:
    if view.open_menu and view.joint is None:
        raise ContractError("expected a view with a joint posterior", case=view.case, step="select")
    return {m.id: worth(view.joint, view.readouts, m.readout, view.noise) for m in view.open_menu if view.joint}

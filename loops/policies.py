"""Selection policies: which entry of the menu is measured next."""

from __future__ import annotations

import random
from typing import ClassVar

from evidence.contracts import NoOptions, SelectionView
from evidence.values import Value


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

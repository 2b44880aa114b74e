"""The adapter that changes nothing: the simulator's predictions stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from evidence.contracts import AdapterInputs, NoOptions, Observation, Prediction
from evidence.values import Value


class Uncalibrated:
    """Return the simulator's predictions whatever was observed."""

    Options: ClassVar[type[Value]] = NoOptions

    def __init__(self, options: NoOptions):
        self.options = options

    def calibrate(self, inputs: AdapterInputs, observations: Sequence[Observation]) -> tuple[Prediction, ...]:
        """The simulator's predictions, unchanged."""
        return inputs.predictions

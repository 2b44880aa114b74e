"""The adapter that corrects only what was measured: what the published pilots amount to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from evidence.contracts import AdapterInputs, NoOptions, Observation, Prediction
from evidence.values import Value


class Local:
    """A measured readout takes the measured value and its standard error; every other prediction stays."""

    Options: ClassVar[type[Value]] = NoOptions

    def __init__(self, options: NoOptions):
        self.options = options

    def calibrate(self, inputs: AdapterInputs, observations: Sequence[Observation]) -> tuple[Prediction, ...]:
        """Predictions with the measured ones replaced; a missing measurement replaces nothing."""
        measured = {
            o.readout: Prediction(readout=o.readout, mean=o.value, sd=o.se or 0.0)
            for o in observations
            if o.status == "measured" and o.readout is not None and o.value is not None
        }
        return tuple([measured.get(p.readout, p) for p in inputs.predictions])

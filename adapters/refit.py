"""The refit adapter: the simulator itself, updated on the observations, as stored when the case was prepared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from evidence.contracts import AdapterInputs, NoOptions, Observation, Prediction
from evidence.errors import ConfigError
from evidence.values import Value


class Refitted:
    """Look up what the simulator predicts after it was updated on exactly these observations."""

    Options: ClassVar[type[Value]] = NoOptions
    needs_refits: ClassVar[bool] = True

    def __init__(self, options: NoOptions):
        self.options = options

    def calibrate(self, inputs: AdapterInputs, observations: Sequence[Observation]) -> tuple[Prediction, ...]:
        """The stored predictions; the simulator's own where nothing usable was observed.

        Raises ConfigError where the inputs hold no predictions for these observations.
        """
        made = tuple(sorted(o.measurement for o in observations if o.informs(inputs.readouts)))
        if not made:
            return inputs.predictions
        for refit in inputs.refits:
            if refit.measurements == made:
                return refit.predictions
        raise ConfigError(
            f"adapter 'refit': expected predictions of the simulator refitted on {', '.join(made)}; the run has them "
            f"for {len(inputs.refits)} other sets of measurements. Only a run with adapter refit makes them"
        )

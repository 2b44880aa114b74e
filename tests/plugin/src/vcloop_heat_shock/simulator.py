"""A simulator: the mean response of the other strains."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import ClassVar

from evidence.contracts import NoOptions, Observation, Perturbation, Prediction
from evidence.values import Value
from vcloop_heat_shock.setting import KnownResponses


class MeanResponse:
    """Predict the mean of every strain but the one asked for."""

    Options: ClassVar[type[Value]] = NoOptions
    accepts: ClassVar[str] = "known_responses"

    def __init__(self, options: NoOptions):
        self.options = options
        self._known: KnownResponses | None = None

    def fit(self, training: KnownResponses, *, seed: int) -> None:
        """Keep the known responses."""
        self._known = training

    def predict(self, perturbation: Perturbation, readouts: Sequence[str]) -> tuple[Prediction, ...]:
        """Mean and spread over the other strains."""
        known = [r for r in (self._known.responses if self._known else ()) if r.perturbation.id != perturbation.id]
        values = {g: [r.value for r in known if r.readout == g] for g in readouts}
        return tuple(
            Prediction(readout=g, mean=statistics.fmean(values[g]), sd=statistics.stdev(values[g])) for g in readouts
        )

    def refit(
        self, perturbation: Perturbation, readouts: Sequence[str], observations: Sequence[Observation]
    ) -> tuple[Prediction, ...]:
        """Predictions shifted by the mean surprise of what was measured."""
        made = self.predict(perturbation, readouts)
        means = {p.readout: p.mean for p in made}
        surprises = [o.value - means[o.readout] for o in observations if o.value is not None and o.readout in means]
        shift = statistics.fmean(surprises) if surprises else 0.0
        return tuple(p.model_copy(update={"mean": p.mean + shift}) for p in made)

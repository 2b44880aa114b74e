"""From cells to a CPA response table: ensemble, counterfactual predictions. Resumable by member."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from simulators.cpa import compat
from simulators.members import member_folder
from simulators.response_table import ResponseTable
from simulators.training import Training

if TYPE_CHECKING:
    from simulators.cpa.facts import CpaOptions
    from simulators.cpa.model import Cpa


class CpaTrainer:
    """CPA as `vcloop simulate` trains it (see simulators.training.Trainer). Annotations are not used: CPA learns an
    embedding for each drug."""

    def check(self, training: Training) -> None:
        """Raises ConfigError for bad options or a missing package, DataError for data that cannot be trained on."""
        options = _options(training)
        from simulators.cpa.facts import plan_member, training_cells

        plan_member(training_cells(training.data), options, training.seed)

    def train_member(self, training: Training, number: int) -> Path:
        """Train one network with the held-out combinations left out."""
        (member,) = _train(training, number).members
        return member_folder(training.kept, member.facts)

    def table(self, training: Training) -> ResponseTable:
        """Every wanted combination that CPA can predict."""
        cpa, wanted = _train(training), training.data.wanted
        skipped = [c.id for c in wanted if not cpa.can_predict(c)]
        if skipped:
            training.say(f"no prediction, a drug is in no training condition: {', '.join(skipped)}")
        return cpa.table([c for c in wanted if cpa.can_predict(c)], synthetic=training.data.synthetic)


def _train(training: Training, number: int | None = None) -> Cpa:
    options = _options(training)
    from simulators.cpa.model import Cpa

    return Cpa.train(
        training.data,
        options,
        members=training.members,
        seed=training.seed,
        only=number,
        out=training.kept,
        say=training.say,
    )


def _options(training: Training) -> CpaOptions:
    compat.require()
    from simulators.cpa.facts import CpaOptions

    return training.options_as(CpaOptions)

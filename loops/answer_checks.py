"""Are archived answers such as a reply can give: to the readouts asked, with labels that were options, real chances."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from evidence.errors import ArchiveError
from interpreters.reply import SUM_TOLERANCE
from loops.answers import Answers, by_width, spans, sums
from loops.opened import Asked
from loops.step_columns import StepColumns


class Questions:
    """What cases ask in a run: the ids of the readouts, and for each the labels that are options.

    `codes` are the numbers of the ids, `kinds` those of the options, among those of the run.
    """

    def __init__(self, asked: Asked, answers: Answers):
        self.asked = asked
        self.names = asked.names
        self.codes = [answers.readouts[name] for name in self.names]
        self.kinds = [answers.options[r.labels] for r in asked.readouts]
        self._answers = answers

    def check(self, steps: Sequence[int], of: StepColumns) -> None:
        """Raise ArchiveError where a step has answers, and they are not such as a reply to these questions can give."""
        options = self._answers.options.things
        for step in steps:
            answers, name = self._answers.of(of.first[step], of.size[step]), of.step(step)
            if answers and tuple(a.readout for a in answers) != self.names:
                raise ArchiveError(f"step {name}: answers to {[a.readout for a in answers]}")
            for a, kind in zip(answers, self.kinds, strict=False):
                if a.label is not None and a.label not in options[kind]:
                    raise ArchiveError(f"step {name}: {a.label!r} is no option of {a.readout!r}")
                if a.confidence is not None and not 0 <= a.confidence <= 1:
                    raise ArchiveError(f"step {name}: the confidence of {a.readout!r} is not from 0 to 1")
                if a.probabilities is not None and not _fit(a.probabilities, options[kind]):
                    raise ArchiveError(
                        f"step {name}: the probabilities of {a.readout!r} are not one a label that sum to 1"
                    )


def all_fit(questions: Sequence[Questions], which: NDArray[np.intp], steps: NDArray[np.intp], of: StepColumns) -> bool:
    """Whether `Questions.check` takes all of these steps, settled for all at once.

    steps (n,): their numbers; which (n,): the place of the questions that each answers.
    """
    answers, width = of.answers, np.array([len(case.names) for case in questions], dtype=np.intp)
    codes = np.array([code for case in questions for code in case.codes], dtype=np.intp)
    kinds = np.array([kind for case in questions for kind in case.kinds], dtype=np.intp)
    size = np.asarray(of.size)[steps]
    given = np.flatnonzero(size)
    case_of, first, size = which[given], np.asarray(of.first)[steps][given], size[given]
    if (size != width[case_of]).any():
        return False
    entries, at = spans(first, size), spans((np.cumsum(width) - width)[case_of], size)
    if (np.asarray(answers.readout)[entries] != codes[at]).any():
        return False
    heads, options, kind = answers.heads.things, answers.options.things, kinds[at]
    for pair in set((kind * len(heads) + np.asarray(answers.head)[entries]).tolist()):
        label, _, _ = heads[pair % len(heads)]
        if label is not None and label not in options[pair // len(heads)]:
            return False
    stated = np.asarray(answers.confidence)[entries]
    if ((stated < 0) | (stated > 1)).any():
        return False
    if not answers.probabilities:
        return True
    pairs = zip(entries.tolist(), kind.tolist(), strict=True)
    chances = [(answers.probabilities[entry], options[k]) for entry, k in pairs if entry in answers.probabilities]
    if [p for p, labels in chances if len(p) != len(labels)]:
        return False
    return all(_sound(table).all() for _, table in by_width([p for p, _ in chances]))


def _fit(chances: Sequence[float], labels: Collection[str]) -> bool:
    """Whether there is a probability for every label, and they sum to 1 as closely as in a reply."""
    return len(chances) == len(labels) and bool(_sound(np.array([chances], dtype=float))[0])


def _sound(table: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which rows, (n, width) -> (n,), are probabilities that sum to 1 as closely as in a reply."""
    within = ((table >= 0) & (table <= 1)).all(axis=1)
    return np.asarray(within & (np.abs(sums(table) - 1) <= SUM_TOLERANCE + 1e-9))

"""Tracks: what of an item a candidate is shown, and two filters that need no figure.

mcq       figures, question, options          open      figures and question, free text
no_image  question and options only: what the text alone gives away
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from benchmarks.items import LETTERS, Item
from evidence.errors import DataError
from evidence.values import Value, derive_seed

Track = Literal["mcq", "open", "no_image"]
OptionOrder = Literal["given", "shuffled"]

SHORTCUT_ANSWERS = 10
SHORTCUT_RIGHT = 5
"""An item that is answered right so often without its figure is discarded (SPUR's filter)."""


class Shown(Value):
    """How an item was shown: `order[i]` is the number of the option that stood at the i-th letter."""

    track: Track
    order: tuple[int, ...] = ()

    @property
    def letters(self) -> str:
        """The letters of the options as shown."""
        return LETTERS[: len(self.order)]

    @property
    def with_figures(self) -> bool:
        """Whether the figures were shown."""
        return self.track != "no_image"

    def texts(self, item: Item) -> dict[str, str]:
        """The text of each option by its letter as shown."""
        return {letter: item.options[number] for letter, number in zip(self.letters, self.order, strict=True)}

    def chosen(self, letter: str | None) -> int | None:
        """The number of the option that stood at a letter."""
        return None if letter is None else self.order[self.letters.index(letter)]


def show(item: Item, track: Track, how: OptionOrder, seed: int, repeat: int) -> Shown:
    """What is shown of an item in one repeat. A shuffled order depends on the seed, the item and the repeat alone."""
    if track == "open":
        return Shown(track=track)
    order = range(len(item.options))
    if how == "shuffled":
        mixed = np.random.default_rng(derive_seed(seed, "options", item.id, str(repeat))).permutation(len(order))
        return Shown(track=track, order=tuple(int(i) for i in mixed))
    return Shown(track=track, order=tuple(order))


def unfit(items: Iterable[Item], track: Track) -> list[str]:
    """Why items cannot be asked in a track."""
    problems = []
    for item in items:
        if track != "open" and not item.options:
            problems.append(f"item {item.id!r} has no options")
        if track != "no_image" and not item.images:
            problems.append(f"item {item.id!r} has no figure")
    return problems


# --- the text-only shortcut filter -------------------------------------------------------------------------------


class Shortcut(NamedTuple):
    """How often one item was answered right without its figure."""

    item: str
    n: int
    n_right: int

    @property
    def discard(self) -> bool:
        """Whether the item gives itself away."""
        return self.n_right >= SHORTCUT_RIGHT


def shortcuts(rows: Iterable[Mapping[str, Any]]) -> list[Shortcut]:
    """The filter over the rows of a no-image run (scores/items.jsonl), in order of first occurrence.

    Raises DataError unless every item has ten answers (readable or not), each with an option order of its own draw.
    """
    right: dict[str, list[bool]] = defaultdict(list)
    for row in rows:
        right[row["item"]].append(row["right"])
    counts = Counter(map(len, right.values()))
    if set(counts) != {SHORTCUT_ANSWERS}:
        raise DataError(
            f"the shortcut filter takes {SHORTCUT_ANSWERS} answers an item; got {dict(sorted(counts.items()))} "
            f"(answers: items); run the track no_image with options: shuffled and repeats: {SHORTCUT_ANSWERS}"
        )
    return [Shortcut(item, len(marks), sum(marks)) for item, marks in right.items()]


# --- the odd-one-out audit ---------------------------------------------------------------------------------------

_UP = (
    r"increas\w*|elevat\w*|enhanc\w*|promot\w*|upregulat\w*|up-regulat\w*|higher|greater|more|rise[sn]?|rising|gain\w*"
)
_DOWN = (
    r"decreas\w*|reduc\w*|lower\w*|inhibit\w*|suppress\w*|downregulat\w*|down-regulat\w*|less|fewer|declin\w*|loss"
    r"|los[te]s?|impair\w*|diminish\w*"
)
_SAME = (
    r"unchanged|unaffected|no (?:significant |clear |obvious )?(?:change|difference|effect)|remains? (?:similar|stable)"
)
_NOT = re.compile(r"\b(?:not|no|never|neither|without|fails?|cannot)\b|n['\u2019]t\b", re.IGNORECASE)
_WORDS = re.compile(rf"\b(?:(?P<same>{_SAME})|(?P<up>{_UP})|(?P<down>{_DOWN}))\b", re.IGNORECASE)
REACH = 30
"""A negation counts for a word of direction at most this many characters after it."""

Polarity = Literal["up", "down", "same", "mixed", "none"]


def polarity(text: str) -> Polarity:
    """The direction that an option claims, by its words: one direction, several (mixed), or none.

    A negated direction counts as "same"; this is a rule on words that finds candidates for a person to look at.
    """
    found = set()
    for match in _WORDS.finditer(text):
        before = text[max(0, match.start() - REACH) : match.start()]
        negated = match.lastgroup != "same" and _NOT.search(before) is not None
        found.add("same" if negated else str(match.lastgroup))
    names: tuple[Polarity, ...] = ("up", "down", "same")
    return "mixed" if len(found) > 1 else next((name for name in names if name in found), "none")


class OddOne(NamedTuple):
    """An item whose right option alone has another polarity than all the others."""

    item: str
    key: Polarity
    others: Polarity


def odd_ones(items: Sequence[Item]) -> list[OddOne]:
    """Items with three options or more whose key stands out: every other option claims one and the same direction."""
    found = []
    for item in items:
        if len(item.options) < 3:
            continue
        sides = [polarity(option) for option in item.options]
        others = {side for number, side in enumerate(sides) if number != item.key}
        mine = sides[item.key]
        if len(others) == 1 and mine not in others and not {mine, *others} & {"none", "mixed"}:
            found.append(OddOne(item.id, mine, others.pop()))
    return found

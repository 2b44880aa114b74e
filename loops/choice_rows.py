"""Rows of scores/cases.jsonl: how well the first measurement of a case was chosen, as text and as numbers."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np

from loops.information import Worth
from loops.lines import number_texts, text_json
from loops.opened import Case

CHOOSERS = ("chosen", "oracle", "eig", "eag")
RESULTS = ("right", "mae")
GAINS = ("expected_gain", "gain")
COLUMNS = (
    ("n_readouts",),
    *(("before", key) for key in RESULTS),
    *((way, key) for way in (*CHOOSERS, "random") for key in RESULTS),
    *((way, key) for way in CHOOSERS for key in GAINS),
    *(("regret", key) for key in RESULTS),
)
"""The numbers of a row that the summary needs; NaN (in memory only) where there is none."""


class Tried(NamedTuple):
    """A case without a measurement and after each affordable entry, and what each was expected to be worth.

    right, mae: readouts right and mean absolute error over all readouts, before and after each entry. joint: whose
    joint posterior the worths come from; None, and no worths, where there is none. picks: way of choosing -> entry.
    """

    entries: tuple[str, ...]
    right: Sequence[int]
    mae: Sequence[float]
    worths: Sequence[Worth]
    joint: str | None
    picks: Mapping[str, str | None]


_Pair = tuple[float, float]
_NONE: Final = (math.nan, math.nan)
_ROW: Final = (
    '{"before":{"mae":%s,"right":%d},"case":%s,"chosen":%s,"eag":%s,"eig":%s,"joint":%s,"menu":{%s},"n_readouts":%d,'
    '"oracle":%s,"random":%s,"regret":{"mae":%s,"right":%s},"repeat":'
)
_ENTRY: Final = '%s:{"accuracy":%s,"information":%s,"mae":%s,"right":%d}'
_WAY: Final = '{"expected_gain":%s,"gain":%d,"mae":%s,"measurement":%s,"right":%d}'
_RANDOM: Final = '{"mae":%s,"right":%s}'
"""Canonical JSON of the parts of a row, their keys in order."""


class Chosen:
    """The row of the cells of a case that measured the same first. `numbers` are those of COLUMNS, not rounded."""

    def __init__(self, case: Case, chosen: str | None, tried: Tried):
        entries, right, mae = tried.entries, tried.right, tried.mae
        self.case = case
        self.tried = tried
        self.random, self.regret = _random(tried), _regret(chosen, tried)
        picks = {"chosen": chosen, **tried.picks}
        self.at = [entries.index(m) if (m := picks[way]) is not None and m in entries else None for way in CHOOSERS]
        results, gains = list[float](), list[float]()
        for k in self.at:
            if k is None:
                results += _NONE
                gains += _NONE
            else:
                results += (right[k + 1], mae[k + 1])
                gains += (tried.worths[k].accuracy if tried.worths else math.nan, right[k + 1] - right[0])
        fixed = (len(case.asked.names), right[0], mae[0])
        self.numbers = array("d", (*fixed, *results, *self.random, *gains, *self.regret))
        self._line = ""

    @property
    def line(self) -> str:
        """A format with one `%s` for the repeat; made here where `write_rows` has not made it with others."""
        if not self._line:
            write_rows([self])
        return self._line

    @property
    def row(self) -> Mapping[str, Any]:
        """The row, as one of repeat 0."""
        row: Mapping[str, Any] = json.loads(self.line % 0)
        return row

    @property
    def written(self) -> bool:
        """Whether there is a line."""
        return bool(self._line)

    def stated(self) -> list[float]:
        """The numbers of the line that have decimals, NaN where there is none."""
        worths = self.tried.worths
        found = [*self.tried.mae, *self.random, self.regret[1]]
        return [*found, *[w.accuracy for w in worths], *[w.information for w in worths]] if worths else found

    def write(self, texts: Iterator[str]) -> None:
        """Make the line; `texts` gives those numbers."""
        tried, right, n = self.tried, self.tried.right, len(self.tried.entries)
        names, mae = list(map(text_json, tried.entries)), list(islice(texts, n + 1))
        random_right, random_mae, regret_mae = islice(texts, 3)
        accuracy = list(islice(texts, len(tried.worths))) or ["null"] * n
        information = list(islice(texts, len(tried.worths))) or accuracy
        chosen, oracle, eig, eag = [
            "null" if k is None else _WAY % (accuracy[k], right[k + 1] - right[0], mae[k + 1], names[k], right[k + 1])
            for k in self.at
        ]
        menu = [
            _ENTRY % (names[k], accuracy[k], information[k], mae[k + 1], right[k + 1])
            for _, k in sorted(zip(tried.entries, range(n), strict=True))
        ]
        random = _RANDOM % (random_mae, random_right) if n else "null"
        regret = "null" if math.isnan(self.regret[0]) else int(self.regret[0])
        text = _ROW % (
            *(mae[0], right[0], text_json(self.case.id), chosen, eag, eig, text_json(tried.joint), ",".join(menu)),
            *(len(self.case.asked.names), oracle, random, regret_mae, regret),
        )
        self._line = text.replace("%", "%%") + "%s}\n"


def write_rows(rows: Iterable[Chosen]) -> None:
    """Make the lines of the rows that have none yet; the numbers of all of them are written together."""
    new = list({id(row): row for row in rows if not row.written}.values())
    texts = iter(number_texts(np.array([x for row in new for x in row.stated()])))
    for row in new:
        row.write(texts)


def _random(tried: Tried) -> _Pair:
    """Readouts right and error as means over the menu: what a uniform draw gives on average."""
    n = len(tried.entries)
    return (sum(tried.right[1:]) / n, math.fsum(tried.mae[1:]) / n) if n else _NONE


def _regret(chosen: str | None, tried: Tried) -> _Pair:
    """How many more readouts the oracle has right, and how much smaller the smallest error is."""
    oracle = tried.picks["oracle"]
    if chosen is None or oracle is None or chosen not in tried.entries:
        return _NONE
    mine, best = tried.entries.index(chosen) + 1, tried.entries.index(oracle) + 1
    return tried.right[best] - tried.right[mine], tried.mae[mine] - min(tried.mae[1:])

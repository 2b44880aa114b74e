"""Splitting one text with all options into its options, or saying that it cannot be split for sure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_LABEL = re.compile(r"(?:(?<=\s)|^|(?<=[.;!?]))([A-F])[.)](?=\s|$)")
_SENTENCE_END = re.compile(r"(?:^|[.;:!?)\]]\s*|\n\s*)$")
_SPECIES = re.compile(
    r"[.)]\s(?:coli|cloacae|faecalis|elegans|subtilis|cereus|anthracis|bronchiseptica|burgdorferi|melanogaster|rerio"
    r"|discoideum|thaliana|baumannii|fumigatus|niger|aegypti|albicans|difficile|jejuni|trachomatis|glutamicum|bovis)\b"
)
"""Abbreviated genus names (E. coli, C. elegans) are no labels."""

FEWEST, MOST = 4, 5
MAX_WAYS = 1000
MAX_LENGTH = 20_000


def split_options(text: str) -> tuple[str, ...]:
    """The options of a text such as "A. x B. y<br>C. z D. w", without their labels.

    A label is a letter with "." or ")" after a blank, a line end, `<br>` or a full stop; square brackets around the
    whole are dropped. Labels come in order from A. A label in doubt is one that follows no end of a sentence and is
    followed by a small letter. Raises ValueError unless there is exactly one way to read four or five options, and
    the labels in doubt allow no other.
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"the options have {len(text)} characters; expected at most {MAX_LENGTH}")
    body = _BREAK.sub("\n", text).strip()
    if body.startswith("[") and body.endswith("]"):
        body = body[1:-1].strip()
    labels = [m for m in _LABEL.finditer(body) if not _SPECIES.match(body, m.start() + 1)]
    clear = [m for m in labels if not _in_doubt(body, m)]
    sure, possible = _longest(body, clear), _longest(body, labels)
    if sure != possible or len(sure) != 1:
        raise ValueError(f"the options cannot be split in one way only: {text[:80]!r}")
    options = sure.pop()
    if not FEWEST <= len(options) <= MOST:
        raise ValueError(f"expected {FEWEST} or {MOST} options from A. on, found {len(options)}: {text[:80]!r}")
    return options


def _in_doubt(body: str, label: re.Match[str]) -> bool:
    after = body[label.end() :].lstrip()
    return not _SENTENCE_END.search(body[: label.start()]) and after[:1].islower()


def _longest(body: str, labels: Sequence[re.Match[str]]) -> set[tuple[str, ...]]:
    """Every way to read the most options; no option is empty. Nothing where there are too many ways to look at."""
    chains = list(itertools.islice(_chains(labels, ()), MAX_WAYS + 1))
    if len(chains) > MAX_WAYS:
        return set()
    ways = {_cut(body, chain) for chain in chains}
    whole = {way for way in ways if all(way)}
    most = max(map(len, whole), default=0)
    return {way for way in whole if len(way) == most}


def _chains(labels: Sequence[re.Match[str]], chain: tuple[re.Match[str], ...]) -> Iterator[tuple[re.Match[str], ...]]:
    """Every run of labels A, B, C ... in order of place that begins with the text."""
    if chain:
        yield chain
    letter = chr(ord("A") + len(chain))
    for number, label in enumerate(labels):
        if label[1] == letter and (chain or label.start() == 0):
            yield from _chains(labels[number + 1 :], (*chain, label))


def _cut(body: str, chain: Sequence[re.Match[str]]) -> tuple[str, ...]:
    ends = [label.start() for label in chain[1:]] + [len(body)]
    return tuple(body[label.end() : end].strip() for label, end in zip(chain, ends, strict=True))

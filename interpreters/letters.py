"""Reading a multiple-choice letter and a judge's score from a reply.

A letter is read by the first of these that applies (docs/replies.md has the rules with examples):

1. tag: an explicit tag ("Answer: B", <answer>B</answer>, \\boxed{B}, an "answer" key). The last tag decides, even where
   what it holds cannot be read; no earlier tag stands in for it.
2. bare: the whole reply is one letter.
3. sentence: "the answer is B", "I choose B". The last one with a letter, or with "not", "both", "unclear" ..., decides.
4. text: the full text of exactly one option occurs in a reply that denies nothing.

1 and 2 are strict, 3 and 4 lenient. Everything else is unparsed: never a random letter, never the first option.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from interpreters.extract import answer_part, extract_object, shown
from interpreters.numbers import read_number

LetterRule = Literal["tag", "bare", "sentence", "text", "none"]


class LetterReading(NamedTuple):
    """The letter chosen, as in the options, and the rule that read it; or no letter, rule "none" and a reason."""

    letter: str | None
    rule: LetterRule
    reason: str = ""

    @property
    def status(self) -> Literal["letter", "unparsed"]:
        """ "letter" or "unparsed"."""
        return "unparsed" if self.letter is None else "letter"

    @property
    def strict(self) -> bool:
        """Whether the reply kept to the form asked for: counted in the strict rate; the others are lenient."""
        return self.rule in ("tag", "bare")


class ScoreReading(NamedTuple):
    """A judge's score, or the reason why the reply is unscored. Exactly one of the two is given."""

    score: float | None
    reason: str = ""

    @property
    def status(self) -> Literal["scored", "unscored"]:
        """ "scored" or "unscored"."""
        return "unscored" if self.score is None else "scored"


_TAG = re.compile(
    r"<answer>|\\boxed\{"
    r"|\b(?:answer|choice|option)[\"'`*_)\]]{0,6}\s{0,4}[:=]"  # Answer: / "answer": / **Answer**:
    r"|^[#*_\s]{0,8}(?:final\s+)?answer[*_\s]{0,8}$",  # a heading of its own
    re.IGNORECASE | re.MULTILINE,
)
_SENTENCE = re.compile(
    r"\b(?:answer|choice|option)\s{1,4}(?:is|would\s+be|must\s+be|should\s+be)\b:?"
    r"|\bI\s+(?:(?:would|will)\s+)?(?:choose|select|pick|go\s+with)\b",
    re.IGNORECASE,
)
_WRAP = r"(?:[\s$*()\[\]`\"'_{}<>]|\\(?:text(?:bf)?|math(?:rm|bf))?)"
_TOKEN = re.compile(rf"(?:{_WRAP}|\b(?:option|choice|answer)\s)*+(?P<letter>[A-Z])(?![\w'\u2019]|-\w)", re.IGNORECASE)
_CLOSING = re.compile(rf"{_WRAP}*+")
_CONNECTOR = re.compile(r"\s*(?:[,/&+;]\s*(?:and\b|or\b)?|and\b|or\b)", re.IGNORECASE)
_DECIDES = re.compile(
    r"\s*(?:not|none|neither|both|either|all|unclear|unknown|uncertain|undetermined|impossible|cannot)\b", re.IGNORECASE
)
_DENIES = re.compile(
    r"\b(?:not|none|neither|nor|both|either|unclear|incorrect|wrong|false|except|rather|cannot)\b|n['\u2019]t\b",
    re.IGNORECASE,
)
_GOES_ON = re.compile(r"[ \t]+(?:because|since|as|due|given|with|for|based|is|and|or|not|rather)\b", re.IGNORECASE)
_WORD_FOLLOWS = re.compile(r"[ \t]+\w")


def read_letter(text: str, options: Sequence[str], texts: Mapping[str, str] | None = None) -> LetterReading:
    """Read the letter of one of `options`; `texts` gives the full text of each option, where it may count."""
    letters = {option.upper(): option for option in options}
    body = answer_part(text).strip()
    tags = list(_TAG.finditer(body))
    if tags:
        held = _held(body, tags[-1])
        letter = _first(held, letters, texts)
        if letter is not None:
            return LetterReading(letter, "tag")
        return _lenient(held, letters, texts, f"the last answer tag holds {shown(held.strip(), 40)}")
    token = _TOKEN.match(body)
    if token and not body[token.end() :].strip(" \t\r\n$*()[]`\"'_{}<>\\."):
        return _reading(letters.get(token["letter"].upper()), "bare", f"{shown(body, 40)} is not an option")
    return _lenient(body, letters, texts, "no answer tag, no single letter, no unique option text")


def read_judge_score(text: str, low: float, high: float, key: str = "score") -> ScoreReading:
    """Read a judge's score: the number under `key` of the reply's one JSON object, from `low` to `high`.

    Numbers in prose are never taken; "9/10" is a text, not 9 and not 0.9; what is out of range is not moved into it.
    """
    found = extract_object(text)
    if found.value is None:
        return ScoreReading(None, found.problem)
    if key not in found.value:
        return ScoreReading(None, f"the JSON object has no {shown(key)}")
    reading = read_number(found.value[key], low, high)
    return ScoreReading(reading.value, f"{key}: {reading.problem}" if reading.problem else "")


def _lenient(body: str, letters: Mapping[str, str], texts: Mapping[str, str] | None, reason: str) -> LetterReading:
    letter = _in_sentences(body, letters, texts)
    if letter is not None:
        return LetterReading(letter, "sentence")
    return _reading(_by_text(body, letters, texts), "text", reason)


def _reading(letter: str | None, rule: LetterRule, reason: str) -> LetterReading:
    return LetterReading(None, "none", reason) if letter is None else LetterReading(letter, rule)


def _held(body: str, tag: re.Match[str]) -> str:
    """What a tag holds: up to its end mark, else the next paragraph."""
    rest = body[tag.end() : tag.end() + 2000].lstrip()
    end = "</answer" if tag[0].startswith("<") else "\n\n"
    return re.split(end, rest, maxsplit=1, flags=re.IGNORECASE)[0]


def _first(text: str, letters: Mapping[str, str], texts: Mapping[str, str] | None) -> str | None:
    """The option letter a text begins with, unless it is a word ("a car", "A-type") or one of two letters."""
    token = _TOKEN.match(text)
    if token is None or token["letter"].upper() not in letters:
        return None
    after = text[token.end() :]
    upper = token["letter"].upper()
    if _is_word(token["letter"], after) and not _starts_with(after, (texts or {}).get(letters[upper])):
        return None
    rest = after[_end(_CLOSING, after) :]
    return None if _second(rest, letters, upper) else letters[upper]


def _second(rest: str, letters: Mapping[str, str], first: str) -> bool:
    """Whether another option letter is joined on: "A and C", "B/D"."""
    joined = _CONNECTOR.match(rest)
    token = _TOKEN.match(rest[joined.end() :]) if joined else None
    if joined is None or token is None or token["letter"].upper() not in set(letters) - {first}:
        return False
    return not _is_word(token["letter"], rest[joined.end() + token.end() :])


def _is_word(letter: str, after: str) -> bool:
    """Whether a single letter is a word of the sentence: the article "a", the pronoun "I", a lower-case letter."""
    if not _WORD_FOLLOWS.match(after) or _GOES_ON.match(after):
        return False
    return letter.islower() or letter in "AI"


def _in_sentences(body: str, letters: Mapping[str, str], texts: Mapping[str, str] | None) -> str | None:
    for sentence in reversed(list(_SENTENCE.finditer(body))):
        rest = body[sentence.end() : sentence.end() + 500]
        letter = _first(rest, letters, texts)
        if letter is not None:
            return letter
        if _DECIDES.match(rest) or _TOKEN.match(rest.rstrip(" .")):
            return None
    return None


def _by_text(body: str, letters: Mapping[str, str], texts: Mapping[str, str] | None) -> str | None:
    """The option whose full text occurs; None where two do, or where anything is denied."""
    if not texts or _DENIES.search(body):
        return None
    flat = _flat(body)
    found = {letter: _flat(text) for letter, text in texts.items() if _flat(text) and _occurs(_flat(text), flat)}
    whole = [a for a, text in found.items() if not any(text != other and text in other for other in found.values())]
    return letters.get(whole[0].upper()) if len(whole) == 1 else None


def _starts_with(after: str, text: str | None) -> bool:
    return bool(text) and _flat(after).startswith(_flat(text or ""))


def _occurs(text: str, flat: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(text)}(?!\w)", flat) is not None


def _flat(text: str) -> str:
    return " ".join(text.casefold().split()).strip(" .")


def _end(pattern: re.Pattern[str], text: str) -> int:
    match = pattern.match(text)
    return match.end() if match else 0

"""Sachs 2005: the proteins, and what each condition did to them (which reagent, which target, which direction).

Source: Sachs et al. 2005, Science 308:523, table 1 and supplement. Baselines are no interventions and are never offered
as one; a condition without an entry here is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from evidence.errors import DataError, did_you_mean

PROTEINS: tuple[str, ...] = ("Raf", "Mek", "Plcg", "PIP2", "PIP3", "Erk", "Akt", "PKA", "PKC", "P38", "Jnk")
"""Canonical names in the order of the published columns (PIP2 and PIP3 are lipids; "protein" is used for all 11)."""

SPELLINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Raf": ("raf", "praf"),
        "Mek": ("mek", "pmek"),
        "Plcg": ("plcg", "plc", "pplcg", "plcgamma"),
        "PIP2": ("pip2",),
        "PIP3": ("pip3",),
        "Erk": ("erk", "perk", "p44/42", "p4442"),
        "Akt": ("akt", "pakt", "pakts473"),
        "PKA": ("pka",),
        "PKC": ("pkc",),
        "P38": ("p38", "pp38"),
        "Jnk": ("jnk", "pjnk"),
    }
)
_CANONICAL = {spelling: protein for protein, spellings in SPELLINGS.items() for spelling in spellings}

Kind = Literal["fluorescence", "levels"]
Action = Literal["baseline", "inhibit", "activate", "mixed"]
DIRECTION = {
    "inhibit": "inhibited",
    "activate": "activated",
    "mixed": "inhibited in half of the cells, activated in half",
}


@dataclass(frozen=True)
class Condition:
    """One condition.

    target: the measured protein acted on, None at baseline. proxy: the reagent acts on something unmeasured, and
    `target` stands in for it; then `note` says so. n_cells: published count.
    """

    id: str
    reagent: str
    action: Action
    target: str | None = None
    n_cells: int = 0
    note: str = ""
    proxy: bool = False

    @property
    def baseline(self) -> bool:
        """Whether these are cells without an intervention."""
        return self.action == "baseline"

    @property
    def words(self) -> str:
        """What was done, in words: direction included, so that an activation never reads as an inhibition."""
        if self.target is None:
            return self.reagent
        if self.proxy:
            return f"{self.reagent}: its target is not measured, {self.target} {DIRECTION[self.action]} as a stand-in"
        return f"{self.reagent}: {self.target} {DIRECTION[self.action]}"

    @property
    def mark(self) -> str:
        """One word for the target in a figure."""
        return (
            "stand-in"
            if self.proxy
            else {"inhibit": "inhibited", "activate": "activated"}.get(self.action, self.action)
        )


_UNSTIMULATED = (
    "given without CD3/CD28 stimulation, unlike the baseline, so part of the change is the missing stimulation"
)
_PI3K = (
    "acts on PI3K, which is not among the 11 measured proteins; PIP3, the product of PI3K, stands in as an explicit "
    "proxy. Sources disagree whether this condition counts as an intervention"
)
_POOLED = (
    "the file pools cells of the PKC inhibitor g0076 and of the PKC activator pma (600 each) without saying which is "
    "which; it is treated as an even mixture of low and high PKC"
)

FLUORESCENCE: tuple[Condition, ...] = (
    Condition("cd3cd28", "anti-CD3/CD28", "baseline", None, 853),
    Condition("cd3cd28icam2", "anti-CD3/CD28 + ICAM-2", "baseline", None, 902),
    Condition("aktinhib", "Akt inhibitor", "inhibit", "Akt", 911),
    Condition("g0076", "G0076 (PKC inhibitor)", "inhibit", "PKC", 723),
    Condition("psitect", "psitectorigenin (binds PIP2)", "inhibit", "PIP2", 810),
    Condition("u0126", "U0126 (MEK inhibitor)", "inhibit", "Mek", 799),
    Condition("ly", "LY294002 (PI3K inhibitor)", "inhibit", "PIP3", 848, _PI3K, proxy=True),
    Condition("pma", "PMA (PKC activator)", "activate", "PKC", 913, _UNSTIMULATED),
    Condition("b2camp", "b2cAMP (PKA activator)", "activate", "PKA", 707, _UNSTIMULATED),
)
"""Conditions 1-9 of the published tables, in their order."""

LEVELS: tuple[Condition, ...] = (
    Condition("int_none", "no intervention (INT 0)", "baseline", None, 1800),
    Condition("int_mek", "intervention on Mek (INT 2)", "inhibit", "Mek", 600),
    Condition("int_pip2", "intervention on PIP2 (INT 4)", "inhibit", "PIP2", 600),
    Condition("int_akt", "intervention on Akt (INT 7)", "inhibit", "Akt", 600),
    Condition("int_pka", "intervention on PKA (INT 8)", "activate", "PKA", 600, _UNSTIMULATED),
    Condition("int_pkc", "intervention on PKC (INT 9)", "mixed", "PKC", 1200, _POOLED),
)
"""Conditions of bnlearn's file, by INT. The file has no sign: directions are those of the published reagents."""

_ALIASES = {"psit": "psitect", "ly294002": "ly", "akti": "aktinhib"}


def conditions(kind: Kind) -> tuple[Condition, ...]:
    """The conditions of one kind of file, in canonical order."""
    return FLUORESCENCE if kind == "fluorescence" else LEVELS


def find_condition(name: str) -> Condition | None:
    """The condition with this id or spelling ("cd3cd28+aktinhib", "ly294002"); None if there is no entry."""
    known = {entry.id: entry for entry in (*FLUORESCENCE, *LEVELS)}
    key = name.strip().casefold()
    reagent = key.removeprefix("cd3cd28+")
    return known.get(key) or known.get(_ALIASES.get(reagent, reagent))


def condition(name: str) -> Condition:
    """The condition with this id or spelling. Raises DataError if it has no entry: nothing is guessed."""
    entry = find_condition(name)
    if entry is None:
        known = [other.id for other in (*FLUORESCENCE, *LEVELS)]
        raise DataError(
            f"no entry for the condition {name!r} in the table of reagents and targets.{did_you_mean(name, known)}"
        )
    return entry


def by_target_number(number: int) -> Condition:
    """The condition of bnlearn's INT value (1-based column, 0 none). Raises DataError if it has no entry."""
    target = None if number == 0 else dict(enumerate(PROTEINS, start=1)).get(number, "")
    for entry in LEVELS:
        if entry.target == target:
            return entry
    raise DataError(f"no entry for the condition INT {number}: expected one of 0, 2, 4, 7, 8, 9")


def protein(column: str) -> str | None:
    """The canonical name of a column in any known spelling; None if it is none of the 11."""
    return _CANONICAL.get(column.strip().casefold().replace("-", "").replace(" ", ""))

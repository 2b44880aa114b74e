"""Perturbation labels of single-cell files, read one way.

The same perturbation is spelled `KLF1`, `KLF1+ctrl`, `ctrl+KLF1` or ` KLF1 `, and a pair in either order. Here each is
one `Condition` with one id. What is not a control, a single or a pair is refused by name, never read as a gene.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from evidence.errors import DataError

CONTROL_LABELS: tuple[str, ...] = ("ctrl", "control")
"""Labels that mean "no perturbation" where nothing else is declared (GEARS' form, PerturBench's form)."""

_CONTROL_LIKE = ("ctrl", "control", "dmso", "vehicle", "untreated", "unperturbed", "mock", "non-targeting", "nt", "pbs")


@dataclass(frozen=True, order=True)
class Condition:
    """What was done to a cell: no target (control), one gene, or two genes, kept in alphabetical order."""

    targets: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "targets", tuple(sorted(self.targets)))

    @property
    def id(self) -> str:
        """One id for every spelling: `ctrl`, `KLF1`, `CEBPE+RUNX1T1`."""
        return "+".join(self.targets) if self.targets else "ctrl"

    @property
    def control(self) -> bool:
        """Whether nothing was perturbed."""
        return not self.targets

    @property
    def double(self) -> bool:
        """Whether two genes were perturbed."""
        return len(self.targets) == 2

    @property
    def singles(self) -> tuple[Condition, ...]:
        """The conditions with one target each: of a pair its two parts, of a single itself."""
        return tuple(Condition((target,)) for target in self.targets)

    @property
    def gears_label(self) -> str:
        """GEARS' spelling: `ctrl`, `KLF1+ctrl`, `CEBPE+RUNX1T1`."""
        return f"{self.targets[0]}+ctrl" if len(self.targets) == 1 else self.id


CONTROL = Condition(())


def pair(a: str, b: str) -> Condition:
    """The pair of two genes, in whichever order they come. Raises DataError if they are the same gene."""
    return normalise_condition(f"{a}+{b}")


def normalise_condition(text: str, control: Iterable[str] = CONTROL_LABELS) -> Condition:
    """Read one label. `+` joins genes, blanks around a part do not count, a part that is a control label adds nothing.

    Raises DataError for an empty part, an underscore where a plus may be meant, one gene twice, three genes.
    """
    controls = frozenset(control)
    parts = [part.strip() for part in text.split("+")]
    if "" in parts:
        raise DataError(f"condition {text!r}: empty name; expected `A`, `A+B` or a control label")
    genes = [part for part in parts if part not in controls]
    for gene in genes:
        if "_" in gene:
            raise DataError(f"condition {text!r}: underscore in {gene!r}; pairs are written with a plus (`A+B`)")
    if len(set(genes)) != len(genes):
        raise DataError(f"condition {text!r}: the same gene twice")
    if len(genes) > 2:
        raise DataError(f"condition {text!r}: {len(genes)} genes; only singles and pairs are read")
    return Condition(tuple(genes))


def choose_control(counts: Mapping[str, int], declared: str | None) -> tuple[str, ...]:
    """The control labels to read with, from the counts of stripped labels.

    A declared label must be there exactly as declared: nothing is matched by guess. Without one, the documented
    `CONTROL_LABELS` count. Raises DataError naming near matches with their counts.
    """
    wanted = CONTROL_LABELS if declared is None else (declared,)
    if any(_is_control(label, wanted) for label in counts):
        return wanted
    near = sorted((label for label in counts if _looks_like_control(label, wanted)), key=lambda x: (-counts[x], x))
    shown = ", ".join(f"{label!r} ({counts[label]})" for label in near[:5]) or "none"
    raise DataError(
        f"no cell has the control label {' or '.join(map(repr, wanted))}. Near matches: {shown}. "
        f"Name the file's own label, such as control={(near or ['ctrl'])[0]!r}"
    )


def _is_control(label: str, controls: tuple[str, ...]) -> bool:
    return all(part.strip() in controls for part in label.split("+"))


def _looks_like_control(label: str, wanted: Iterable[str]) -> bool:
    folded = label.casefold()
    known = [*(w.casefold() for w in wanted), *_CONTROL_LIKE]
    return folded in known or bool(difflib.get_close_matches(folded, known, n=1, cutoff=0.8))

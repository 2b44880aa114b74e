"""AIVC-Judge's rubrics as data: dimensions of each level, their secondary weights, and the caps.

Dimensions, weights and caps of L1, L2 and the critique rubric of L3 are the published ones (OmniVCBench, Table 22 and
appendix A.10). The proposal rubric of L3 has no published weights: ours are equal. The checklists are our own words.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from benchmarks.items import Item
from evidence.errors import DataError

L3Rubric = Literal["critique", "proposal"]
RubricName = Literal["L1", "L2", "L3-critique", "L3-proposal"]


class Dimension(NamedTuple):
    """One dimension, scored 1-5 by a whole number: its key, its weight, and what it asks."""

    key: str
    weight: float
    asks: str


class Cap(NamedTuple):
    """A dimension may not exceed `at_most` where `when` holds. A cap that the judge ignored is flagged, never applied.

    `when`: "key_error" where the judge names one, "contradicted" where a claim is contradicted by the evidence.
    """

    dimension: str
    at_most: int
    when: Literal["key_error", "contradicted"]


class Rubric(NamedTuple):
    """What a level is judged by."""

    name: RubricName
    task: str
    dimensions: tuple[Dimension, ...]
    cap: Cap | None = None

    def weighted(self, scores: dict[str, int]) -> float:
        """The weighted mean of the dimensions: a secondary analysis beside the overall score, not rounded."""
        total = sum(d.weight for d in self.dimensions)
        return sum(d.weight * scores[d.key] for d in self.dimensions) / total


_RUBRICS = (
    Rubric(
        "L1",
        "The response infers a result from the shown conditions and observations.",
        (
            Dimension("correctness", 0.60, "Is the inferred result right: numbers, direction, entities, comparison?"),
            Dimension("evidence_support", 0.40, "Does the response rest on what the figure and the text show?"),
        ),
        Cap("correctness", 2, "key_error"),
    ),
    Rubric(
        "L2",
        "The response explains the mechanism that connects the observations.",
        (
            Dimension("faithfulness", 0.40, "Does every claim agree with the evidence?"),
            Dimension("causal_completeness", 0.25, "Are the links from cause to effect all there, in order?"),
            Dimension("mechanistic_granularity", 0.20, "Are the entities and activities named at the level asked for?"),
            Dimension("evidence_consistency", 0.15, "Are the panels used without conflict between them?"),
        ),
        Cap("faithfulness", 2, "contradicted"),
    ),
    Rubric(
        "L3-critique",
        "The response proposes or judges a hypothesis; it is judged as critical argument against the reference.",
        (
            Dimension("judgment_correctness", 0.40, "Is the position taken the one that the evidence allows?"),
            Dimension("argumentation_quality", 0.30, "Are competing explanations named, with reasons for and against?"),
            Dimension("evidence_weighing", 0.30, "Are the limits and the strength of the evidence weighed?"),
        ),
    ),
    Rubric(
        "L3-proposal",
        "The response proposes a hypothesis; it is judged as a proposal.",
        (
            Dimension("observational_fidelity", 1.0, "Are the observations that it starts from reported truly?"),
            Dimension("scientific_plausibility", 1.0, "Is the proposed mechanism compatible with what is known?"),
            Dimension("falsifiable_specificity", 1.0, "Could a stated result show that it is wrong?"),
        ),
    ),
)
RUBRICS: dict[RubricName, Rubric] = {rubric.name: rubric for rubric in _RUBRICS}

DISCRIMINATING_TEST = Dimension(
    "discriminative_test", 1.0, "Does the proposed experiment tell the hypothesis from its rivals?"
)
"""Judged only where the item asks for a test."""


def rubric_of(item: Item, l3: L3Rubric) -> Rubric:
    """The rubric of an item's level. Raises DataError for an item without a level."""
    if item.level is None:
        raise DataError(f"item {item.id!r} has no level; the judge's rubrics are by level (L1, L2, L3)")
    if item.level == "L1" or item.level == "L2":
        return RUBRICS[item.level]
    if l3 == "critique":
        return RUBRICS["L3-critique"]
    rubric = RUBRICS["L3-proposal"]
    return rubric._replace(dimensions=(*rubric.dimensions, DISCRIMINATING_TEST)) if item.asks_test else rubric

"""The published outcomes of the four pilots, once.

Source: OmniVCBench (arXiv 2609.37773), section 4.5 and appendix C, tables 40 and 41: one proprietary
model (GPT-5.6-sol), 36 cases, 108 calls. No intervals are published, and the paper supports no
accuracy pooled over the pilots.
"""

from __future__ import annotations

from typing import NamedTuple

SOURCE = "OmniVCBench (arXiv 2609.37773), section 4.5 and appendix C, tables 40 and 41; model GPT-5.6-sol"


class Published(NamedTuple):
    """One published pilot: accuracies in percent at the three stages, transitions from initial to revised."""

    setting: str
    title: str
    n_cases: int
    n_readouts: int
    initial: float
    reviewed: float
    revised: float
    corrections: int
    regressions: int
    near_zero: float | None = None
    """Accuracy of "always near zero", where it is published."""


PUBLISHED = (
    Published("gene_pair", "Gene pairs", 12, 48, 77.1, 77.1, 89.6, 6, 0, near_zero=79.2),
    Published("drug_combination", "Drug combinations", 10, 30, 93.3, 80.0, 100.0, 2, 0),
    Published("microscopy", "Microscopy", 9, 9, 66.7, 66.7, 66.7, 0, 0),
    Published("signaling", "Signaling", 5, 30, 66.7, 60.0, 70.0, 1, 0),
)

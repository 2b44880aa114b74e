"""Published tables and worked examples in the shared data folder; skipped where that is not on this machine."""

import json
from pathlib import Path
from typing import Any

import pytest

from scoring.agreement import fleiss, krippendorff, quadratic_kappa
from scoring.clusters import grouped
from scoring.correlation import correlate
from scoring.paired import holm, mcnemar_exact

TABLES = Path(__file__).resolve().parents[3] / "shared" / "data" / "static" / "paper_tables"
STAGES = {"perception": ("NP", "MP", "IL"), "understanding": ("TA", "HI"), "reasoning": ("Qual", "Quant")}

OF_FEWER_ITEMS = {"Qwen3-VL-30B-A3B-Thinking", "Qwen2.5-VL-72B", "LLaVA-OneVision-7B"}


def table(name: str) -> Any:
    if not (TABLES / name).is_file():
        pytest.skip(f"needs ../shared/data/static/paper_tables/{name}, which is not on this machine")
    return json.loads((TABLES / name).read_text())


def test_agreement_fixtures() -> None:
    given = table("agreement_fixtures.json")
    coders = given["krippendorff_canonical"]
    for level in ("nominal", "ordinal", "interval"):
        expected = coders["expected"][f"alpha_{level}"]
        assert krippendorff(coders["data"], level).value == pytest.approx(expected, abs=1e-12)
    fleissed = given["fleiss_1971"]
    assert fleiss(fleissed["counts"]).value == pytest.approx(fleissed["expected"]["fleiss_kappa"], abs=1e-12)
    qwk, same = given["qwk"], given["qwk_degenerate"]
    assert quadratic_kappa(qwk["a"], qwk["b"], qwk["labels"]).value == pytest.approx(qwk["expected"], abs=1e-12)
    assert quadratic_kappa(same["a"], same["b"]).value is None
    (both, first), (second, neither) = given["mcnemar_exact"]["table"]
    right = [True] * (both + first) + [False] * (second + neither)
    other = [True] * both + [False] * first + [True] * second + [False] * neither
    assert mcnemar_exact(right, other).p == pytest.approx(given["mcnemar_exact"]["expected_p"], abs=1e-12)
    assert holm(given["holm"]["p"]) == pytest.approx(given["holm"]["expected"], abs=1e-12)


def test_table_34() -> None:
    given = table("omnivcbench_table34.json")
    mcq, judge = given["mcq_accuracy_pct"], given["aivc_judge"]
    expected = given["recomputed_here"] if "recomputed_here" in given else given["expected"]["recomputed_here"]
    for weight, prefix in (("item", ""), ("paper", "paper_weighted_")):
        got = correlate([mcq[m][weight] for m in judge], [judge[m][weight] for m in judge], seed=0, draws=200)
        assert round(got.pearson.value or 0, 4) == expected[f"{prefix}pearson"]
        assert round(got.spearman.value or 0, 4) == expected[f"{prefix}spearman"]


def test_all_of_spur_table_3() -> None:
    """Right answers counted back from the printed task accuracies give the printed micro averages to 0.2 points.

    Three models do not: their averages fit no full set of items, as if the accuracies were of fewer.
    """
    given = table("spur_paper_tables.json")
    counts = given["counts_consistent_with_micro"]
    off = {}
    for row in given["table3"]:
        right: list[bool] = []
        groups: list[str] = []
        for task, n in counts.items():
            hits = round(n * row[task] / 100)
            right += [True] * hits + [False] * (n - hits)
            groups += [task] * n
        got = grouped(right, groups, range(len(right)), micro=STAGES, seed=0, draws=1)
        printed = {stage: row[f"{stage}_micro"] for stage in STAGES} | {"overall": row["overall"]}
        off[row["name"]] = max(abs(100 * (got[k].value or 0) - v) for k, v in printed.items())
    assert {name for name, difference in off.items() if difference > 0.19} == OF_FEWER_ITEMS
    assert max(off.values()) < 2.7

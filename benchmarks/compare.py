"""Benchmark runs side by side: paired tests of choice runs, paired differences and agreement of judges' runs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.archived import archived_config, read_bench
from benchmarks.config import BenchConfig, JudgeConfig
from benchmarks.scores import answer_rows, estimate, judge_rows
from evidence.errors import ConfigError
from evidence.values import derive_seed
from loops.archive import read_run
from scoring.agreement import krippendorff, quadratic_kappa
from scoring.metrics import rounded
from scoring.paired import holm, mcnemar_exact, paired_difference, sign_flip

Key = tuple[str, int]
Rows = Mapping[Key, Mapping[str, Any]]


def compare(folders: Sequence[Path], seed: int = 0) -> dict[str, Any]:
    """Every pair of choice runs on the same items, answer by answer, with Holm's adjustment over all pairs.

    Refuses runs of other items or another track, and open runs (compare their judge runs). McNemar's test takes answers
    as independent; the sign-flip test swaps whole sources.
    """
    runs = [_choices(folder) for folder in folders]
    _same([(run["name"], (run["items"], run["track"])) for run in runs], "items and track")
    pairs = []
    for first, second in itertools.combinations(runs, 2):
        keys = _common(first, second)
        a, b = ([bool(run["rows"][key]["right"]) for key in keys] for run in (first, second))
        sources = [first["rows"][key]["source"] for key in keys]
        draw = derive_seed(seed, "compare", first["name"], second["name"])
        test, flips = mcnemar_exact(a, b), sign_flip(a, b, sources, seed=draw)
        pairs.append(
            {
                "first": first["name"],
                "second": second["name"],
                "n": len(keys),
                "difference": estimate(paired_difference(a, b, sources, seed=draw)),
                "only_first": test.only_first,
                "only_second": test.only_second,
                "p_mcnemar": rounded(test.p),
                "p_sign_flip": rounded(flips.p),
                "rates": {run["name"]: run["rates"] for run in (first, second)},
            }
        )
    for name in ("p_mcnemar", "p_sign_flip"):
        for pair, p in zip(pairs, holm([pair[name] for pair in pairs]), strict=True):
            pair[f"{name}_holm"] = rounded(p)
    return {"pairs": pairs}


def agree(folders: Sequence[Path], seed: int = 0) -> dict[str, Any]:
    """How judges of the same responses agree on the overall score: quadratic kappa of each pair, alpha of all.

    Only responses that both scored count; refuses runs that judged other responses or used another L3 rubric.
    """
    runs = [_judgments(folder) for folder in folders]
    _same([(run["name"], (run["items"], run["responses"], run["l3"])) for run in runs], "responses and rubric")
    pairs = []
    for first, second in itertools.combinations(runs, 2):
        keys = _common(first, second)
        a, b = ([int(run["rows"][key]["overall"]) for key in keys] for run in (first, second))
        sources = [first["rows"][key]["source"] for key in keys]
        kappa = quadratic_kappa(a, b)
        draw = derive_seed(seed, "agree", first["name"], second["name"])
        pairs.append(
            {
                "first": first["name"],
                "second": second["name"],
                "n": len(keys),
                "quadratic_kappa": rounded(kappa.value),
                "reason": kappa.reason,
                "difference": estimate(paired_difference(a, b, sources, seed=draw)),
            }
        )
    keys = sorted({key for run in runs for key in run["rows"]})
    ratings = [[run["rows"][key]["overall"] if key in run["rows"] else None for key in keys] for run in runs]
    alpha = krippendorff(ratings, "ordinal") if keys else None
    return {
        "pairs": pairs,
        "krippendorff_ordinal": rounded(alpha.value) if alpha else None,
        "n_rated_twice": alpha.n if alpha else 0,
    }


def _choices(folder: Path) -> dict[str, Any]:
    found = read_bench(folder, read_run(folder, "bench"))
    config = archived_config(found.run, BenchConfig)
    if config.track == "open":
        raise ConfigError(
            f"{folder} has open responses; judge them, and compare the judge's runs with vcloop bench agree"
        )
    rows = {(row["item"], row["repeat"]): row for row in answer_rows(found.items, found.answers)}
    unread = sum(row["status"] != "letter" for row in rows.values())
    refused = sum(row["status"] in ("refused", "filtered") for row in rows.values())
    return {
        "name": found.run.name,
        "items": found.run.case_file_sha256,
        "track": config.track,
        "rows": rows,
        "rates": {"n": len(rows), "not_read": unread, "refused": refused},
    }


def _judgments(folder: Path) -> dict[str, Any]:
    found = read_bench(folder, read_run(folder, "judge"))
    config = archived_config(found.run, JudgeConfig)
    rows = judge_rows(found.items, found.judged.values(), config.l3)
    return {
        "name": found.run.name,
        "items": found.run.case_file_sha256,
        "responses": found.run.data["responses"],
        "l3": config.l3,
        "rows": {(row["item"], row["repeat"]): row for row in rows if row["overall"] is not None},
    }


def _same(runs: Sequence[tuple[str, Any]], what: str) -> None:
    names = [name for name, _ in runs]
    if len(runs) < 2 or len(set(names)) != len(names):
        raise ConfigError(f"expected two or more runs with names of their own, got {', '.join(names) or 'none'}")
    other = next((name for name, facts in runs if facts != runs[0][1]), None)
    if other is not None:
        raise ConfigError(f"{other!r} and {names[0]!r} cannot be compared: expected the same {what}")


def _common(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Key]:
    keys = sorted(set(first["rows"]) & set(second["rows"]))
    if not keys:
        raise ConfigError(f"{first['name']!r} and {second['name']!r} have no answer to the same item and repeat")
    return keys

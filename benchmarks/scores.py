"""From answers to scores: one row an answer, and a summary with cluster-bootstrap intervals. Pure.

An answer that could not be read is not right, and is counted beside; nothing stands in for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks.items import Item
from benchmarks.records import Answered, Judged
from benchmarks.rubrics import L3Rubric, rubric_of
from evidence.values import derive_seed
from scoring.clusters import ClusterMean, cluster_accuracy, cluster_mean, cluster_weighted_mean, grouped
from scoring.metrics import rounded
from scoring.perception import by_perception

STRICT_RULES = ("tag", "bare")
PERCEPTION, REASONING = "perception", "reasoning"
LEVELS = ("L1", "L2", "L3")


def answer_rows(items: Mapping[str, Item], answers: Iterable[Answered]) -> list[dict[str, Any]]:
    """One row an answer, in the order of items and repeats."""
    order = {item: number for number, item in enumerate(items)}
    rows = []
    for a in sorted(answers, key=lambda a: (order[a.case], a.repeat)):
        item = items[a.case]
        row: dict[str, Any] = {**_facts(item, a.repeat), "status": a.status, "rule": a.rule, "calls": a.calls}
        if a.shown.order:
            row.update(
                {
                    "letter": a.letter,
                    "option": a.option,
                    "right": a.option == item.key,
                    "strict": a.rule in STRICT_RULES,
                    "n_options": len(item.options),
                }
            )
        rows.append(row)
    return rows


def choice_summary(rows: Sequence[Mapping[str, Any]], seed: int) -> dict[str, Any]:
    """Accuracy overall, by level, task and stage, with the rates of what was read how. Rows as in `answer_rows`.

    `accuracy` counts what any rule read (lenient), `accuracy_strict` only replies that kept to the form asked for.
    """
    right = [bool(row["right"]) for row in rows]
    strict = [bool(row["right"] and row["strict"]) for row in rows]
    clusters = [row["source"] for row in rows]
    draw = derive_seed(seed, "bootstrap")
    n = len(rows)
    return {
        "accuracy": estimate(cluster_accuracy(right, clusters, seed=draw)),
        "accuracy_strict": estimate(cluster_accuracy(strict, clusters, seed=draw)),
        "accuracy_by_source": estimate(cluster_weighted_mean(right, clusters, seed=draw)),
        "chance": rounded(sum(1 / row["n_options"] for row in rows) / n) if n else None,
        "groups": {
            key: {name: estimate(found) for name, found in means.items()}
            for key, means in _grouped(right, rows, clusters, draw, cluster_accuracy).items()
        },
        "rates": {
            "n": n,
            "right": sum(right),
            "strict": sum(row["status"] == "letter" and row["strict"] for row in rows),
            "lenient": sum(row["status"] == "letter" and not row["strict"] for row in rows),
            **dict(sorted(Counter(row["status"] for row in rows if row["status"] != "letter").items())),
        },
        "reasoning_by_perception": _perception(rows, draw),
    }


def judge_rows(items: Mapping[str, Item], judged: Iterable[Judged], l3: L3Rubric) -> list[dict[str, Any]]:
    """One row a judged response, failures left out, in the order of items and repeats."""
    order = {item: number for number, item in enumerate(items)}
    rows = []
    for j in sorted(judged, key=lambda j: (order[j.case], j.repeat)):
        if j.judgment is None:
            continue
        item, found = items[j.case], j.judgment
        verdicts = Counter(claim.verdict for claim in found.claims)
        rows.append(
            {
                **_facts(item, j.repeat),
                "status": j.status,
                "overall": found.overall,
                "overall_raw": rounded(found.overall_raw),
                "weighted": rounded(rubric_of(item, l3).weighted(found.dimensions)),
                "dimensions": found.dimensions,
                "verdicts": dict(sorted(verdicts.items())),
                "key_error": found.key_error,
                "ignored_cap": found.ignored_cap,
            }
        )
    return rows


def judge_summary(
    rows: Sequence[Mapping[str, Any]], statuses: Mapping[str, int], seed: int, most_unscored: float
) -> dict[str, Any]:
    """Means of the judge's overall scores and dimensions; `valid` is false where too many responses are unscored.

    The rows are those of `judge_rows`; `statuses` counts all responses. A response that the candidate did not give
    ("no response") is no failure of the judge.
    """
    draw = derive_seed(seed, "bootstrap")
    overall = [row["overall"] for row in rows]
    clusters = [row["source"] for row in rows]
    asked = sum(n for status, n in statuses.items() if status != "no response")
    unscored = asked - sum(value is not None for value in overall)
    return {
        "overall": estimate(cluster_mean(_numbers(overall), clusters, seed=draw)),
        "overall_by_source": estimate(cluster_weighted_mean(_numbers(overall), clusters, seed=draw)),
        "weighted": estimate(cluster_mean([row["weighted"] for row in rows], clusters, seed=draw)),
        "groups": {
            key: {name: estimate(found) for name, found in means.items()}
            for key, means in _grouped(_numbers(overall), rows, clusters, draw, cluster_mean).items()
        },
        "dimensions": _dimensions(rows, draw),
        "statuses": dict(sorted(statuses.items())),
        "n_unscored": unscored,
        "unscored_share": rounded(unscored / asked) if asked else None,
        "valid": bool(asked) and unscored <= most_unscored * asked,
        "ignored_caps": sum(bool(row["ignored_cap"]) for row in rows),
    }


def estimate(found: ClusterMean) -> dict[str, Any]:
    """A cluster mean as it is written to a score file."""
    numbers = {key: rounded(getattr(found, key)) for key in ("value", "low", "high")}
    return {
        **numbers,
        "n": found.n,
        "n_missing": found.n_missing,
        "n_clusters": found.n_clusters,
        "reason": found.reason,
    }


def _facts(item: Item, repeat: int) -> dict[str, Any]:
    return {
        "item": item.id,
        "repeat": repeat,
        "source": item.cluster,
        "image": item.images[0] if item.images else item.cluster,
        "level": item.level,
        "stage": item.stage,
        "task": item.task,
    }


def _numbers(values: Sequence[float | None]) -> list[float]:
    """Missing as NaN, in memory only: the cluster functions count and leave it out."""
    return [float("nan") if value is None else float(value) for value in values]


def _grouped(
    values: Sequence[Any],
    rows: Sequence[Mapping[str, Any]],
    clusters: Sequence[str],
    seed: int,
    of: Callable[..., ClusterMean],
) -> dict[str, dict[str, ClusterMean]]:
    """Means by level, and by task with the micro averages of the stages; a division that no item has is left out."""
    found: dict[str, dict[str, ClusterMean]] = {}
    if any(row["level"] for row in rows):
        levels = [row["level"] or "no level" for row in rows]
        found["level"] = grouped(values, levels, clusters, micro={}, seed=seed, of=of)
    if any(row["task"] for row in rows):
        tasks = [row["task"] or "no task" for row in rows]
        stages: dict[str, list[str]] = {}
        for task, row in zip(tasks, rows, strict=True):
            if row["stage"] and task not in stages.setdefault(row["stage"], []):
                stages[row["stage"]].append(task)
        found["task"] = grouped(values, tasks, clusters, micro=stages, seed=seed, of=of)
    return found


def _dimensions(rows: Sequence[Mapping[str, Any]], seed: int) -> dict[str, Any]:
    """The mean of each dimension over the rows that have it, by level."""
    found: dict[str, Any] = {}
    for level in LEVELS:
        mine = [row for row in rows if row["level"] == level]
        for name in dict.fromkeys(name for row in mine for name in row["dimensions"]):
            have = [row for row in mine if name in row["dimensions"]]
            means = cluster_mean([r["dimensions"][name] for r in have], [r["source"] for r in have], seed=seed)
            found.setdefault(level, {})[name] = estimate(means)
    return found


def _perception(rows: Sequence[Mapping[str, Any]], seed: int) -> dict[str, Any] | None:
    """Reasoning accuracy split by whether the image's perception items were right; None without both stages."""
    sides = {stage: [row for row in rows if row["stage"] == stage] for stage in (PERCEPTION, REASONING)}
    if not all(sides.values()):
        return None
    found = by_perception(
        reasoning_right=[row["right"] for row in sides[REASONING]],
        reasoning_images=[(row["image"], row["repeat"]) for row in sides[REASONING]],
        perception_right=[row["right"] for row in sides[PERCEPTION]],
        perception_images=[(row["image"], row["repeat"]) for row in sides[PERCEPTION]],
        seed=seed,
    )
    repeated = any(row["repeat"] for row in rows)  # an image asked twice is no second image
    none = {"low": None, "high": None, "reason": "no interval over repeats"} if repeated else {}
    return {
        "perceived": {**estimate(found.perceived), **none},
        "not_perceived": {**estimate(found.not_perceived), **none},
        "n_without_perception": found.n_without_perception,
    }

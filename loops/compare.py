"""Compare interpretation models: runs paired case by case from their archives, with tests that know cases are clusters.

Everything comes from the archives, through the same scores as rescoring. A difference is second - first.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evidence.values import derive_seed
from loops.archive import read_run
from loops.beside import model_of, read_summary, static_beside_loop
from loops.cells import STAGES
from loops.contenders import Contender, Pilot, read_pilots
from scoring.clusters import ClusterMean, cluster_mean
from scoring.metrics import Array, rounded
from scoring.paired import holm, mcnemar_exact, paired_difference, sign_flip

UNPARSED = ("invalid", "malformed", "empty")
REFUSED = ("refused", "filtered")
TRUNCATED = ("truncated", "truncated_in_reasoning")
TESTS = ("mcnemar", "sign_flip")


class Item(NamedTuple):
    """One readout of one case in one run: right or wrong by stage and repeat, and in which repeats it was measured."""

    right: Mapping[str, tuple[bool, ...]]
    queried: tuple[bool, ...]

    def share(self, stage: str) -> float:
        """The share of repeats that were right."""
        return sum(self.right[stage]) / len(self.right[stage])

    def majority(self, stage: str) -> bool:
        """Whether more than half of the repeats were right."""
        return self.share(stage) > 0.5


Items = Mapping[tuple[str, str], Item]


def compare(folders: Sequence[Path], *, vary: Sequence[str] = (), finished_only: bool = False) -> dict[str, Any]:
    """Compare the runs of each pilot pairwise, and put static scores beside their gains where static runs are given.

    Raises ConfigError where runs are not comparable, and says why.
    """
    static = [folder for folder in folders if read_run(folder, None).kind != "loop"]
    loops = [folder for folder in folders if folder not in static]
    found = read_pilots(loops, vary=vary, finished_only=finished_only)
    pilots = [_compare(pilot) for pilot in found]
    _adjust(pilots)
    summaries = [contender.scored.summary for pilot in found for contender in pilot.contenders]
    return {
        "format": 1,
        "vary": sorted(vary),
        "finished_only": finished_only,
        "pilots": pilots,
        "static": static_beside_loop([read_summary(folder) for folder in static], summaries) if static else None,
    }


def _compare(pilot: Pilot) -> dict[str, Any]:
    first = pilot.contenders[0]
    seed = derive_seed(first.config.seed, "compare")
    items = {c.label: items_of(c, pilot.cases) for c in pilot.contenders}
    return {
        "setting": first.run.setting,
        "title": first.run.title,
        "synthetic": first.run.synthetic,
        "case_file": first.run.case_file,
        "case_file_sha256": first.run.case_file_sha256,
        "n_cases": len(first.run.cases),
        "n_cases_compared": len(pilot.cases),
        "runs": [_alone(c, items[c.label], seed) for c in pilot.contenders],
        "pairs": [
            {"first": a.label, "second": b.label, **_pair(items[a.label], items[b.label], seed)}
            for a, b in itertools.combinations(pilot.contenders, 2)
        ],
    }


def items_of(contender: Contender, cases: Sequence[str]) -> Items:
    """A run's answers to these cases by case and readout, repeats in order. A missing answer is not right."""
    rows: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    compared = frozenset(cases)
    for row in contender.scored.readouts:
        if row["case"] in compared:
            rows[row["case"], row["readout"]].append(row)
    stages = [stage for stage in STAGES if any(stage in row for given in rows.values() for row in given)]
    return {
        key: Item(
            {
                stage: tuple(row.get(stage, {}).get("label") == row["truth"]["label"] for row in given)
                for stage in stages
            },
            tuple(row["queried"] for row in given),
        )
        for key, given in rows.items()
    }


def _alone(contender: Contender, items: Items, seed: int) -> dict[str, Any]:
    """One run beside the others: its accuracies and gain, and what is missing."""
    summary, cases = contender.scored.summary, [case for case, _ in items]
    calls = summary["calls"]
    stages = _stages(items)
    return {
        "label": contender.label,
        "run": contender.run.name,
        "interpreter": model_of(summary["interpreter"]),
        "repeats": contender.config.repeats,
        "n_cells_open": summary["n_cells_open"],
        "accuracy": {s: _plain(cluster_mean(_shares(items, s), cases, seed=seed)) for s in stages},
        "gain": _plain(cluster_mean(_gain(items), cases, seed=seed)),
        "missing_answers": {row["name"]: _share(row["all"]["n_missing"], row["all"]["n"]) for row in _rows(summary)},
        "n_calls": calls["n"],
        "calls": {
            name: _share(sum(calls["calls_by_status"].get(s, 0) for s in statuses), calls["n"])
            for name, statuses in (("unparsed", UNPARSED), ("refused", REFUSED), ("truncated", TRUNCATED))
        },
        "usage": {key: calls[key] for key in ("prompt_tokens", "completion_tokens", "unmetered", "cost", "currency")},
    }


def _rows(summary: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return (row for row in summary["rows"] if row["name"] in STAGES)


def _stages(items: Items) -> list[str]:
    return list(next(iter(items.values())).right)


def _shares(items: Items, stage: str) -> Array:
    return np.array([item.share(stage) for item in items.values()])


def _gain(items: Items) -> Array:
    return _shares(items, "revised") - _shares(items, "initial")


def _pair(first: Items, second: Items, seed: int) -> dict[str, Any]:
    """Two runs on the same items, by stage and group, and the difference of their gains.

    "queried" are the readouts that both measured (in all repeats), "unqueried" those that neither ever did.
    """
    groups = {
        "all": list(first),
        "queried": [k for k in first if all(first[k].queried) and all(second[k].queried)],
        "unqueried": [k for k in first if not any(first[k].queried) and not any(second[k].queried)],
    }
    shared = [stage for stage in _stages(first) if stage in _stages(second)]
    sides = {name: ({k: first[k] for k in keys}, {k: second[k] for k in keys}) for name, keys in groups.items() if keys}
    return {
        "n_measured_by_one": len(groups["all"]) - len(groups["queried"]) - len(groups["unqueried"]),
        "stages": {s: {name: _tested(*side, s, seed) for name, side in sides.items()} for s in shared},
        "gain": {name: _difference(_gain(a), _gain(b), [k for k, _ in a], seed) for name, (a, b) in sides.items()},
    }


def _tested(first: Items, second: Items, stage: str, seed: int) -> dict[str, Any]:
    """Shares of repeats for the difference and the sign flip; McNemar on one repeat each, else on majorities."""
    table = mcnemar_exact(*([item.majority(stage) for item in side.values()] for side in (first, second)))
    found = _difference(_shares(first, stage), _shares(second, stage), [case for case, _ in first], seed)
    return {**found, "mcnemar": {**table._asdict(), "p": _p(table.p)}}


def _difference(first: Array, second: Array, cases: Sequence[str], seed: int) -> dict[str, Any]:
    flip = sign_flip(first, second, cases, seed=seed)
    return {
        "n": len(first),
        "n_cases": flip.n_clusters,
        "first": rounded(float(first.mean())),
        "second": rounded(float(second.mean())),
        "difference": _plain(paired_difference(first, second, cases, seed=seed)),
        "sign_flip": {**flip._asdict(), "p": _p(flip.p)},
    }


def _adjust(pilots: Sequence[dict[str, Any]]) -> None:
    """Holm over all pairs of all pilots, for each test of each stage (or the gain) and group: adds `p_holm`."""
    families: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for pilot in pilots:
        for pair in pilot["pairs"]:
            for place, groups in (*pair["stages"].items(), ("gain", pair["gain"])):
                for group, found in groups.items():
                    for test in TESTS:
                        if test in found:
                            families[test, place, group].append(found[test])
    for family in families.values():
        for result, adjusted in zip(family, holm([result["p"] for result in family]), strict=True):
            result["p_holm"] = _p(adjusted)


def _plain(found: ClusterMean) -> dict[str, float | None]:
    return {"value": rounded(found.value), "low": rounded(found.low), "high": rounded(found.high)}


def _p(p: float | None) -> float | None:
    """Six significant digits: a small p value is never written as 0."""
    return None if p is None else float(f"{p:.6g}")


def _share(part: int, whole: int) -> float | None:
    return rounded(part / whole) if whole else None

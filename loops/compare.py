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
from numpy.typing import NDArray

from evidence.values import derive_seed
from loops.archive import read_run
from loops.beside import model_of, read_summary, static_beside_loop
from loops.contenders import Contender, Pilot, read_pilots
from loops.run_events import STAGES
from scoring.clusters import ClusterMean, cluster_mean
from scoring.metrics import Array, rounded
from scoring.paired import holm, mcnemar_exact, paired_difference, sign_flip

UNPARSED = ("invalid", "malformed", "empty")
REFUSED = ("refused", "filtered")
TRUNCATED = ("truncated", "truncated_in_reasoning")
TESTS = ("mcnemar", "sign_flip")


class Items(NamedTuple):
    """A run's answers to the readouts of the cases compared, n of them, cases and readouts in the order of the run.

    case (n,): number of the case; right: stage -> (n, repeats) right or wrong, a missing answer is not right; queried
    (n, repeats): whether it was measured.
    """

    case: NDArray[np.intp]
    right: Mapping[str, NDArray[np.bool_]]
    queried: NDArray[np.bool_]

    def share(self, stage: str) -> Array:
        """The share of repeats that were right, (n,)."""
        shares: Array = self.right[stage].mean(axis=1)
        return shares

    def majority(self, stage: str) -> NDArray[np.bool_]:
        """Whether more than half of the repeats were right, (n,)."""
        return self.share(stage) > 0.5

    def gain(self) -> Array:
        """What the evidence brought, (n,)."""
        return self.share("revised") - self.share("initial")

    def where(self, mask: NDArray[np.bool_]) -> Items:
        """The items chosen by a mask (n,)."""
        return Items(self.case[mask], {s: right[mask] for s, right in self.right.items()}, self.queried[mask])


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
    """A run's answers to these cases, all of them finished."""
    columns, repeats = contender.scored.columns, contender.config.repeats
    compared = frozenset(cases)
    numbers = [number for number, case in enumerate(contender.run.cases) if case in compared]
    case = columns.case
    kept = np.isin(case, numbers)
    order = _by_item(case[kept], repeats)
    truth = columns.truth
    stages = [stage for stage in STAGES if stage in columns.given and columns.given[stage][kept].any()]

    def table(column: NDArray[Any]) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = column[kept][order].astype(bool)
        return found

    return Items(
        case[kept][order[:, 0]].astype(np.intp),
        {stage: table(columns.rows[stage].label == truth) for stage in stages},
        table(columns.queried),
    )


def _by_item(case: NDArray[Any], repeats: int) -> NDArray[np.intp]:
    """Places of the repeats of each item, (items, repeats). Entries come by case, then repeat, then readout."""
    starts = np.flatnonzero(np.r_[True, case[1:] != case[:-1]]) if len(case) else np.zeros(0, dtype=np.intp)
    sizes = np.diff(np.r_[starts, len(case)])
    blocks = [s + np.arange(n).reshape(repeats, -1).T for s, n in zip(starts, sizes, strict=True)]
    return np.concatenate(blocks) if blocks else np.zeros((0, repeats), dtype=np.intp)


def _alone(contender: Contender, items: Items, seed: int) -> dict[str, Any]:
    """One run beside the others: its accuracies and gain, and what is missing."""
    summary = contender.scored.summary
    calls = summary["calls"]
    return {
        "label": contender.label,
        "run": contender.run.name,
        "interpreter": model_of(summary["interpreter"]),
        "repeats": contender.config.repeats,
        "n_cells_open": summary["n_cells_open"],
        "accuracy": {s: _plain(cluster_mean(items.share(s), items.case, seed=seed)) for s in items.right},
        "gain": _plain(cluster_mean(items.gain(), items.case, seed=seed)),
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


def _pair(first: Items, second: Items, seed: int) -> dict[str, Any]:
    """Two runs on the same items, by stage and group, and the difference of their gains.

    "queried" are the readouts that both measured (in all repeats), "unqueried" those that neither ever did.
    """
    queried: NDArray[np.bool_] = np.concatenate([first.queried, second.queried], axis=1)
    groups: dict[str, NDArray[np.bool_]] = {
        "all": np.ones(len(queried), dtype=bool),
        "queried": np.asarray(queried.all(axis=1)),
        "unqueried": np.asarray(~queried.any(axis=1)),
    }
    sizes = {name: int(mask.sum()) for name, mask in groups.items()}
    sides = {name: (first.where(mask), second.where(mask)) for name, mask in groups.items() if sizes[name]}
    shared = [stage for stage in first.right if stage in second.right]
    return {
        "n_measured_by_one": sizes["all"] - sizes["queried"] - sizes["unqueried"],
        "stages": {s: {name: _tested(*side, s, seed) for name, side in sides.items()} for s in shared},
        "gain": {name: _difference(a.gain(), b.gain(), a.case, seed) for name, (a, b) in sides.items()},
    }


def _tested(first: Items, second: Items, stage: str, seed: int) -> dict[str, Any]:
    """Shares of repeats for the difference and the sign flip; McNemar on one repeat each, else on majorities."""
    table = mcnemar_exact(first.majority(stage), second.majority(stage))
    found = _difference(first.share(stage), second.share(stage), first.case, seed)
    return {**found, "mcnemar": {**table._asdict(), "p": _p(table.p)}}


def _difference(first: Array, second: Array, cases: NDArray[np.intp], seed: int) -> dict[str, Any]:
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

"""Static score beside loop gain: does reading figures well go with acting well in a loop?

One point a model. With the few models that anyone runs, the interval is wide, and it is shown.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evidence.errors import ConfigError
from evidence.values import canonical_json
from scoring.correlation import Coefficient, correlate
from scoring.metrics import rounded


def static_beside_loop(
    static: Sequence[Mapping[str, Any]], loops: Sequence[Mapping[str, Any]], seed: int = 0
) -> dict[str, Any]:
    """Pair summaries (scores/summary.json) of static runs and of loops by model.

    The static score is the accuracy of a choice run or the mean overall score of a judge's run, all of one kind on one
    item set. The gain of a loop is its revised minus its initial accuracy over all readouts; a model's gain is the
    mean over the settings that every model has. Raises ConfigError where the runs cannot be put side by side.
    """
    scores = _static_scores(static)
    gains: dict[str, dict[str, float]] = defaultdict(dict)
    for loop in loops:
        model = model_of(loop["interpreter"])
        gain = loop_gain(loop)
        if loop["title"] in gains[model]:
            raise ConfigError(f"two loop runs of {model!r} are on {loop['title']!r}; give one of them")
        if gain is not None:
            gains[model][loop["title"]] = gain
    both = [model for model in scores if gains.get(model)]
    shared = sorted(set.intersection(*(set(gains[m]) for m in both))) if both else []

    def mean_gain(model: str) -> float:
        return sum(gains[model][title] for title in shared) / len(shared)

    rows = [
        {
            "model": model,
            "static": scores[model],
            "gains": {title: rounded(gain) for title, gain in sorted(gains[model].items())},
            "gain": rounded(mean_gain(model)) if shared else None,
        }
        for model in both
    ]
    points = [
        (scores[model]["value"], mean_gain(model)) for model in both if scores[model]["value"] is not None and shared
    ]
    found = correlate([x for x, _ in points], [y for _, y in points], seed=seed)
    return {
        "rows": rows,
        "settings": shared,
        "unpaired": sorted(set(scores) ^ set(both)) + sorted(m for m in gains if m not in scores),
        "pearson": _plain(found.pearson),
        "spearman": _plain(found.spearman),
    }


def read_summary(folder: Path) -> dict[str, Any]:
    """The summary of a run of any kind, as rescoring wrote it. Raises ConfigError where there is none."""
    path = folder / "scores" / "summary.json"
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); rescore the run") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is no summary; rescore the run")
    return found


def model_of(interpreter: Mapping[str, Any]) -> str:
    """The name of a model: the server's name for it, else the interpreter's."""
    return str(interpreter.get("model") or interpreter.get("name"))


def loop_gain(loop: Mapping[str, Any]) -> float | None:
    """Revised minus initial accuracy over all readouts, missing answers counted as not right."""
    rows = {row["name"]: row["all"]["accuracy"]["value"] for row in loop["rows"]}
    first, last = rows.get("initial"), rows.get("revised")
    return None if first is None or last is None else float(last - first)


def _static_scores(static: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    kinds = {canonical_json({"kind": s["kind"], "items": s["items_sha256"], "track": s.get("track")}) for s in static}
    if len(kinds) != 1:
        raise ConfigError(
            f"expected static runs of one kind and track on one item set, got {len(kinds)} different ones"
        )
    found: dict[str, dict[str, Any]] = {}
    for summary in static:
        key = "overall" if summary["kind"] == "judge" else "accuracy"
        if key not in summary:
            raise ConfigError(f"run {summary['run']!r} has no {key}; judge its responses and give the judge's run")
        asked = summary["judged"] if summary["kind"] == "judge" else [{"model": model_of(summary["interpreter"])}]
        for model in {entry["model"] for entry in asked}:
            if model in found:
                raise ConfigError(f"two static runs of {model!r}; give one of them")
            found[model] = dict(summary[key])
    return found


def _plain(found: Coefficient) -> dict[str, Any]:
    numbers = {key: rounded(getattr(found, key)) for key in ("value", "low", "high", "p")}
    return {**numbers, "n_models": found.n, "reason": found.reason}

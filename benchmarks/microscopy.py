"""What the pixels of BBBC021 can tell about mechanism: leave-one-compound-out results, rerun with

    python -m benchmarks.microscopy [--data FOLDER] [--out FILE.json]

Cells, fields and compounds are answered by the same features, normalisation and discriminant as the microscopy
setting and the interpreter `pixels`. Intervals are 95 % percentiles over compounds drawn with replacement: cells of
one compound are not independent. Only numbers leave this module, never a pixel.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evidence.bbbc021 import Source, data_folder, open_source
from evidence.bbbc021_tables import RULES, Field, Rule, legal_references
from evidence.cell_features import NAMES, Array, columns, feature_names, features
from evidence.microscopy_features import Rows, fit_normaliser
from evidence.values import derive_seed
from interpreters.discriminant import fit

TAXOL_CAP = 30
"""Windows of taxol 0.3 that are learned from and counted: it alone has 708 of 1,869."""
DRAWS = 2000
Index = NDArray[np.intp]


class Cells(NamedTuple):
    """Labelled windows. x: (n, n_features) relative to controls; field[i] is where row i comes from."""

    x: Array
    field: tuple[Field, ...]
    classes: tuple[str, ...]

    @property
    def truth(self) -> Index:
        """(n,) class number of each row."""
        return np.array([self.classes.index(str(f.treatment.moa)) for f in self.field])

    def keys(self, of: Callable[[Field], str]) -> NDArray[np.str_]:
        """(n,) a name of each row: its compound, treatment, field."""
        return np.array([of(f) for f in self.field])


def compound_of(field: Field) -> str:
    """The unit that is left out and drawn."""
    return field.treatment.compound


def read_cells(source: Source, cap: int | None = TAXOL_CAP, *, controls: bool = True) -> Cells:
    """Every labelled window of a source; `cap` limits the windows of one treatment, drawn by a fixed seed.

    controls=False leaves out the normalisation to control wells.
    """
    labelled = [f for f in source.fields if f.treatment.moa is not None]
    known = _rows(source, labelled)
    solvent = _rows(source, [f for f in source.fields if f.treatment.control] if controls else [])
    x = fit_normaliser(solvent, known)(known)
    keep = np.arange(len(x))
    if cap is not None:
        treatments = np.array([f.treatment.id for f in known.fields])
        rng = np.random.default_rng(derive_seed(0, "cap"))
        parts = [np.flatnonzero(treatments == t) for t in sorted(set(treatments))]
        keep = np.sort(np.concatenate([p if len(p) <= cap else rng.choice(p, cap, replace=False) for p in parts]))
    return Cells(x[keep], tuple(known.fields[n] for n in keep), tuple(sorted({str(f.treatment.moa) for f in labelled})))


def held_out_scores(cells: Cells, names: Sequence[str], rule: Rule = "compound") -> Array:
    """(n, n_classes) log-probabilities of each cell by a model of legal cells; NaN where its class has no legal cell.

    One model serves all cells that share their legal references: a compound, or a compound on a plate.
    """
    x, truth = cells.x[:, columns(names)], cells.truth
    kept_out: dict[Rule, Callable[[Field], str]] = {
        "compound": lambda f: "",
        "compound_plate": lambda f: f.plate,
        "compound_batch": lambda f: f.batch,
    }
    unit = cells.keys(lambda f: f"{compound_of(f)}\n{kept_out[rule](f)}")
    scores = np.full((len(x), len(cells.classes)), np.nan)
    for one in sorted(set(unit)):
        query = np.flatnonzero(unit == one)
        allowed = set(legal_references(cells.field[query[0]], sorted(set(cells.field)), rule))
        known = np.array([f in allowed for f in cells.field])
        if not set(truth[query]) <= set(truth[known]):
            continue
        model = fit(x[known], [cells.classes[k] for k in truth[known]])
        at = [cells.classes.index(c) for c in model.classes]
        scores[np.ix_(query, np.array(at))] = np.log(model.probabilities(x[query]) + 1e-3)
    return scores


class Tally(NamedTuple):
    """Units answered: right (0/1), class number and compound of each; units without a legal reference are counted."""

    right: Array
    truth: Index
    compound: NDArray[np.str_]
    not_evaluable: int


def tally(cells: Cells, scores: Array, of: Callable[[Field], str] | None) -> Tally:
    """Answers of cells (of=None), or of groups of cells by their mean log-probability."""
    usable: NDArray[np.bool_] = np.asarray(np.isfinite(scores).any(axis=1))
    of_row = cells.truth
    filled = np.where(np.isfinite(scores), scores, np.log(1e-3))
    names = np.arange(len(scores)).astype(str) if of is None else cells.keys(of)
    groups = [np.flatnonzero(names == name) for name in dict.fromkeys(names)]
    whole = [g[usable[g]] for g in groups if usable[g].any()]
    answered = np.array([int(filled[g].mean(axis=0).argmax()) for g in whole], dtype=np.intp)
    truth = np.array([of_row[g[0]] for g in whole], dtype=np.intp)
    compound = np.array([compound_of(cells.field[g[0]]) for g in whole])
    return Tally((answered == truth).astype(float), truth, compound, len(groups) - len(whole))


def summary(found: Tally, seed: int = 0) -> dict[str, Any]:
    """Accuracy and balanced accuracy (mean over classes) with intervals over compounds, and every count."""
    shares = _bootstrap(found, lambda w: float((w * found.right).sum() / w.sum()), seed)
    balanced = _bootstrap(found, lambda w: _balanced(found, w), seed)
    return {
        "n": len(found.right),
        "right": int(found.right.sum()),
        "not_evaluable": found.not_evaluable,
        "accuracy": shares,
        "balanced": balanced,
    }


def gains(before: Tally, after: Mapping[str, Tally], classes: Sequence[str]) -> dict[str, Any]:
    """Change in accuracy on the same units, overall and per class, with intervals over compounds; paired."""
    result: dict[str, Any] = {}
    for name, one in after.items():
        difference = one._replace(right=one.right - before.right)
        rows = {"all": _gain(difference, np.ones(len(difference.right), dtype=bool), before, one)}
        for k, label in enumerate(classes):
            if (difference.truth == k).any():
                rows[label] = _gain(difference, difference.truth == k, before, one)
        result[name] = rows
    return result


def _gain(difference: Tally, inside: NDArray[np.bool_], before: Tally, after: Tally) -> dict[str, Any]:
    part = Tally(difference.right[inside], difference.truth[inside], difference.compound[inside], 0)
    estimate = _bootstrap(part, lambda w: float((w * part.right).sum() / w.sum()), 0)
    counts = {"corrections": int((part.right > 0).sum()), "regressions": int((part.right < 0).sum())}
    return {
        "n": len(part.right),
        "before": round(float(before.right[inside].mean()), 4),
        "after": round(float(after.right[inside].mean()), 4),
        **counts,
        "gain": estimate,
    }


def _bootstrap(found: Tally, statistic: Callable[[Array], float], seed: int) -> dict[str, float | None]:
    """Value and 95 % interval over compounds; no interval for one compound alone."""
    names = sorted(set(found.compound))
    if not names:
        return {"value": None, "low": None, "high": None}
    at = np.array([names.index(c) for c in found.compound])
    rng = np.random.default_rng(derive_seed(seed, "bootstrap"))
    value = round(statistic(np.ones(len(at))), 4)
    if len(names) == 1:
        return {"value": value, "low": None, "high": None}
    draws = []
    for _ in range(DRAWS):
        weight = np.bincount(rng.integers(0, len(names), len(names)), minlength=len(names))[at].astype(float)
        draws.append(statistic(weight))
    low, high = np.percentile(draws, (2.5, 97.5))
    return {"value": value, "low": round(float(low), 4), "high": round(float(high), 4)}


def _balanced(found: Tally, weight: Array) -> float:
    shares = []
    for k in set(found.truth.tolist()):
        inside = weight * (found.truth == k)
        if inside.sum() > 0:
            shares.append(float((inside * found.right).sum() / inside.sum()))
    return float(np.mean(shares))


def second_field_tallies(cells: Cells, initial: Array, with_actin: Array) -> tuple[Tally, dict[str, Tally]]:
    """One unit for each field that has another field of its well: its own answer, with actin, with the other field."""
    fields = sorted(set(cells.field))
    rows = {f: np.flatnonzero([g == f for g in cells.field]) for f in fields}
    pairs = [
        (f, min((g for g in fields if (g.plate, g.well) == (f.plate, f.well) and g != f), default=None)) for f in fields
    ]
    usable = [(f, g) for f, g in pairs if g is not None and np.isfinite(initial[rows[f]]).any()]
    answers: dict[str, list[bool]] = {"initial": [], "actin": [], "second_field": []}
    for field, other in usable:
        truth = cells.classes.index(str(field.treatment.moa))
        shown = {
            "initial": initial[rows[field]],
            "actin": with_actin[rows[field]],
            "second_field": initial[np.concatenate([rows[field], rows[other]])],
        }
        for name, scores in shown.items():
            answers[name].append(int(np.nan_to_num(scores.mean(axis=0), nan=-1e9).argmax()) == truth)
    truth_of = np.array([cells.classes.index(str(f.treatment.moa)) for f, _ in usable], dtype=np.intp)
    compound = np.array([compound_of(f) for f, _ in usable])
    made = {
        n: Tally(np.array(a, dtype=float), truth_of, compound, len(fields) - len(usable)) for n, a in answers.items()
    }
    return made.pop("initial"), made


def measure(source: Source) -> dict[str, Any]:
    """Everything docs/microscopy.md reports of the windows."""
    every, capped = read_cells(source, None), read_cells(source)
    plain = read_cells(source, controls=False)
    names, first = NAMES, feature_names("DT")
    scores = held_out_scores(capped, names)
    start = held_out_scores(capped, first)
    units: dict[str, Callable[[Field], str] | None] = {
        "cells": None,
        "fields": lambda f: f.id,
        "treatments": lambda f: f.treatment.id,
        "compounds": compound_of,
    }
    report: dict[str, Any] = {"cells": len(every.x), "cells_capped": len(capped.x), "classes": list(capped.classes)}
    report["all_cells"] = {"cells": summary(tally(every, held_out_scores(every, names), None))}
    report["taxol_capped"] = {unit: summary(tally(capped, scores, of)) for unit, of in units.items()}
    for rule in (RULES["compound_plate"], RULES["compound_batch"]):
        strict = held_out_scores(capped, names, rule)
        report[rule] = {unit: summary(tally(capped, strict, of)) for unit, of in units.items()}
    without = held_out_scores(plain, names)
    report["without_controls"] = {unit: summary(tally(plain, without, of)) for unit, of in units.items()}
    report["dna_and_tubulin"] = {unit: summary(tally(capped, start, of)) for unit, of in units.items()}
    before, after = second_field_tallies(capped, start, scores)
    report["measurements"] = {
        **gains(before, after, capped.classes),
        **gains(after["actin"], {"second_field_minus_actin": after["second_field"]}, capped.classes),
    }
    return report


def measure_profiles(folder: Path) -> dict[str, Any]:
    """Well profiles, z-scored to plate controls, means of treatments, leave-one-compound-out nearest neighbour."""
    from evidence.bbbc021_plates import Plates
    from evidence.profiles import columns_without_actin, cosine, open_profiles

    wells = {(f.plate, f.well): f for f in Plates.open(folder).fields}
    profiles = open_profiles(folder, frozenset(k for k, f in wells.items() if f.treatment.control))
    known = [k for k in sorted(profiles.row) if k in wells and wells[k].treatment.moa is not None]
    treatments = sorted({wells[k].treatment for k in known})
    mean = np.stack(
        [profiles.z[[profiles.row[k] for k in known if wells[k].treatment == t]].mean(axis=0) for t in treatments]
    )
    averaged = profiles._replace(z=mean)
    report = {}
    for name, used in (("all", range(len(profiles.names))), ("dna_and_tubulin", columns_without_actin(profiles.names))):
        similar = cosine(averaged, range(len(mean)), list(used))
        same = np.array([[a.compound == b.compound for b in treatments] for a in treatments])
        nearest = np.where(same, -np.inf, similar).argmax(axis=1)
        classes = sorted({str(t.moa) for t in treatments})
        truth = np.array([classes.index(str(t.moa)) for t in treatments])
        right = (truth[nearest] == truth).astype(float)
        report[name] = summary(Tally(right, truth, np.array([t.compound for t in treatments]), 0))
    return report


def _rows(source: Source, fields: Sequence[Field]) -> Rows:
    made = [(features(source.windows(f)), f) for f in fields]
    values = np.concatenate([v for v, _ in made]) if made else np.zeros((0, len(NAMES)))
    return Rows(values, tuple(f for v, f in made for _ in range(len(v))))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: measure, print JSON, write it where asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.microscopy")
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--source", choices=("crops", "twin"), default="crops")
    given = parser.parse_args(arguments)
    report = measure(open_source(given.source, given.data))
    if given.source == "crops":
        report["profiles"] = measure_profiles(data_folder(given.data))
    text = json.dumps(report, indent=1, sort_keys=True, allow_nan=False) + "\n"
    if given.out:
        given.out.write_text(text)
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

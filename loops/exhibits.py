"""What a model is shown of predictions and observations: a table, a figure, or both."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from evidence.contracts import Case, Evidence, Figure, Observation, Part, Prediction, Table

Modalities = Collection[str]
Points = Mapping[str, tuple[float, float]]
"""Readout id -> (mean, standard deviation)."""


def prediction_exhibit(case: Case, predictions: Sequence[Prediction], modalities: Modalities) -> Evidence:
    """The simulator's predictions, before any measurement."""
    if not predictions:
        return Evidence((), {})
    parts: list[Part] = []
    if "table" in modalities:
        parts.append(_table("predictions", predictions))
    series = {"predicted": _points(predictions)}
    return _with_figure(case, parts, "predictions", "Predicted change", series, modalities)


def observation_exhibit(
    case: Case,
    seen: Evidence,
    observations: Sequence[Observation],
    before: Sequence[Prediction],
    calibrated: Sequence[Prediction],
    modalities: Modalities,
) -> Evidence:
    """The newest observation (its own parts are `seen`), and the predictions calibrated with all observations."""
    parts: list[Part] = [part for part in seen.parts if part.kind == "text" or part.kind in modalities]
    shown = {part.sha256: seen.blobs[part.sha256] for part in parts if isinstance(part, Figure)}
    if "table" in modalities:
        parts.append(_observation_table(observations[-1]))
        if calibrated:
            parts.append(_calibrated_table(case, calibrated))
    measured = {o.readout: (o.value, o.se or 0.0) for o in observations if o.readout and o.value is not None}
    series = {"predicted": _points(before), "calibrated": _points(calibrated), "measured": measured}
    title = "Predicted, calibrated and measured change"
    drawn = _with_figure(case, parts, "calibrated", title, series, modalities)
    return Evidence(drawn.parts, {**shown, **drawn.blobs})


def _with_figure(
    case: Case, parts: list[Part], name: str, title: str, series: Mapping[str, Points], modalities: Modalities
) -> Evidence:
    numeric = [r for r in case.readouts if r.numeric]
    drawn = {label: points for label, points in series.items() if points}
    if "figure" not in modalities or not numeric or not drawn:
        return Evidence(tuple(parts), {})
    from evidence import figures  # matplotlib is slow to import: only runs that show figures pay for it

    lines = [figures.Series(label, points) for label, points in drawn.items()]
    image = figures.change_figure(numeric, lines, title=f"{case.title}: {title}")
    figure, data = figures.figure_part(name, image, f"{title}, with 95 % intervals.")
    return Evidence((*parts, figure), {figure.sha256: data})


def _points(predictions: Sequence[Prediction]) -> Points:
    return {p.readout: (p.mean, p.sd) for p in predictions}


def _table(name: str, predictions: Sequence[Prediction]) -> Table:
    rows = tuple((p.readout, round(p.mean, 4), round(p.sd, 4)) for p in predictions)
    return Table(name=name, columns=("readout", "change", "sd"), rows=rows)


def _calibrated_table(case: Case, calibrated: Sequence[Prediction]) -> Table:
    """The calibrated predictions; with the class each stands for, where the adapter says more than mean and sd."""
    plain = _table("calibrated", calibrated)
    if all(p.dof is None for p in calibrated):
        return plain
    rows = tuple((*row, case.readout(p.readout).decide(p)) for row, p in zip(plain.rows, calibrated, strict=True))
    return Table(name=plain.name, columns=(*plain.columns, "class"), rows=rows)


def _observation_table(observation: Observation) -> Table:
    row = (observation.measurement, observation.status, observation.value, observation.se, observation.n_cells)
    rounded = tuple(round(cell, 4) if isinstance(cell, float) else cell for cell in row)
    return Table(name="observation", columns=("measurement", "status", "change", "se", "cells"), rows=(rounded,))

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from evidence.contracts import CaseFile, EvidenceSetting, Figure, Measurement, Readout, Table
from evidence.errors import ConfigError, ContractError, DataError
from evidence.figures import Series, change_figure, figure_part
from evidence.graph_layout import layered
from evidence.sachs import SachsCells, make_cells, open_cells
from evidence.sachs_conditions import PROTEINS, conditions
from evidence.sachs_graphs import GRAPHS
from evidence.signaling import Signaling, freeze
from evidence.signaling_rules import baseline_rows, split_cells, threshold
from evidence.values import canonical_json

CASES = Path(__file__).parents[2] / "cases"
SIX = ("Raf", "Plcg", "PIP3", "Erk", "P38", "Jnk")


def shipped(name: str) -> CaseFile:
    return CaseFile.model_validate_json((CASES / f"{name}.json").read_text())


def changed(cells: SachsCells, rows: np.ndarray) -> SachsCells:
    """The same cells with the given rows in another order, and shifted to another scale or level."""
    values = cells.values.copy()
    values[rows] = values[rows[::-1]] * 3 if cells.kind == "fluorescence" else 4 - values[rows[::-1]]
    return make_cells(values, cells.condition.tolist(), cells.kind, cells.path)


def shown(setting: Signaling) -> list[object]:
    """Everything a model may see before measuring, in bytes and JSON."""
    seen: list[object] = []
    for case in setting.cases():
        evidence = setting.evidence(case, ("table", "figure"))
        seen += [canonical_json(case), [canonical_json(part) for part in evidence.parts], dict(evidence.blobs)]
    return seen


# --- freezing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "shape"),
    [
        ("signaling", "fluorescence", "published"),
        ("signaling-extended", "fluorescence", "extended"),
        ("signaling-bnlearn", "levels", "published"),
    ],
)
def test_shipped_case_files_are_what_the_rules_give(sachs_folder: Path, name: str, kind: str, shape: str) -> None:
    if kind == "levels" and not (sachs_folder / "sachs.interventional.txt").is_file():
        pytest.skip(f"no sachs.interventional.txt in {sachs_folder}")
    made = Signaling.freeze(data=sachs_folder, shape=shape, seed=1, options={"kind": kind})
    assert made == shipped(name)


def test_published_shape() -> None:
    case_file = shipped("signaling")
    assert [case.id for case in case_file.cases] == ["aktinhib", "g0076", "psitect", "u0126", "b2camp"]
    assert all(tuple(readout.id for readout in case.readouts) == SIX for case in case_file.cases)
    assert all(tuple(m.readout for m in case.menu) == SIX for case in case_file.cases)
    targets = [case.perturbation.targets for case in shipped("signaling-bnlearn").cases]
    assert sorted(targets) == [("Akt",), ("Mek",), ("PIP2",), ("PKA",), ("PKC",)]


def test_extended_shape() -> None:
    case_file = shipped("signaling-extended")
    assert len(case_file.cases) == 7
    for case in case_file.cases:
        assert tuple(r.id for r in case.readouts) == tuple(p for p in PROTEINS if p not in case.perturbation.targets)
    ly = next(case for case in case_file.cases if case.id == "ly")
    assert ly.perturbation.targets == ("PIP3",)
    assert "PI3K" in ly.perturbation.note


def test_the_split_is_disjoint_and_blind_to_values(cells: SachsCells) -> None:
    parts = split_cells(cells, 1)
    rows = np.concatenate([part for three in parts.values() for part in three])
    assert sorted(rows.tolist()) == list(range(len(cells.values)))
    for entry in conditions(cells.kind):
        assert len(parts[entry.id].reserved) == (0 if entry.baseline else 96)
        assert set(cells.condition[np.concatenate(parts[entry.id])]) == {entry.id}
    other = split_cells(changed(cells, np.arange(len(cells.values))), 1)
    assert all(np.array_equal(a, b) for c in parts for a, b in zip(parts[c], other[c], strict=True))
    assert not np.array_equal(parts[cells.condition[-1]].truth, split_cells(cells, 2)[cells.condition[-1]].truth)


def test_nothing_frozen_depends_on_intervention_cells(cells: SachsCells) -> None:
    treated = np.flatnonzero(np.isin(cells.condition, [e.id for e in conditions(cells.kind) if not e.baseline]))
    first, second = freeze(cells, "extended"), freeze(changed(cells, treated), "extended")
    assert first.data != second.data
    assert first.model_copy(update={"data": {}}) == second.model_copy(update={"data": {}})


def test_truth_cells_change_neither_cases_nor_evidence_nor_observations(cells: SachsCells) -> None:
    truth_rows = np.concatenate([three.truth for three in split_cells(cells, 1).values()])
    other = changed(cells, truth_rows)
    first = Signaling.on_cells(freeze(cells, "published"), cells)
    second = Signaling.on_cells(freeze(other, "published"), other)
    assert shown(first) == shown(second)
    assert np.array_equal(first.training().levels, second.training().levels)
    for case in first.cases():
        assert first.responses(case) == second.responses(case)
        assert [first.observe(case, m, 0).observation for m in case.menu] == [
            second.observe(case, m, 0).observation for m in case.menu
        ]
    assert [first.truth(case) for case in first.cases()] != [second.truth(case) for case in second.cases()]


def test_thresholds_follow_the_written_rule(cells: SachsCells) -> None:
    case_file = freeze(cells, "published")
    setting = Signaling.on_cells(case_file, cells)
    levels = setting.training().levels
    for name, p0 in setting.frozen.baseline_high.items():
        assert p0 == pytest.approx((levels[:, PROTEINS.index(name)] == 2).mean())
        se = np.sqrt(p0 * (1 - p0) * (1 / 96 + 1 / len(levels)))
        assert setting.frozen.thresholds[name] == round(1.96 * se, 4)
    assert threshold(0.0, 1000) == threshold(1 / 96, 1000) > 0


# --- the setting --------------------------------------------------------------------------------------------------


def test_it_is_an_evidence_setting(cells: SachsCells) -> None:
    assert isinstance(Signaling.on_cells(freeze(cells, "published"), cells), EvidenceSetting)


def test_values_equal_counting_by_hand(cells: SachsCells) -> None:
    setting = Signaling.on_cells(freeze(cells, "extended"), cells)
    case = setting.cases()[0]
    column = PROTEINS.index(case.readouts[0].id)
    high = setting.levels[:, column] == 2
    parts = setting.parts[case.id]
    base = {part: high[baseline_rows(setting.parts, cells.kind, part)].mean() for part in ("training", "truth")}
    seen = setting.observe(case, case.menu[0], 5).observation
    assert seen.value == pytest.approx(high[parts.reserved].mean() - base["training"])
    assert seen.n_cells == 96
    assert seen == setting.observe(case, case.menu[0], 6).observation
    truth = setting.truth(case)
    assert [t.readout for t in truth] == [r.id for r in case.readouts]
    assert truth[0].value == pytest.approx(high[parts.truth].mean() - base["truth"])
    assert truth[0].value is not None
    assert truth[0].label == case.readouts[0].classify(truth[0].value)
    p1, n1, p0, n0 = high[parts.truth].mean(), len(parts.truth), base["truth"], 0
    n0 = len(baseline_rows(setting.parts, cells.kind, "truth"))
    assert truth[0].se == pytest.approx(np.sqrt(p1 * (1 - p1) / n1 + p0 * (1 - p0) / n0), rel=0.05)


def test_responses_share_no_target_and_never_ask_for_the_target_itself(cells: SachsCells) -> None:
    setting = Signaling.on_cells(freeze(cells, "extended"), cells)
    for case in setting.cases():
        responses = setting.responses(case)
        assert responses
        assert all(not set(r.perturbation.targets) & set(case.perturbation.targets) for r in responses)
        assert all(r.readout not in r.perturbation.targets and r.se > 0 for r in responses)
        assert case.id not in {r.perturbation.id for r in responses}


def test_responses_come_from_all_interventions_of_the_data(real_cells: SachsCells) -> None:
    setting = Signaling.on_cells(shipped("signaling"), real_cells)
    found = {case.id: {r.perturbation.id for r in setting.responses(case)} for case in setting.cases()}
    assert found["g0076"] == {"aktinhib", "psitect", "u0126", "ly", "b2camp"}  # pma has the same target
    assert found["psitect"] == {"aktinhib", "g0076", "u0126", "ly", "pma", "b2camp"}


def test_real_truth_has_all_three_classes(real_cells: SachsCells) -> None:
    setting = Signaling.on_cells(shipped("signaling"), real_cells)
    labels = [truth.label for case in setting.cases() for truth in setting.truth(case)]
    assert {label: labels.count(label) for label in set(labels)} == {"down": 10, "near zero": 11, "up": 9}


def test_evidence_fits_modalities(cells: SachsCells) -> None:
    setting = Signaling.on_cells(freeze(cells, "published"), cells)
    case = setting.cases()[-1]
    text = setting.evidence(case, ())
    assert {part.kind for part in text.parts} == {"text"}
    assert case.perturbation.note in canonical_json(text.parts[1])
    tables = [p for p in setting.evidence(case, ("table",)).parts if isinstance(p, Table)]
    assert [t.name for t in tables] == ["baseline", "graph"]
    assert tables[0].columns == ("readout", "baseline high fraction", "threshold")
    assert len(tables[1].rows) == 20
    shown = setting.evidence(case, ("figure",))
    figures = [p for p in shown.parts if isinstance(p, Figure)]
    assert [f.sha256 for f in figures] == list(shown.blobs)
    assert all(data.startswith(b"\x89PNG") and b"Software" not in data for data in shown.blobs.values())


def test_only_the_menu_can_be_measured(cells: SachsCells) -> None:
    setting = Signaling.on_cells(freeze(cells, "published"), cells)
    case = setting.cases()[0]
    target = Measurement(id="measure_target", name="x", readout="Raf", cost=0.0)
    with pytest.raises(ContractError, match="not on the menu"):
        setting.observe(case, target, 0)


# --- errors -------------------------------------------------------------------------------------------------------


def test_other_cells_are_refused_with_both_hashes(tmp_path: Path) -> None:
    row = ",".join("1" * 11)
    header = ",".join(PROTEINS) + ",condition"
    lines = [f"{row},{entry.id}" for entry in conditions("fluorescence")]
    path = tmp_path / "mine.csv"
    path.write_text("\n".join((header, *lines)) + "\n")
    case_file = shipped("signaling")
    with pytest.raises(DataError) as caught:
        Signaling.open(case_file, path)
    message = str(caught.value)
    assert str(path) in message
    assert case_file.data["sachs2005"] in message
    assert open_cells(path).data_sha256 in message


def test_a_changed_frozen_part_is_refused() -> None:
    case_file = shipped("signaling")
    wrong: list[tuple[dict[str, object], str]] = [
        ({"grpah": "sachs20"}, "frozen.grpah"),
        ({"graph": "sachs17"}, "not those of the graph 'sachs17'"),
        ({"edges": [["Raf", "Mek"], ["Mek", "Raf"]], "graph": "mine"}, "acyclic"),
        ({"edges": [["Raf", "PI3K"]], "graph": "mine"}, "expected proteins, got PI3K"),
        ({"thresholds": {}}, "threshold that is not in frozen.thresholds"),
        ({"kind": "levels"}, "expected an intervention of int_mek"),
    ]
    for update, message in wrong:
        other = case_file.model_copy(update={"frozen": {**case_file.frozen, **update}})
        with pytest.raises(ConfigError, match=message):
            Signaling.open(other, None)


def test_bad_freeze_options() -> None:
    for options, shape, message in (
        ({"grph": "sachs17"}, "published", "Did you mean 'graph'"),
        ({"kind": "counts"}, "published", "option kind"),
        ({}, "round", "expected published or extended"),
    ):
        with pytest.raises(ConfigError, match=message):
            Signaling.freeze(data=None, shape=shape, seed=1, options=options)


def test_too_few_cells_are_refused() -> None:
    labels = [entry.id for entry in conditions("fluorescence") for _ in range(50)]
    few = make_cells(np.ones((len(labels), 11)), labels, "fluorescence", Path("few"))
    with pytest.raises(DataError, match="condition aktinhib: expected at least 98 cells, got 50"):
        freeze(few, "published")


# --- figures ------------------------------------------------------------------------------------------------------


def test_figures_have_the_same_bytes_for_the_same_input() -> None:
    readouts = [Readout(id=name, name=name, threshold=0.1, unit="fraction of cells") for name in SIX]
    series = [Series("predicted", dict.fromkeys(SIX, (0.1, 0.05))), Series("measured", {"Raf": (-0.4, 0.1)})]
    data = change_figure(readouts, series, "title")
    assert data == change_figure(readouts, series, "title")
    figure, same = figure_part("predictions", data, "caption")
    assert same == data
    assert figure.media_type == "image/png"
    assert int.from_bytes(data[16:20], "big") == 1000
    assert data != change_figure(readouts, series[:1], "title")
    with pytest.raises(ValueError, match="expected distinct series"):
        change_figure(readouts, [series[0], series[0]], "title")


@pytest.mark.parametrize("name", sorted(GRAPHS))
def test_layout_keeps_gaps_and_leads_every_edge_down(name: str) -> None:
    layout = layered(PROTEINS, GRAPHS[name].edges)
    for layer in layout.layers:
        places = [layout.x[stop] for stop in layer]
        assert all(b - a > 0.3 for a, b in pairwise(places))
    assert all(below[1] == above[1] + 1 for above, below in layout.links)
    reached = {(a[0], b[0]) for a, b in layout.links if a[0] != b[0]}
    assert reached == set(GRAPHS[name].edges)

"""The microscopy setting: case files, what is shown, what is hidden, what is measured."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("skimage", reason="needs the images extra: pip install -e '.[images]'")
from PIL import Image

from evidence.bbbc021 import Source, open_source
from evidence.bbbc021_tables import Treatment
from evidence.case_files import case_file_text
from evidence.cell_features import NAMES, columns, feature_names, features
from evidence.checks import SETTING_CHECKS, SettingUnderTest, run_checks
from evidence.contracts import CaseFile, Figure, NoOptions, Table
from evidence.errors import ConfigError, DataError
from evidence.microscopy import Microscopy
from evidence.microscopy_cases import freeze
from evidence.strict_yaml import read_value
from interpreters.pixels import PixelsInterpreter
from interpreters.prompts import predict_request, revise_request
from interpreters.reply import parse_reply

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "data" / "bbbc021"
real = pytest.mark.skipif(not SHARED.is_dir(), reason=f"needs the real single-cell windows at {SHARED}")


def shipped(name: str) -> CaseFile:
    return read_value(ROOT / "cases" / name, CaseFile, what="case file")


@pytest.fixture(scope="module")
def twin() -> Microscopy:
    return Microscopy.open(shipped("microscopy.json"), None)


class Relabelled:
    """A source whose labels of some compounds are permuted; pixels stay."""

    def __init__(self, source: Source, moa_of: dict[str, str]):
        self.name, self.report, self._source = source.name, source.report, source
        self._fields = {f.id: f for f in source.fields}
        self.fields = tuple(
            f._replace(treatment=Treatment(*f.treatment[:2], moa_of.get(f.treatment.compound, f.treatment.moa)))
            for f in source.fields
        )

    def check(self, fields):
        pass

    def windows(self, field):
        return self._source.windows(self._fields[field.id])

    def content(self, field):
        return self._source.content(self._fields[field.id])


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("microscopy.json", None),
        pytest.param("microscopy-crops.json", SHARED, marks=real),
        pytest.param("microscopy-extended.json", SHARED, marks=[real, pytest.mark.slow]),
    ],
)
def test_shipped_files_are_what_freeze_makes_and_keep_the_contract(name, data):
    case_file = shipped(name)
    options = {"source": case_file.frozen["source"]}
    again = Microscopy.freeze(data=data, shape=case_file.frozen["shape"], seed=case_file.seed, options=options)
    assert case_file_text(again) == (ROOT / "cases" / name).read_text()
    cheap = [c for c in SETTING_CHECKS if c.__name__ != "check_observations_are_whole" or data is None]
    checks = cheap if name != "microscopy-extended.json" else cheap[:2]
    results = run_checks(checks, SettingUnderTest(case_file, lambda file: Microscopy.open(file, data)))
    assert [r.detail for r in results if not r.passed] == []


@real
def test_published_shape_and_extended_shape():
    published, extended = shipped("microscopy-crops.json"), shipped("microscopy-extended.json")
    fields = {f.id: f.treatment for f in open_source("crops", SHARED).fields}
    asked = [fields[q["field"]].compound for q in published.frozen["queries"].values()]
    known = {fields[i].compound for i in published.frozen["pool"]}
    assert len(published.cases) == len(set(asked)) == 9
    assert len(published.frozen["classes"]) == 5
    assert not known & set(asked)
    assert {fields[i].moa for i in published.frozen["pool"]} == set(published.frozen["classes"])
    asked = [fields[q["field"]].compound for q in extended.frozen["queries"].values()]
    assert len(extended.cases) == len(set(asked)) == 38
    assert len(extended.frozen["classes"]) == 12
    for case_file in (published, extended):
        for query in case_file.frozen["queries"].values():
            if query["second"]:
                assert query["field"].rsplit("/", 1)[0] == query["second"].rsplit("/", 1)[0]
                assert query["field"] != query["second"]


@pytest.mark.parametrize("name", ["microscopy.json", pytest.param("microscopy-crops.json", marks=real)])
def test_prompts_do_not_depend_on_hidden_labels(name):
    case_file = shipped(name)
    source = open_source(case_file.frozen["source"], SHARED)
    fields = {f.id: f.treatment for f in source.fields}
    asked = [fields[q["field"]] for q in case_file.frozen["queries"].values()]
    turned = [t.moa for t in asked[1:] + asked[:1]]
    other = Relabelled(source, {t.compound: str(moa) for t, moa in zip(asked, turned, strict=True)})
    one, two = Microscopy.on_source(case_file, source), Microscopy.on_source(case_file, other)
    changed = 0
    for case in case_file.cases[:4]:
        changed += one.truth(case) != two.truth(case)
        for modalities in (("table",), ("figure",)):
            a, b = one.evidence(case, modalities), two.evidence(case, modalities)
            assert predict_request(case, a.parts) == predict_request(case, b.parts)
            assert a.blobs == b.blobs
        for entry in case.menu:
            assert one.observe(case, entry, 0) == two.observe(case, entry, 0)
    assert changed


@real
def test_left_out_compounds_do_not_tell_their_class():
    case_file = shipped("microscopy-extended.json")
    source = open_source("crops", SHARED)
    fields = {f.id: f.treatment for f in source.fields}
    case = case_file.cases[0]
    hidden = fields[case_file.frozen["queries"][case.id]["field"]]
    wrong = next(c for c in case_file.frozen["classes"] if c != hidden.moa)
    one = Microscopy.on_source(case_file, source)
    two = Microscopy.on_source(case_file, Relabelled(source, {hidden.compound: wrong}))
    assert one.evidence(case, ("table",)) == two.evidence(case, ("table",))


@pytest.mark.parametrize("name", ["microscopy.json", pytest.param("microscopy-crops.json", marks=real)])
def test_nothing_shown_names_a_compound_a_plate_or_a_dose(name):
    case_file = shipped(name)
    source = open_source(case_file.frozen["source"], SHARED)
    setting = Microscopy.on_source(case_file, source)
    banned = {f.treatment.compound for f in source.fields if not f.treatment.control} | {f.plate for f in source.fields}
    banned |= {"DMSO"}
    for case in case_file.cases[:2]:
        seen = setting.evidence(case, ("table", "figure"))
        observed = [setting.observe(case, entry, 0) for entry in case.menu]
        request = predict_request(case, (*seen.parts, *(p for o in observed for p in o.observation.parts)))
        text = request.model_dump_json()
        assert not [word for word in banned if word in text]
        for data in [*seen.blobs.values(), *(b for o in observed for b in o.blobs.values())]:
            assert Image.open(io.BytesIO(data)).info == {}
        captions = [p.caption for p in seen.parts if isinstance(p, Figure)]
        assert captions
        assert all("counts" in caption for caption in captions)


def test_actin_is_shown_only_when_it_was_measured(twin):
    case = twin.cases()[0]
    seen = twin.evidence(case, ("table", "figure"))
    shown = [c for p in seen.parts if isinstance(p, Table) for c in p.columns[2:]]
    assert not [c for c in shown if "A" in c.split("_")[0]]
    assert set(feature_names("DT")) <= set(shown)
    actin = twin.observe(case, case.measurement("actin"), 0)
    added = next(p for p in actin.observation.parts if isinstance(p, Table))
    assert all("A" in c.split("_")[0] for c in added.columns[4:])
    assert actin.observation.n_cells == 3


def test_the_missing_second_field_is_a_status(twin):
    case = twin.cases()[0]
    queries = {**twin.frozen.queries, case.id: twin.frozen.queries[case.id].model_copy(update={"second": None})}
    setting = Microscopy(twin.case_file, twin.frozen.model_copy(update={"queries": queries}), twin.source)
    seen = setting.observe(case, case.measurement("second_field"), 0).observation
    assert (seen.status, seen.value) == ("missing", None)
    assert "no second field" in seen.reason


def test_the_interpreter_updates_and_answers_in_the_form(twin):
    interpreter = PixelsInterpreter(NoOptions())
    right = {"initial": 0, "actin": 0}
    moved = 0
    for case in twin.cases():
        request = predict_request(case, twin.evidence(case, ("table",)).parts)
        reply = asyncio.run(interpreter.ask(request, {}, repeat=0))
        parsed = parse_reply(request, reply)
        assert parsed.status == "ok"
        assert parsed.proposal == "actin"
        actin = twin.observe(case, case.measurement("actin"), 0).observation
        last = revise_request(request, reply.text, actin.parts, ())
        revised = parse_reply(last, asyncio.run(interpreter.ask(last, {}, repeat=0)))
        moved += revised.answers[0].probabilities != parsed.answers[0].probabilities
        truth = twin.truth(case)[0].label
        right["initial"] += parsed.answers[0].label == truth
        right["actin"] += revised.answers[0].label == truth
    assert moved
    assert right["initial"] >= 6
    assert right["actin"] == 9


def test_the_interpreter_refuses_without_tables(twin):
    request = predict_request(twin.cases()[0], ())
    reply = asyncio.run(PixelsInterpreter(NoOptions()).ask(request, {}, repeat=0))
    assert reply.status == "refused"


def test_features_of_one_channel_do_not_use_another(twin):
    windows = twin.source.windows(twin.source.fields[0]).copy()
    before = features(windows)
    windows[..., 1] = windows[..., 1][:, ::-1] // 2
    after = features(windows)
    same = columns(feature_names("DT"))
    assert np.array_equal(before[:, same], after[:, same])
    assert not np.array_equal(before, after)
    empty = features(np.zeros((1, 68, 68, 3), dtype=np.uint16))
    assert empty.shape == (1, len(NAMES))
    assert np.isfinite(empty).all()


def test_wrong_options_and_other_data_are_refused():
    with pytest.raises(ConfigError, match="Did you mean 'source'"):
        Microscopy.freeze(data=None, shape="published", seed=1, options={"sorce": "twin"})
    with pytest.raises(ConfigError, match="expected published or extended"):
        Microscopy.freeze(data=None, shape="all", seed=1, options={"source": "twin"})
    case_file = shipped("microscopy.json")
    frozen = json.loads(json.dumps(case_file.frozen))
    frozen["pool"][0] = "WeekZ_1/A01/1"
    with pytest.raises(DataError, match="lack the fields WeekZ_1/A01/1"):
        Microscopy.open(case_file.model_copy(update={"frozen": frozen}), None)


def test_a_rule_that_leaves_no_reference_takes_the_case_out():
    source = open_source("twin", None)
    strict = freeze(source, "extended", seed=1, rule="compound_batch")
    assert len(strict.cases) + len(strict.frozen["not_evaluable"]) == 19


@real
def test_well_profiles_are_another_modality():
    options = {"source": "crops", "profiles": "yes"}
    case_file = Microscopy.freeze(data=SHARED, shape="published", seed=1, options=options)
    setting = Microscopy.open(case_file, SHARED)
    case = case_file.cases[0]
    tables = {p.name: p for p in setting.evidence(case, ("table",)).parts if isinstance(p, Table)}
    assert len(tables["well profile neighbours"].rows) == 10
    assert {row[0] for row in tables["well profile neighbours"].rows} <= set(case.readouts[0].labels)

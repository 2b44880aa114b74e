import contextlib
import importlib.util
import random
import warnings

import numpy as np
import pytest

from evidence.conditions import CONTROL, Condition, pair
from evidence.contracts import Observation, Perturbation
from evidence.errors import ConfigError, ContractError, DataError
from evidence.expression import ExpressionPrograms
from evidence.files import file_sha256
from evidence.perturbed import DataCard, make_cells
from simulators.gears.go import make_go

torch = pytest.importorskip("torch", reason='needs: pip install -e ".[gears]"')
for package in ("torch_geometric", "scanpy"):
    pytest.importorskip(package, reason='needs: pip install -e ".[gears]"')
if importlib.util.find_spec("gears") is None:
    pytest.skip('needs: pip install -e ".[gears]"', allow_module_level=True)

from simulators import stored as stored_simulators  # noqa: E402 - after the skips
from simulators.gears import compat, lean, model, store, training  # noqa: E402
from simulators.gears.dataset import open_dataset, prepare  # noqa: E402
from simulators.gears.model import Gears, member_seeds, upstream_expression  # noqa: E402
from simulators.gears.training import GearsOptions  # noqa: E402
from simulators.response_table import save_table  # noqa: E402

pytestmark = pytest.mark.slow
TARGETS = ("P1", "P2", "P3", "P4", "P5", "P6")
GENES = (*(f"G{n:02d}" for n in range(38)), "P1", "P2")
HELD = (pair("P1", "P2"), pair("P3", "P4"))
OPTIONS = GearsOptions(epochs=2, hidden_size=8, decoder_hidden_size=4, batch_size=16)


def cells(shuffle_hidden=False):
    """Each target moves its own four genes; two pairs are held out, one is trained on; P9 has no GO annotation."""
    rng = np.random.default_rng(5)
    labels = ["ctrl", *TARGETS, "P9", "P5+P6", "P2+P1", "P4+P3"]
    rows, names = [], []
    for label in labels:
        x = np.maximum(0.8 + 0.4 * rng.standard_normal((12, len(GENES))), 0) * (rng.random((12, len(GENES))) < 0.8)
        for target in {*TARGETS} & {*label.split("+")}:
            start = 4 * TARGETS.index(target)
            x[:, start : start + 4] += 0.7
        hidden = shuffle_hidden and label in ("P2+P1", "P4+P3")
        rows.append(np.random.default_rng(1).permutation(x.ravel()).reshape(x.shape) if hidden else x)
        names += [label] * 12
    return make_cells(
        np.concatenate(rows), GENES, names, card=DataCard(name="twin", cell_line="K562", modality="CRISPRa")
    )


@pytest.fixture(scope="module")
def go():
    return make_go({g: [f"GO:{n % 7}", f"GO:{10 + n % 3}"] for n, g in enumerate((*GENES, *TARGETS))}, source="twin")


@pytest.fixture(scope="module")
def dataset(go, tmp_path_factory):
    return prepare(cells(), held_out=HELD, go=go, root=tmp_path_factory.mktemp("gears"))


@pytest.fixture(scope="module")
def gears(dataset):
    return Gears.train(dataset, OPTIONS, seeds=[1, 2])


WANTED = (*(Condition((t,)) for t in TARGETS), pair("P5", "P6"), *HELD, pair("P2", "P5"))


def test_prediction_in_batches_equals_upstream_one_by_one(gears):
    ours = gears.predict_expression(WANTED, seed=7)
    for number, member in enumerate(gears.members):
        theirs = np.array([upstream_expression(member, condition, seed=7) for condition in WANTED])
        assert np.abs(ours[number] - theirs).max() < 1e-5
    other = gears.predict_expression(WANTED, seed=8)
    assert np.abs(ours - other).max() > 1e-3


def test_the_size_of_a_batch_does_not_matter(gears, monkeypatch):
    whole = gears.predict(WANTED).members
    monkeypatch.setattr(model, "_ROWS_PER_BATCH", 3 * len(GENES))
    np.testing.assert_allclose(gears.predict(WANTED).members, whole, atol=1e-6)
    assert gears.predict([]).mean.shape == (0, len(GENES))


def test_the_order_of_genes_and_of_requests_does_not_matter(gears):
    forward = gears.predict([Condition(("P1", "P2")), Condition(("P3",))])
    backward = gears.predict([Condition(("P3",)), Condition(("P2", "P1"))])
    assert forward.conditions == backward.conditions[::-1]
    np.testing.assert_allclose(forward.mean, backward.mean[::-1], atol=1e-6)


def test_members_differ_and_give_a_standard_deviation(gears):
    change = gears.predict(WANTED)
    assert change.sd is not None
    assert (change.sd.mean(axis=1) > 0).all()
    assert Gears(gears.members[:1]).predict(WANTED).sd is None


def test_training_gives_upstreams_own_weights(dataset, gears, monkeypatch):
    """Bit for bit on the machines seen so far; another matrix library may split the same sums in another way."""
    monkeypatch.setattr(lean, "training", contextlib.nullcontext)
    said = []
    theirs = training.train_member(dataset, OPTIONS, 1, said.append)
    assert any("Train Overall MSE: 0." in text for text in said)  # upstream's own epoch, all of it
    ours = gears.members[0].network.state_dict()
    torch.testing.assert_close(ours, theirs.network.state_dict(), rtol=0, atol=1e-5)


def test_what_is_not_computed_is_said(dataset):
    said = []
    training.train_member(dataset, OPTIONS, 1, said.append)
    assert (
        sum("Train Overall MSE: not evaluated. Validation Overall MSE: 0." in text for text in said) == OPTIONS.epochs
    )


def test_the_number_of_threads_is_part_of_what_a_member_is(dataset):
    one, two = (training.plan_member(dataset, OPTIONS.model_copy(update={"threads": n}), 1) for n in (1, 2))
    assert one.key != two.key
    assert one.ensemble != two.ensemble


def drawn():
    return random.random(), np.random.random(), float(torch.rand(1))  # noqa: S311 - the state is what is tested


def test_training_leaves_no_trace(dataset, tmp_path, monkeypatch, gears):
    monkeypatch.chdir(tmp_path)
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)
    filters, threads = list(warnings.filters), torch.get_num_threads()
    again = Gears.train(dataset, OPTIONS.model_copy(update={"threads": 2}), seeds=[1])
    again.predict_expression(WANTED, seed=1)
    found = drawn()
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)
    assert found == drawn()
    assert warnings.filters == filters
    assert torch.get_num_threads() == threads
    assert list(tmp_path.iterdir()) == []
    np.testing.assert_allclose(again.predict(WANTED).members[0], gears.predict(WANTED).members[0], atol=1e-4)


def test_saved_and_loaded_members_predict_the_same(gears, tmp_path):
    gears.save(tmp_path)
    loaded = Gears.load(tmp_path)
    np.testing.assert_array_equal(loaded.predict(WANTED).members, gears.predict(WANTED).members)
    np.testing.assert_array_equal(loaded.predict_expression(HELD, seed=1), gears.predict_expression(HELD, seed=1))
    with pytest.raises(ContractError, match="got a loaded one"):
        upstream_expression(loaded.members[0], HELD[0], seed=1)
    (tmp_path / ".saving-x").mkdir()
    (tmp_path / ".saving-x" / "description.json").write_text("{")
    assert len(Gears.load(tmp_path).members) == 2
    weights = next(tmp_path.glob("*/weights.pt"))
    weights.write_bytes(weights.read_bytes() + b"\0")
    with pytest.raises(DataError, match="not the file that was saved"):
        Gears.load(tmp_path)
    with pytest.raises(DataError, match="no GEARS member"):
        Gears.load(tmp_path / "elsewhere")


def test_training_resumes_by_member(gears, dataset, tmp_path, monkeypatch):
    store.save_member(gears.members[0], store.member_folder(tmp_path, gears.members[0].facts))
    trained = []

    def fake(_dataset, _options, seed, _say):
        trained.append(seed)
        return gears.members[1]

    monkeypatch.setattr(model, "train_member", fake)
    said = []
    resumed = Gears.train(dataset, OPTIONS, seeds=[1, 2], out=tmp_path, say=said.append)
    assert trained == [2]
    np.testing.assert_array_equal(resumed.predict(HELD).members, gears.predict(HELD).members)
    assert "member 1 of 2 (seed 1): found in" in said[0]
    changed = training.plan_member(dataset, OPTIONS.model_copy(update={"epochs": 3}), 1)
    assert store.member_folder(tmp_path, changed) != store.member_folder(tmp_path, gears.members[0].facts)


def test_hidden_outcomes_do_not_reach_training(go, dataset, tmp_path):
    shuffled = cells(shuffle_hidden=True)
    assert shuffled.data_sha256 != cells().data_sha256
    other = prepare(shuffled, held_out=[Condition(("P1", "P2")), HELD[1]], go=go, root=tmp_path)
    assert other.facts == dataset.facts
    names = sorted(str(p.relative_to(other.folder)) for p in other.folder.rglob("*") if p.is_file())
    assert len(names) == 5
    for name in names:
        assert file_sha256(other.folder / name) == file_sha256(dataset.folder / name), name
    assert not {c.id for c in HELD} & set(dataset.facts.conditions)


def test_validation_is_of_training_conditions_that_share_no_gene_with_a_hidden_pair(dataset):
    for seed in range(5):
        chosen = training.validation_conditions(dataset, 0.3, seed)
        assert {target for c in chosen for target in c.targets} <= {"P5", "P6"}


def test_what_cannot_be_trained_or_predicted_is_named(gears, dataset, go, tmp_path):
    assert dataset.facts.left_out == {"P9": "no GO annotation for P9"}
    assert not gears.can_predict(Condition(("P9",)))
    with pytest.raises(DataError, match="cannot perturb P9"):
        gears.predict([Condition(("P9",))])
    with pytest.raises(DataError, match="the control is not a perturbation"):
        gears.predict([CONTROL])
    with pytest.raises(DataError, match=r"does not have: P1\+P6"):
        prepare(cells(), held_out=[pair("P6", "P1")], go=go, root=tmp_path)
    with pytest.raises(DataError, match="no perturbation is left"):
        prepare(cells(), held_out=cells().perturbations, go=go, root=tmp_path)
    with pytest.raises(DataError, match="distinct seeds"):
        Gears.train(dataset, OPTIONS, seeds=[1, 1])


def test_a_prepared_folder_is_found_again_and_a_changed_one_refused(go, tmp_path):
    first = prepare(cells(), held_out=HELD, go=go, root=tmp_path)
    before = {p: p.stat().st_mtime_ns for p in first.folder.rglob("*")}
    assert (
        prepare(cells(), held_out=reversed([Condition(c.targets[::-1]) for c in HELD]), go=go, root=tmp_path) == first
    )
    assert before == {p: p.stat().st_mtime_ns for p in first.folder.rglob("*")}
    assert prepare(cells(), held_out=HELD[:1], go=go, root=tmp_path).folder != first.folder
    (first.folder / "gene2go_all.pkl").write_bytes(b"other")
    with pytest.raises(DataError, match="not the file that was written"):
        open_dataset(first.folder)


def test_downloads_and_foreign_pickles_are_refused(tmp_path):
    upstream = compat.load()
    with pytest.raises(DataError, match="wants to download"):
        upstream.PertData(str(tmp_path / "new"))
    assert not any((tmp_path / "new").iterdir())


def test_a_table_carries_where_it_came_from(gears):
    table = gears.table(WANTED)
    assert table.perturbations == tuple(c.id for c in WANTED)
    assert table.provenance.held_out == ("P1+P2", "P3+P4")
    assert table.provenance.versions["cell-gears"] == "0.1.2"
    assert len(table.provenance.members) == 2
    np.testing.assert_array_equal(table.mean, gears.predict(WANTED).mean)


def test_seeds_of_members_are_derived():
    assert member_seeds(1, 3) == member_seeds(1, 3)
    assert len({*member_seeds(1, 3), *member_seeds(2, 3)}) == 6


READOUT_WEIGHTS = {"one": {"G00": 0.5, "G01": 0.5}, "two": {"G04": 0.5, "G05": 0.5}, "three": {"G30": 1.0}}


@pytest.fixture(scope="module")
def stored(gears, tmp_path_factory):
    """The simulator `gears` on a table of the tiny ensemble, with its members beside it."""
    folder = tmp_path_factory.mktemp("stored")
    gears.save(folder / "members")
    save_table(gears.table(WANTED), folder / "t.npz")

    def make(contrast="interaction", **options):
        simulator = stored_simulators.Gears(
            stored_simulators.GearsOptions(table=folder / "t.npz", members=folder / "members", **options)
        )
        singles = {t: dict.fromkeys(READOUT_WEIGHTS, 0.01 * n) for n, t in enumerate(TARGETS)}
        held = tuple(c.id for c in HELD)
        simulator.fit(ExpressionPrograms(READOUT_WEIGHTS, contrast, held, singles), seed=0)
        return simulator

    return make


PAIR = Perturbation(id="P1+P2", name="P1+P2", targets=("P1", "P2"))


def measured(value, se=0.02, readout="one"):
    return Observation(measurement="m", readout=readout, value=value, se=se)


@pytest.mark.parametrize(
    ("contrast", "singles"), [("interaction", "predicted"), ("interaction", "observed"), ("change", "predicted")]
)
def test_refitted_members_predict_what_was_measured(stored, contrast, singles):
    simulator = stored(contrast, singles=singles)
    names = tuple(READOUT_WEIGHTS)
    before = simulator.predict(PAIR, names)
    unchanged = simulator.refit(PAIR, names, [])
    for p, q in zip(before, unchanged, strict=True):
        assert (q.mean, q.sd) == (pytest.approx(p.mean, abs=1e-5), pytest.approx(p.sd, abs=1e-5))
    value = before[0].mean + 0.1
    after = simulator.refit(PAIR, names, [measured(value)])
    assert after[0].mean == pytest.approx(value, abs=0.021)
    assert after[1].mean != before[1].mean
    assert simulator.predict(PAIR, names) == before
    assert simulator.refit(PAIR, names, [measured(value)]) == after


def test_a_measurement_within_its_error_moves_nothing(stored):
    simulator = stored()
    names = tuple(READOUT_WEIGHTS)
    before = simulator.refit(PAIR, names, [])
    assert simulator.refit(PAIR, names, [measured(before[0].mean, se=1.0)]) == before


def test_refitting_needs_the_members_of_the_table(stored, gears, tmp_path):
    simulator = stored()
    simulator.options = simulator.options.model_copy(update={"members": None})
    with pytest.raises(ConfigError, match="set the simulator's option members"):
        simulator.refit(PAIR, ("one",), [])
    Gears(gears.members[:1]).save(tmp_path)
    simulator.options = simulator.options.model_copy(update={"members": tmp_path})
    with pytest.raises(DataError, match="not the members"):
        simulator.refit(PAIR, ("one",), [])

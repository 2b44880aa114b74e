import contextlib
import os
import random
import warnings

import numpy as np
import pytest

from evidence.conditions import CONTROL, Condition, pair
from evidence.errors import ConfigError, ContractError, DataError
from evidence.expression import CellData
from evidence.perturbed import DataCard, make_cells

INSTALL = 'needs CPA: pip install -e ".[cpa]" and cpa-tools 0.8.8 (make cpa)'
torch = pytest.importorskip("torch", reason=INSTALL)
from simulators.cpa import compat  # noqa: E402 - after the skip

try:
    compat.require()
except ConfigError as error:
    pytest.skip(f"{INSTALL}: {error}", allow_module_level=True)

from simulators.cpa import lean  # noqa: E402
from simulators.cpa import training as cpa_training  # noqa: E402
from simulators.cpa.counterfactual import predict_change, upstream_change  # noqa: E402
from simulators.cpa.facts import CpaOptions, plan_member, training_cells  # noqa: E402
from simulators.cpa.model import Cpa  # noqa: E402
from simulators.cpa.trainer import CpaTrainer  # noqa: E402
from simulators.cpa.training import setup, train_member  # noqa: E402
from simulators.training import Training  # noqa: E402

pytestmark = pytest.mark.slow
HELD = ("A+B",)
TINY = CpaOptions(epochs=2, batch_size=32, n_latent=4, n_hidden=8, n_layers=1)


def cells_of(drugs="ABC", seed=5, shuffle_hidden=False):
    """Each drug moves ten genes of its own; pairs with the third drug are trained on, the pair of the others is not."""
    a, b, c = drugs
    rng = np.random.default_rng(seed)
    rows, labels = [], []
    for label in ("ctrl", a, b, c, f"{a}+{c}", f"{b}+{c}", f"{a}+{b}"):
        x = 1.0 + 0.25 * rng.standard_normal((60, 40)) + 0.25 * rng.standard_normal((60, 1)) * (np.arange(40) % 2)
        for place, drug in enumerate(drugs):
            if drug in label.split("+"):
                x[:, 10 * place : 10 * place + 10] += 0.8 if drug != c else -0.6
        x = np.maximum(x, 0.01)
        hidden = shuffle_hidden and label == f"{a}+{b}"
        rows.append(np.random.default_rng(1).permutation(x.ravel()).reshape(x.shape) if hidden else x)
        labels += [label] * 60
    genes = [f"G{n:02d}" for n in range(40)]
    return make_cells(np.concatenate(rows), genes, labels, card=DataCard(name="made-up"))


def training_of(cells, drugs="ABC", doses=None):
    held_out = (pair(drugs[0], drugs[1]),)
    wanted = cells.perturbations
    return training_cells(CellData(cells, held_out, wanted, None, True, doses=doses))


@pytest.fixture(scope="module")
def cells():
    return cells_of()


@pytest.fixture(scope="module")
def training(cells):
    return training_of(cells)


@pytest.fixture(scope="module")
def tiny(training):
    return Cpa.train(training, TINY, members=2, seed=1)


def test_real_training_predicts_a_pair_that_it_never_saw(cells, training):
    options = TINY.model_copy(update={"epochs": 40, "n_latent": 8, "n_hidden": 32})
    member = train_member(training, options, 1)
    control = np.asarray(cells.of(CONTROL).mean(axis=0)).ravel()
    true = np.asarray(cells.of(pair("A", "B")).mean(axis=0)).ravel() - control
    predicted = predict_change(member, [pair("A", "B")])[0]
    assert np.corrcoef(predicted, true)[0, 1] > 0.6
    assert np.abs(predicted - true).mean() < np.abs(true).mean()


def test_training_gives_upstreams_own_weights_bit_for_bit(training, tiny, monkeypatch):
    monkeypatch.setattr(lean, "training", contextlib.nullcontext)
    member = tiny.members[0]
    theirs = train_member(training, TINY, member.facts.seed).network.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in member.network.state_dict().items())


@pytest.mark.parametrize("variational", [True, False])
def test_predictions_equal_upstreams_decoder_cell_by_cell(training, variational):
    options = TINY.model_copy(update={"variational": variational})
    member = train_member(training, options, 1)
    conditions = [Condition(("A",)), pair("A", "B"), CONTROL]
    theirs = upstream_change(member, conditions)
    np.testing.assert_allclose(predict_change(member, conditions), theirs, atol=1e-5)
    assert np.abs(theirs[0] - theirs[1]).max() > 1e-3


def test_the_number_of_threads_is_part_of_what_a_member_is(training):
    assert plan_member(training, TINY, 1).key != plan_member(training, TINY.model_copy(update={"threads": 2}), 1).key


def test_a_second_data_set_in_one_process_is_not_encoded_with_the_first_ones_drugs(training, tiny):
    other = training_of(cells_of("XYZ", seed=6), "XYZ")
    upstream = compat.load()
    again = Cpa.train(other, TINY, members=2, seed=1)
    assert again.members[0].facts.drugs == ("X", "Y", "Z")
    assert np.abs(again.change([Condition(("X",))])).max() > 0
    with pytest.raises(DataError, match="no embedding of A"):
        again.change([Condition(("A",))])
    assert (upstream.CPA.pert_encoder, upstream.CPA.covars_encoder, upstream.CPA.pert_smiles_map) == (None,) * 3
    assert vars(upstream.REGISTRY) == {}
    first_again = Cpa.train(training, TINY, members=2, seed=1)
    np.testing.assert_array_equal(first_again.change([pair("A", "B")]), tiny.change([pair("A", "B")]))


def test_what_a_caller_keeps_on_upstreams_classes_is_still_there(training):
    upstream = compat.load()
    upstream.CPA.pert_encoder = {"<PAD>": 0, "mine": 1}
    try:
        train_member(training, TINY.model_copy(update={"epochs": 1}), 3)
        assert upstream.CPA.pert_encoder == {"<PAD>": 0, "mine": 1}
    finally:
        upstream.CPA.pert_encoder = None


def test_training_leaves_no_trace_in_the_process_or_the_folder(training, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    random.seed(4)
    np.random.seed(4)
    torch.manual_seed(4)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    filters, threads, environment = list(warnings.filters), torch.get_num_threads(), dict(os.environ)
    train_member(training, TINY.model_copy(update={"epochs": 1, "threads": 2}), 1)
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before
    assert (list(warnings.filters), torch.get_num_threads(), dict(os.environ)) == (filters, threads, environment)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr().out == ""


def test_hidden_cells_change_no_weight(training, tiny):
    shuffled = training_of(cells_of(shuffle_hidden=True))
    assert shuffled.cells.data_sha256 == training.cells.data_sha256
    again = Cpa.train(shuffled, TINY, members=2, seed=1)
    np.testing.assert_array_equal(again.change([pair("A", "B")]), tiny.change([pair("A", "B")]))


def test_a_prediction_is_upstreams_own_for_control_cells(training):
    """Upstream's `predict` of the pair on control cells, minus its prediction of the same cells as control."""
    upstream = compat.load()
    member = train_member(training, TINY.model_copy(update={"variational": False}), 1)
    with compat.quiet(), compat.seeded(1), compat.fresh(upstream):
        adata = cpa_training._upstream_data(training, cpa_training.dense(training.cells.X), member.facts)
        setup(adata, member.facts)
        model = upstream.CPA(adata, **cpa_training.hyper(member.facts))
        model.module.load_state_dict(member.network.state_dict())
        model.is_trained_ = True
        control = adata[adata.obs["condition"] == "ctrl"].copy()
        model.predict(control)
        before = control.obsm["CPA_pred"].mean(axis=0)
        control.obsm["perts"][:] = [2, 3]
        control.obsm["perts_doses"][:] = [1.0, 1.0]
        model.predict(control)
        after = control.obsm["CPA_pred"].mean(axis=0)
    np.testing.assert_allclose(predict_change(member, [pair("A", "B")])[0], after - before, atol=1e-5)


def test_a_prediction_does_not_depend_on_what_else_is_predicted(tiny):
    one, two = pair("A", "B"), Condition(("C",))
    np.testing.assert_array_equal(tiny.change([one, two])[:, ::-1], tiny.change([two, one]))
    assert tiny.change([]).shape == (2, 0, 40)
    np.testing.assert_array_equal(tiny.change([CONTROL]), np.zeros((2, 1, 40)))


def test_doses_reach_their_own_drugs(cells):
    """Every drug keeps its own dose, whichever way the label was written; held-out cells' doses go with their cells."""
    one = {"A": 1.0, "B": 0.25, "C": 0.5}
    doses = tuple(tuple(one[target] for target in condition.targets) for condition in cells.conditions)
    member = train_member(training_of(cells, doses=doses), TINY.model_copy(update={"epochs": 1}), 1)
    assert member.facts.doses == (1.0, 0.25, 0.5)
    with pytest.raises(DataError, match="expected one dose for each of"):
        training_of(cells, doses=tuple((1.0,) for _ in cells.conditions))


def test_doses_in_the_wrong_order_are_caught_after_setup(training):
    upstream = compat.load()
    facts = plan_member(training, TINY, 1)
    with compat.quiet(), compat.seeded(1), compat.fresh(upstream):
        adata = cpa_training._upstream_data(training, cpa_training.dense(training.cells.X), facts)
        adata.obs["condition"] = adata.obs["condition"].replace("A+C", "C+A")
        adata.obs.loc[adata.obs["condition"] == "C+A", "dose"] = "0.25+1.0"
        with pytest.raises(ContractError, match="expected doses"):
            setup(adata, facts)


def test_an_ensemble_comes_back_as_it_was_saved(tiny, training, tmp_path):
    tiny.save(tmp_path)
    back = Cpa.load(tmp_path)
    np.testing.assert_array_equal(back.change([pair("A", "B")]), tiny.change([pair("A", "B")]))
    said = []
    Cpa.train(training, TINY, members=2, seed=1, out=tmp_path, say=said.append)
    assert all("found in" in line for line in said)
    weights = next(tmp_path.glob("*/weights.pt"))
    weights.write_bytes(weights.read_bytes() + b"x")
    with pytest.raises(DataError, match="not the file that was saved"):
        Cpa.load(tmp_path)
    with pytest.raises(DataError, match="no CPA member"):
        Cpa.load(tmp_path / "none")


def test_a_table_says_what_it_was_made_from(training, tmp_path):
    said = []
    options = {"epochs": 1, "n_hidden": 8, "n_latent": 4}
    asked = Training(training, options, members=2, seed=1, annotations=None, folder=tmp_path, say=said.append)
    CpaTrainer().check(asked)
    table = CpaTrainer().table(asked)
    assert table.provenance.held_out == HELD
    assert table.provenance.data_sha256 == training.cells.data_sha256
    assert table.provenance.versions["cpa-tools"] == "0.8.8"
    assert table.provenance.synthetic
    assert set(table.perturbations) == {"A", "B", "C", "A+B", "A+C", "B+C"}
    assert table.sd is not None
    with pytest.raises(ConfigError, match="epoch"):
        CpaTrainer().check(asked._replace(options={"epoch": 1}))


def test_members_trained_one_by_one_are_those_of_the_ensemble(training, tmp_path):
    said = []
    options = {"epochs": 1, "n_hidden": 8, "n_latent": 4}
    asked = Training(training, options, members=2, seed=1, annotations=None, folder=tmp_path / "one", say=said.append)
    folders = [CpaTrainer().train_member(asked, number) for number in (2, 1)]
    assert len(set(folders)) == 2
    said.clear()
    apart = CpaTrainer().table(asked)
    assert [("found in" in line) for line in said] == [True, True]
    together = CpaTrainer().table(asked._replace(folder=tmp_path / "other"))
    assert apart.sha256 == together.sha256


def test_held_out_cells_are_taken_out_before_anything_is_computed(cells):
    data = training_of(cells)
    assert pair("A", "B") not in data.cells.rows
    assert len(data.cells.conditions) == len(cells.conditions) - 60
    with pytest.raises(DataError, match="no control cell"):
        training_cells(CellData(cells.without([CONTROL]), (), (), None, True))

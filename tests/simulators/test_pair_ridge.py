import numpy as np
import pytest

from evidence.contracts import Perturbation
from evidence.drug_synergy import DrugSynergy
from evidence.errors import ConfigError, ContractError
from simulators.pair_ridge import PairRidge, PairRidgeOptions, _solve


@pytest.fixture(scope="module")
def setting(synergy_tables):
    folder = synergy_tables()
    return DrugSynergy.open(DrugSynergy.freeze(data=folder, shape="published", seed=1, options={}), folder)


@pytest.fixture
def ridge(setting):
    made = PairRidge(PairRidgeOptions())
    made.fit(setting.training(), seed=1)
    return made


def pair_of(names):
    return Perturbation(id="+".join(names), name="pair", targets=tuple(names))


def test_a_training_pair_is_predicted_without_itself(setting, ridge):
    training = setting.training()
    line, names = training.lines[0], training.pairs[3]
    keep = [n for n, p in enumerate(training.pairs) if p != names]
    rest = type(training)(
        tuple(training.pairs[n] for n in keep), training.lines, training.scores[keep], training.curves, training.smiles
    )
    without = PairRidge(PairRidgeOptions())
    without.fit(rest, seed=1)
    value = ridge.predict(pair_of(names), [line])[0].mean
    # the closed form keeps the mean of all pairs; the refit has the mean of the rest
    shift = abs(training.scores[:, 0].mean() - rest.scores[:, 0].mean())
    assert value == pytest.approx(without.predict(pair_of(names), [line])[0].mean, abs=shift + 1e-6)


def test_it_beats_the_mean_on_held_out_pairs_of_real_tables(root):
    folder = root.parent / "shared" / "data" / "drug_pairs"
    if not folder.is_dir():
        pytest.skip(f"needs O'Neil's tables at {folder}")
    setting = DrugSynergy.open(DrugSynergy.freeze(data=folder, shape="published", seed=1, options={}), folder)
    made = PairRidge(PairRidgeOptions())
    made.fit(setting.training(), seed=1)
    errors, naive = [], []
    for case in setting.cases():
        truth = [t.value for t in setting.truth(case)]
        errors += list(
            np.abs([p.mean for p in made.predict(case.perturbation, [r.id for r in case.readouts])] - np.array(truth))
        )
        naive += list(np.abs([p.mean for p in setting.baselines(case)["mean of other partners"]] - np.array(truth)))
    assert np.mean(errors) < np.mean(naive)


def test_the_order_of_the_drugs_does_not_matter(setting, ridge):
    names = setting.frozen.held_out[0]
    lines = list(setting.frozen.sisters)
    assert [p.mean for p in ridge.predict(pair_of(names), lines)] == [
        p.mean for p in ridge.predict(pair_of(names[::-1]), lines)
    ]


def test_unmeasured_scores_are_left_out(setting):
    training = setting.training()
    scores = training.scores.copy()
    scores[0, 0] = np.nan
    holed = type(training)(training.pairs, training.lines, scores, training.curves, training.smiles)
    drugs = sorted({drug for names in training.pairs for drug in names})
    fitted, _ = _solve(holed, drugs, training.lines[0], 0.3)
    assert len(fitted.known) == len(training.pairs) - 1
    assert np.isfinite(fitted.weights).all()


def test_what_it_cannot_predict_is_refused_by_name(ridge):
    with pytest.raises(ConfigError, match="no cell line 'LINE99'"):
        ridge.predict(pair_of(["DRUG-A", "DRUG-B"]), ["LINE99"])
    with pytest.raises(ConfigError, match="two drugs of the training pairs"):
        ridge.predict(pair_of(["DRUG-A", "DRUG-Z"]), ["LINE1"])
    with pytest.raises(ContractError, match="kind 'pair_scores'"):
        ridge.fit(None, seed=1)
    with pytest.raises(ContractError, match="fit before predict"):
        PairRidge(PairRidgeOptions()).predict(pair_of(["DRUG-A", "DRUG-B"]), ["LINE1"])

import numpy as np
import pytest

from evidence.errors import ContractError
from scoring.change import compare_predictors, naive_predictions, score_change

CONTROL = [5.0, 0.2, 2.0, 1.0]
TRUTH = [5.1, 1.2, 2.0, 0.5]
B = [5.1, 1.1, 1.9, 0.6]


def test_the_headline_is_on_the_change():
    score = score_change("A+B", control=CONTROL, truth=TRUTH, predicted=B)
    assert round(score.pearson.value, 3) == 0.994
    assert round(score.absolute_pearson.value, 3) == 0.999
    assert score.mae == pytest.approx(0.075)


def test_a_prediction_without_change_has_no_correlation_and_is_counted():
    score = score_change("A+B", control=CONTROL, truth=TRUTH, predicted=CONTROL)
    assert score.pearson.value is None
    assert score.pearson.reason == "the predicted change has no variance over 4 genes"
    assert round(score.absolute_pearson.value, 3) == 0.955
    predicted = {"model": {"A+B": B}, "no change": {"A+B": CONTROL}}
    model, none = compare_predictors(control=CONTROL, truth={"A+B": TRUTH}, predicted=predicted)
    assert (model.n_undefined, none.n_undefined, none.pearson) == (0, 1, None)
    assert none.mae == pytest.approx(0.4)
    assert "NaN" not in none.model_dump_json()


def test_naive_predictions_stand_beside():
    training = {"A": [6.0, 0.2, 2.0, 1.0], "B": [5.0, 1.2, 2.0, 1.0], "C+D": CONTROL}
    naive = naive_predictions(["A+B", "A+E"], control=CONTROL, training=training)
    np.testing.assert_allclose(naive["additive"]["A+B"], [6.0, 1.2, 2.0, 1.0])
    np.testing.assert_allclose(naive["mean"]["A+E"], np.mean(list(training.values()), axis=0))
    truth = {"A+B": TRUTH, "A+E": TRUTH}
    report = {r.predictor: r for r in compare_predictors(control=CONTROL, truth=truth, predicted=naive)}
    assert (report["additive"].n, report["additive"].n_missing) == (1, 1)
    assert report["no change"].n_undefined == 2


def test_expression_that_is_not_finite_is_refused():
    with pytest.raises(ContractError, match="not finite"):
        score_change("A", control=CONTROL, truth=TRUTH, predicted=[np.nan] * 4)
    with pytest.raises(ContractError, match="expected three"):
        score_change("A", control=CONTROL, truth=TRUTH, predicted=[1.0])

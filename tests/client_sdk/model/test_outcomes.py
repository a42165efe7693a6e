"""Outcomes at a hospital: arrays by target, probabilities, survival, tables, and the card."""

import numpy as np
import pandas as pd
import pytest

from client_sdk import GlobalModel
from client_sdk.errors import UnknownTarget
from client_sdk.model.card import ModelCard
from client_sdk.model.outcomes import OutcomePredictions
from kernels.errors import NotFitted, PredictionError
from kernels.model import prediction
from tests.kernels.rounds import every_kind
from tests.kernels.rounds.every_kind import DEATH, READMITTED, STAY

MODEL = GlobalModel(every_kind.artifact())
ROWS = every_kind.table(30, seed=9)
FEATURES = {name: ROWS[name] for name in ("age", "lactate", "ward")}


def outcome(name: str) -> OutcomePredictions:
    found = MODEL.predict(FEATURES)[name]
    assert isinstance(found, OutcomePredictions)
    return found


def test_each_outcome_has_the_arrays_of_its_kind_and_says_which_others_have_more() -> None:
    theirs = prediction.predict(MODEL.artifact.model, FEATURES)
    for own in theirs.outcomes:
        ours = outcome(own.target.name)
        assert np.array_equal(ours.mean, own.mean.numpy())
        assert np.array_equal(ours.variance, own.variance.numpy())
        assert len(ours) == len(ours.latent_mean) == len(ours.latent_variance) == 30
    assert outcome("readmitted").latent_mean.shape == (30,)
    assert outcome("days").latent_mean.shape == (30, 3)
    assert outcome("visits").expectation_variance.shape == (30,)
    with pytest.raises(PredictionError, match="'visits' is of the kind count and has no surv"):
        _ = outcome("visits").survival
    with pytest.raises(UnknownTarget, match="stay, readmitted, discharged, visits, days"):
        _ = MODEL.predict(FEATURES)["age"]


def test_probabilities_and_survival_are_found_without_a_name_if_there_is_one() -> None:
    own = GlobalModel(every_kind.artifact(READMITTED, STAY, DEATH))
    probabilities = own.predict_proba(FEATURES)
    assert probabilities.shape == (30, 2)
    np.testing.assert_allclose(probabilities.sum(1), 1.0)
    of_event = outcome_of(own, "readmitted").mean
    assert np.array_equal(probabilities[:, 0], of_event), "yes is the first level"
    curves = own.survival(FEATURES)
    assert curves.edges.tolist() == [10.0, 20.0, 40.0]
    assert curves.mean.shape == curves.variance.shape == (30, 3)
    assert (np.diff(curves.mean, axis=1) <= 0).all()
    with pytest.raises(UnknownTarget, match="readmitted, discharged"):
        MODEL.predict_proba(FEATURES)
    assert MODEL.predict_proba(FEATURES, "discharged").shape == (30, 3)
    with pytest.raises(UnknownTarget, match="the model has days"):
        MODEL.survival(FEATURES, "stay")


def outcome_of(model: GlobalModel, name: str) -> OutcomePredictions:
    found = model.predict(FEATURES)[name]
    assert isinstance(found, OutcomePredictions)
    return found


def test_a_table_of_predictions_has_the_columns_of_the_service() -> None:
    frame = pd.DataFrame(MODEL.predict(FEATURES).to_dict())
    assert len(frame) == 30
    wanted = {
        *("stay.mean", "readmitted.mean", "readmitted.p.yes", "readmitted.p.no"),
        *("discharged.variance.hospice", "visits.expectation_variance"),
        *("days.survival.10", "days.survival_variance.40", "days.median", "extrapolates"),
    }
    assert wanted <= set(frame.columns)


def test_a_model_without_real_targets_predicts_and_has_no_intervals() -> None:
    own = GlobalModel(every_kind.artifact(READMITTED))
    predictions = own.predict(FEATURES)
    assert predictions.targets == ()
    assert predictions.mean.shape == (30, 0)
    with pytest.raises(UnknownTarget, match="none of which is a real number"):
        predictions.intervals(0.9)
    assert "readmitted (yes or no: yes)" in repr(own.card)


def test_the_card_tells_how_often_each_outcome_occurred() -> None:
    shown = repr(MODEL.card)
    census = MODEL.artifact.card.outcomes
    assert [own.name for own in census] == ["readmitted", "discharged", "visits", "days"]
    share = census[0].counts[0] / sum(census[0].counts)
    assert f"yes {share:.1%}" in " ".join(shown.split())
    assert "days (time to event, d)" in " ".join(shown.split())
    assert "outcomes" in ModelCard(MODEL.artifact.card)._repr_html_()
    assert "yes" not in repr(MODEL.predict(FEATURES)["readmitted"])


def test_sets_and_intervals_are_the_kernels_and_need_recalibration() -> None:
    judged = GlobalModel(every_kind.judged())
    theirs = prediction.predict(judged.artifact.model, FEATURES)
    for name, levels in (("readmitted", 2), ("discharged", 3)):
        ours = outcome_of(judged, name).sets(0.8)
        assert ours.shape == (30, levels)
        assert np.array_equal(ours, theirs.outcome(name).sets(0.8).numpy())
    lower, upper = outcome_of(judged, "visits").interval(0.8)
    assert np.array_equal(upper, theirs.outcome("visits").interval(0.8)[1].numpy())
    assert (lower <= upper).all()
    with pytest.raises(PredictionError, match="of another kind"):
        outcome_of(judged, "days").sets(0.8)
    with pytest.raises(NotFitted, match="'readmitted' need held-out rows"):
        outcome("readmitted").sets(0.8)


def test_the_card_has_the_scores_of_outcomes_in_text_and_in_html() -> None:
    card = ModelCard(every_kind.judged().card)
    evaluation = every_kind.judged().card.evaluation
    assert evaluation is not None
    for own in evaluation.outcomes:
        for score in (own.log_loss, own.raw_log_loss, *own.further.values()):
            assert f"{score:.4g}" in repr(card)
            assert f"{score:.4g}" in card._repr_html_()
    alone = repr(ModelCard(every_kind.judged(READMITTED).card))
    assert "AUC" in alone
    assert "RMSE" not in alone, "there is no target that is a real number"

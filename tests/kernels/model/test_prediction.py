"""Predictions in units, their variances and their three kinds of intervals."""

from dataclasses import fields, replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch

from kernels.errors import (
    EmptyTable,
    KernelsError,
    NotFitted,
    OneVariance,
    PredictionError,
    TableRefused,
)
from kernels.features.inducing import left_out
from kernels.model.model import Model, known
from kernels.model.prediction import Predictions, predict, predict_standardised
from kernels.model.stored import MODEL_KINDS
from kernels.outcomes import classes
from kernels.outcomes.predictions import OutcomePrediction
from kernels.rounds.judging import recalibration
from kernels.rounds.kernel import exact
from kernels.rounds.layer import linear, outcomes
from kernels.rounds.registry import restore
from kernels.storage import decode, encode, kinds_of
from kernels.tables.records import Records
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import TimeToEvent
from tests.kernels.rounds import every_kind, tables
from tests.kernels.rounds import outcomes as small


@cache
def model(*, recalibrated: bool = True) -> Model:
    sites = [tables.site(200, seed=seed) for seed in range(3)]
    stages = [linear.Spec(), *([recalibration.Spec(min_rows=1)] if recalibrated else [])]
    return tables.fitted(sites, *stages)


def predictions(*, recalibrated: bool = True) -> Predictions:
    return predict(model(recalibrated=recalibrated), tables.table(30, seed=9))


def test_variances_add_up_to_that_of_the_calibrated_law() -> None:
    before, after = predictions(recalibrated=False), predictions()
    fitted = known(model().recalibration, "recalibration")
    inflation = torch.tensor([each.law.variance for each in fitted], dtype=torch.float64)
    assert not torch.allclose(inflation, torch.ones(2, dtype=torch.float64), rtol=1e-3)
    assert torch.allclose(after.variance, before.variance * inflation, rtol=1e-12)
    assert torch.equal(after.variance, after.latent_variance + after.noise_variance)
    assert torch.allclose(after.noise_variance, before.noise_variance * inflation, rtol=1e-12)
    assert torch.equal(after.mean, before.mean)


def test_predictions_are_in_the_targets_units() -> None:
    standardiser = known(model().standardiser, "moments")
    records = Records.for_prediction(tables.SCHEMA, tables.table(30, seed=9))
    standardised = predict_standardised(model(), standardiser.apply(records).features)
    mean, variance = standardiser.in_units(standardised.mean, standardised.variance)
    plain = predictions(recalibrated=False)
    assert torch.allclose(plain.mean, mean)
    assert torch.allclose(plain.variance, variance)
    truth = torch.tensor(np.array(tables.table(30, seed=9)["stay"], dtype=np.float64))
    assert float((plain.mean[:, 0] - truth).square().mean()) < float(truth.var())


def test_each_interval_is_of_its_own_law() -> None:
    after, before = predictions(), predictions(recalibrated=False)
    fitted = known(model().recalibration, "recalibration")
    deviation = before.variance.sqrt()
    reach = {
        "gaussian": [1.6448536269514722] * 2,
        "student_t": [each.law.half_width(0.9) for each in fitted],
        "conformal": [each.conformal(0.9) for each in fitted],
    }
    for kind, factors in reach.items():
        lower, upper = getattr(after, kind)(0.9)
        half = deviation * torch.tensor(factors, dtype=torch.float64)
        assert torch.allclose(upper - after.mean, half, rtol=1e-9), kind
        assert torch.allclose(after.mean - lower, half, rtol=1e-9), kind


def test_wider_levels_have_wider_intervals() -> None:
    for kind in ("gaussian", "student_t", "conformal"):
        uppers = [getattr(predictions(), kind)(level).upper for level in (0.2, 0.5, 0.9)]
        assert all(bool((a <= b).all()) for a, b in pairwise(uppers))


def test_rows_outside_the_bounds_are_flagged_and_still_predicted() -> None:
    table = dict(tables.table(4, seed=9))
    table["age"] = np.array([50.0, 120.0, 121.0, -1.0])
    outcome = predict(model(), table)
    assert outcome.extrapolates.tolist() == [False, False, True, True]
    assert bool(outcome.mean.isfinite().all())


def test_the_size_of_chunks_does_not_matter() -> None:
    rows = tables.table(30, seed=9)
    whole, pieces = predict(model(), rows), predict(model(), rows, chunk_rows=7)
    assert torch.allclose(whole.mean, pieces.mean, rtol=1e-12)
    assert torch.allclose(whole.latent_variance, pieces.latent_variance, rtol=1e-9)


def test_a_row_alone_is_predicted_as_within_a_table() -> None:
    rows = tables.table(40, seed=9)
    whole = predict(model(), rows)
    for row in (0, 17, 39):
        alone = predict(model(), {name: cells[row : row + 1] for name, cells in rows.items()})
        plain = predict(model(), {name: [cells[row].item()] for name, cells in rows.items()})
        for one in (alone, plain):
            for part in ("mean", "latent_variance", "variance"):
                expected = getattr(whole, part)[row : row + 1]
                torch.testing.assert_close(getattr(one, part), expected, rtol=1e-12, atol=0)
            assert torch.equal(one.noise_variance, whole.noise_variance)
            assert torch.equal(one.extrapolates, whole.extrapolates[row : row + 1])


def test_a_stored_model_predicts_the_same() -> None:
    again = predict(restore(encode(model())), tables.table(30, seed=9))
    assert torch.equal(again.variance, predictions().variance)
    assert torch.equal(again.conformal(0.9).upper, predictions().conformal(0.9).upper)


def test_unfinished_models_say_what_they_lack() -> None:
    rows = tables.table(3)
    with pytest.raises(NotFitted, match="moments"):
        predict(Model(tables.SCHEMA, tables.KERNEL, 1000), rows)
    with pytest.raises(NotFitted, match="linear"):
        predict(tables.fitted([tables.site()]), rows)
    for kind in ("student_t", "conformal"):
        with pytest.raises(NotFitted, match="recalibration"):
            getattr(predictions(recalibrated=False), kind)(0.9)


def test_tables_and_levels_that_do_not_fit_are_refused_by_name() -> None:
    with pytest.raises(TableRefused) as refused:
        predict(model(), {"age": [], "lactate": [], "ward": []})
    assert isinstance(refused.value.problems[0], EmptyTable)
    other = Schema((Numeric("age", "a"),), tables.SCHEMA.targets)
    with pytest.raises(PredictionError, match="another schema"):
        predict(model(), Records.for_prediction(other, {"age": [40]}))
    with pytest.raises(PredictionError, match="level"):
        predictions().gaussian(1.0)


# -- outcomes


@cache
def with_outcomes(schema: Schema = small.MIXED) -> Model:
    sites = [small.site(60, seed=seed, schema=schema) for seed in range(3)]
    layers = [linear.Spec()] if schema.real else []
    return small.fitted(sites, *layers, outcomes.Spec(sums=4))


def assert_same(left: Predictions, right: Predictions, *, rtol: float = 0.0) -> None:
    for one, other in zip(left.outcomes, right.outcomes, strict=True):
        assert one.target == other.target
        for field in fields(one):
            own, same = getattr(one, field.name), getattr(other, field.name)
            if isinstance(own, torch.Tensor):
                torch.testing.assert_close(own, same, rtol=rtol, atol=rtol)


def row_of(rows: tables.Table, row: int) -> dict[str, list[object]]:
    return {name: [cells[row].item()] for name, cells in rows.items()}


@pytest.mark.parametrize("schema", [small.MIXED, small.ALONE], ids=["mixed", "alone"])
def test_outcomes_of_a_row_alone_are_those_within_a_table(schema: Schema) -> None:
    rows = small.table(40, seed=9)
    whole = predict(with_outcomes(schema), rows)
    assert [own.target for own in whole.outcomes] == list(schema.outcomes)
    for row in (0, 39):
        alone = predict(with_outcomes(schema), row_of(rows, row))
        part = replace(whole, outcomes=tuple(_only(own, row) for own in whole.outcomes))
        assert_same(alone, part, rtol=1e-9)
    assert_same(predict(with_outcomes(schema), rows, chunk_rows=7), whole, rtol=1e-9)


def test_with_inducing_features_every_prediction_has_the_variance_that_they_leave_out() -> None:
    sites = [small.site(60, seed=seed) for seed in range(3)]
    stages = exact.Spec(steps=3, penalties=(0.0,)), linear.Spec(), outcomes.Spec(sums=4)
    model = small.fitted(sites, *stages, kernel=tables.INDUCING)
    rows = small.table(40, seed=9)
    found = predict(model, rows)
    (x,) = (piece.features for piece in [model.few_rows.read(row_of(rows, 0))])
    phi = model.features(x)
    own = left_out(phi, tables.INDUCING.samples)
    assert 0 < float(own) < 1
    alone = replace(model.posterior, inducing=0).predict(phi)
    scales = known(model.hyperparameters, "linear")
    _, latent = known(model.standardiser, "moments").in_units(
        alone.mean, alone.latent_variance + scales.prior_variance * own
    )
    torch.testing.assert_close(found.latent_variance[:1], latent)
    for outcome, fitted in zip(found.outcomes, known(model.outcomes, "outcomes"), strict=True):
        if isinstance(outcome.target, TimeToEvent):
            continue
        _, variance = classes.latent(fitted.layers, phi)
        priors = torch.tensor([layer.prior_variance for layer in fitted.layers]).double()
        torch.testing.assert_close(outcome.latent_variance[:1], variance + own * priors)


def _only(own: OutcomePrediction, row: int) -> OutcomePrediction:
    parts = {
        field.name: getattr(own, field.name)[row : row + 1]
        for field in fields(own)
        if isinstance(getattr(own, field.name), torch.Tensor)
    }
    return replace(own, **parts)


def test_a_schema_without_real_targets_has_outcomes_alone() -> None:
    found = predict(with_outcomes(small.ALONE), small.table(5, seed=9))
    assert len(found) == 5
    assert found.targets == ()
    assert found.mean.shape == found.variance.shape == (5, 0)
    assert found.extrapolates.shape == (5,)
    assert repr(found) == "Predictions(5 rows of readmitted, diagnosis, visits, days)"
    with pytest.raises(OneVariance):
        _ = found.latent_variance


def test_probabilities_add_up_in_the_order_of_the_schema() -> None:
    found = predict(with_outcomes(), small.table(30, seed=9))
    for name in ("readmitted", "diagnosis"):
        own = found.outcome(name)
        assert own.probabilities.shape == (30, len(own.target.levels))
        assert torch.allclose(own.probabilities.sum(1), torch.ones(30, dtype=torch.float64))
    yes = found.outcome("readmitted")
    assert torch.equal(yes.probabilities[:, 0], yes.mean)  # "yes", the event, is the first level
    for name in ("visits", "days"):
        with pytest.raises(PredictionError, match="no probabilities"):
            _ = found.outcome(name).probabilities


def test_outcomes_are_near_what_happened() -> None:
    rows = small.table(300, seed=7)
    found = predict(with_outcomes(), rows)
    happened = torch.tensor(rows["readmitted"] == "yes").double()
    squares = (found.outcome("readmitted").mean - happened).square().mean()
    assert float(squares) < 0.9 * float(happened.var())
    visits = torch.tensor(np.array(rows["visits"], dtype=np.float64))
    expected = float(found.outcome("visits").mean.mean())
    assert expected == pytest.approx(float(visits.mean()), rel=0.3)


@pytest.mark.parametrize("rows", [1, 40])
def test_an_expected_count_is_in_proportion_to_the_exposure_that_a_table_states(rows: int) -> None:
    table = dict(small.table(rows, seed=9))
    stated = predict(with_outcomes(), table).outcome("visits")
    years = torch.tensor(table.pop("years"))
    by_default = predict(with_outcomes(), table).outcome("visits")
    assert torch.allclose(stated.mean, by_default.mean * years)
    assert torch.equal(stated.latent_mean, by_default.latent_mean)
    from_lists = predict(with_outcomes(), {**table, "years": years.tolist()}).outcome("visits")
    assert torch.allclose(from_lists.mean, stated.mean)


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf"), "two", 2.0**40])
def test_impossible_exposures_are_refused_by_name(wrong: object, rows: int) -> None:
    table = {**small.table(rows, seed=9), "years": [1.0] * (rows - 1) + [wrong]}
    with pytest.raises(KernelsError, match="years"):
        predict(with_outcomes(), table)


@pytest.mark.parametrize("more", [-1, 1])
@pytest.mark.parametrize("rows", [2, 40])
def test_more_or_fewer_exposures_than_rows_are_refused(rows: int, more: int) -> None:
    table = {**small.table(rows, seed=9), "years": [1.0] * (rows + more)}
    with pytest.raises(KernelsError, match="years"):
        predict(with_outcomes(), table)


def test_outcomes_of_no_rows_are_empty() -> None:
    for schema in (small.MIXED, small.ALONE):
        records = Records.for_prediction(schema, small.table(3)).between(slice(0, 0))
        found = predict(with_outcomes(schema), records)
        assert len(found) == 0
        assert [len(own) for own in found.outcomes] == [0] * 4
        assert found.outcome("diagnosis").probabilities.shape == (0, 3)


def test_a_stored_model_predicts_the_same_outcomes() -> None:
    for schema in (small.MIXED, small.ALONE):
        stored = encode(with_outcomes(schema))
        again = decode(stored, kinds_of(*MODEL_KINDS))
        assert encode(again) == stored
        rows = small.table(30, seed=9)
        assert_same(predict(again, rows), predict(with_outcomes(schema), rows))


def test_an_outcome_that_is_not_there_is_refused_with_those_that_are() -> None:
    found = predict(with_outcomes(), small.table(2, seed=9))
    with pytest.raises(PredictionError, match="readmitted, diagnosis, visits, days"):
        found.outcome("stay")
    with pytest.raises(PredictionError, match="the outcomes are: none"):
        predictions().outcome("stay")
    unfinished = with_outcomes().advanced(outcomes=None)
    with pytest.raises(NotFitted, match="outcomes"):
        predict(unfinished, small.table(2))


def test_a_repr_shows_no_prediction() -> None:
    assert repr(predictions()) == "Predictions(30 rows of stay, cost)"


def test_exposures_count_in_every_form_of_a_table() -> None:
    own, rows = every_kind.artifact().model, every_kind.table(5, seed=9)
    features = {name: rows[name] for name in ("age", "lactate", "ward")}
    years = torch.tensor(np.asarray(rows["years"], dtype=np.float64))
    for_one = predict(own, features).outcome("visits").mean
    exposed = {**features, "years": rows["years"]}
    for table in (
        exposed,
        {name: cells.tolist() for name, cells in exposed.items()},
        Records.for_prediction(own.schema, exposed),
        Records.for_training(own.schema, rows),
    ):
        found = predict(own, table, chunk_rows=2).outcome("visits").mean
        torch.testing.assert_close(found, years * for_one, rtol=1e-12, atol=0)
    for bad in ([1.0, 1.0, 1.0, 1.0, 0.0], [1.0, 1.0], ["a"] * 5):
        with pytest.raises(TableRefused, match="years"):
            predict(own, {**features, "years": bad})

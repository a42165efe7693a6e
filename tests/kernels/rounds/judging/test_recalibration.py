"""Recalibration: conformal coverage, and a law of residuals that is better than the Gaussian."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import betabinom

from client_sdk.simulation import simulate
from kernels.errors import NotFitted, ProgramError
from kernels.model.model import Model
from kernels.model.prediction import predict
from kernels.rounds.judging import recalibration
from kernels.rounds.layer import linear
from kernels.rounds.site.site import Part, Site
from kernels.scores.student_t import StudentT
from tests.conformance.algorithm import AdditiveOverRows, EqualToPooled
from tests.dealing import DEALING
from tests.kernels.rounds import noisy, tables


class TestRecalibration(AdditiveOverRows, EqualToPooled):
    algorithm = recalibration

    def spec(self) -> Any:
        return recalibration.Spec(min_rows=1)

    def model(self, sites: list[Site]) -> Model:
        return tables.fitted(sites, linear.Spec())

    def test_many_sites_count_exactly_what_one_site_with_all_rows_counts(self) -> None:
        sites = self.sites()
        model = self.model(sites)
        federated = self.outcome(sites, model).model.recalibration
        pooled = self.outcome([tables.together(sites)], model).model.recalibration
        held_out = sum(len(site.records[Part.CALIBRATION]) for site in sites)
        for one, other in zip(federated, pooled, strict=True):
            assert torch.equal(one.counts, other.counts)
            assert one.fitted == other.fitted
            assert one.rows == held_out


@pytest.mark.parametrize("clients", [1, 7, 100])
@pytest.mark.parametrize("freedom", [None, 3.0])
def test_conformal_intervals_cover_within_the_binomial_error(
    clients: int, freedom: float | None
) -> None:
    whole = noisy.table(5000, seed=clients, freedom=freedom)
    model = simulate(
        noisy.program(recalibration.Spec()), noisy.dealt(whole, clients), DEALING, secure=False
    ).model
    new = noisy.table(4000, seed=1000, freedom=freedom)
    predictions = predict(model, new)
    assert model.recalibration is not None
    rows = model.recalibration[0].rows
    for level in (0.5, 0.9, 0.99):
        lower, upper = predictions.conformal(level)
        y = torch.tensor(np.stack([new["response"], new["twice"]], 1))
        for inside in ((lower <= y) & (y <= upper)).sum(0).tolist():
            # Given n rows, coverage is Beta(k, n + 1 − k), and what of 4,000 is inside
            # beta-binomial; the bins' upper ends add half a point at most.
            rank = math.ceil((rows + 1) * level)
            chance = betabinom(4000, rank, rows + 1 - rank)
            assert chance.ppf(1e-3) <= inside <= chance.ppf(1 - 1e-3) + 0.005 * 4000


def test_heavy_tails_are_seen_and_the_variance_is_that_of_the_errors() -> None:
    whole = noisy.table(24_000, seed=5, freedom=3.0)
    model = simulate(
        noisy.program(recalibration.Spec(), held_out=0.8),
        noisy.dealt(whole, 5),
        DEALING,
        secure=False,
    ).model
    assert model.recalibration is not None
    for fitted in model.recalibration:
        assert fitted.law.freedom == pytest.approx(3.0, rel=0.1)
    new = noisy.table(20_000, seed=6, freedom=3.0)
    predictions = predict(model, new)
    second_moment = np.mean((new["response"] - predictions.mean[:, 0].numpy()) ** 2)
    assert float(predictions.variance[:, 0].mean()) == pytest.approx(second_moment, rel=0.1)
    assert float(predictions.variance[:, 0].mean()) == pytest.approx(3 * noisy.NOISE**2, rel=0.1)


def test_few_rows_leave_the_model_as_it_is() -> None:
    sites = [tables.site(seed=seed) for seed in range(3)]
    model = tables.fitted(sites, linear.Spec())
    few = tables.fitted(sites, linear.Spec(), recalibration.Spec(min_rows=100))
    assert few.recalibration is not None
    assert all(each.fitted is None and each.law == StudentT() for each in few.recalibration)
    before, after = predict(model, tables.table(9)), predict(few, tables.table(9))
    assert torch.equal(before.variance, after.variance)
    assert torch.equal(before.gaussian(0.9).lower, after.student_t(0.9).lower)
    # 15 rows or so can promise 50 %, and can't promise 99 %.
    assert bool(after.conformal(0.5).upper.isfinite().all())
    assert bool(after.conformal(0.99).upper.isinf().all())


def test_without_held_out_rows_nothing_finite_is_promised() -> None:
    model = simulate(
        noisy.program(recalibration.Spec(), held_out=0.0),
        [noisy.table(60, seed=1), noisy.table(60, seed=2)],
        DEALING,
        secure=False,
    ).model
    assert bool(predict(model, noisy.table(5, seed=3)).conformal(0.1).lower.isinf().all())


def test_secure_and_plain_sums_recalibrate_alike() -> None:
    program = noisy.program(recalibration.Spec(min_rows=1))
    rows = noisy.dealt(noisy.table(240, seed=2, freedom=3.0), 3)
    masked = simulate(program, rows, DEALING, secure=True).model.recalibration
    plain = simulate(program, rows, DEALING, secure=False).model.recalibration
    assert masked is not None
    assert plain is not None
    assert [each.fitted for each in masked] == [each.fitted for each in plain]
    assert all(torch.equal(a.counts, b.counts) for a, b in zip(masked, plain, strict=True))


def test_it_needs_a_linear_layer_before_it() -> None:
    with pytest.raises(ProgramError, match="linear"):
        tables.fitted([tables.site()], recalibration.Spec())
    with pytest.raises(NotFitted, match="linear"):
        recalibration.initial(recalibration.Spec(), tables.fitted([tables.site()]))


@pytest.mark.parametrize("min_rows", [0, -1, True])
def test_an_impossible_least_number_of_rows_is_refused(min_rows: int) -> None:
    with pytest.raises(ProgramError, match="min_rows"):
        recalibration.Spec(min_rows=min_rows)

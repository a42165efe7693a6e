"""Phase 2 in two sums: [FedBNR]'s algorithm 1 to the letter."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from client_sdk.simulation import simulate
from kernels import storage
from kernels.errors import StatisticsError
from kernels.layer.posterior import Hyperparameters, Posterior
from kernels.layer.statistics import Statistics
from kernels.model.model import Model
from kernels.rounds.columns import moments
from kernels.rounds.kernel import exact
from kernels.rounds.layer import linear, linear_two_sums
from kernels.rounds.program import Program
from kernels.rounds.site.site import Part
from tests.conformance.algorithm import AdditiveOverRows, EqualToPooled
from tests.dealing import DEALING
from tests.kernels.rounds import sums, tables

KEPT = linear_two_sums.Spec(refit=False)


class TestLinearTwoSums(AdditiveOverRows, EqualToPooled):
    algorithm = linear_two_sums

    def spec(self) -> Any:
        return linear_two_sums.Spec()


class TestWithTheScalesOfPhaseOne(AdditiveOverRows, EqualToPooled):
    algorithm = linear_two_sums

    def spec(self) -> Any:
        return KEPT

    def model(self, sites: Any) -> Model:
        return _with_scales(tables.fitted(sites), noise=0.09, prior=4.0)


@pytest.mark.parametrize("refit", [True, False])
@pytest.mark.parametrize("phase_one", [(), (exact.Spec(steps=2, penalties=(3.0,)),)])
def test_one_sum_and_two_sums_and_pooled_rows_give_one_posterior(
    refit: bool, phase_one: tuple[Any, ...]
) -> None:
    sites = [tables.site(seed=seed) for seed in range(4)]
    start = tables.fitted(sites, *phase_one)
    fused = sums.after_all(linear, linear.Spec(refit=refit), start, sites).model
    spec = linear_two_sums.Spec(refit=refit)
    two = sums.after_all(linear_two_sums, spec, start, sites).model
    x, y = tables.together(sites).table(Part.TRAINING, start)
    assert fused.hyperparameters is not None
    pooled = Posterior.of(Statistics.of_table(start.urk, x, y), fused.hyperparameters)

    with torch.no_grad():
        phi = start.urk.features(tables.site(30, seed=9).table(Part.TRAINING, start)[0])
    expected = pooled.predict(phi)
    for model in (fused, two):
        found = model.posterior.predict(phi)
        deviations = (found.mean - expected.mean) / expected.variance.sqrt()
        assert deviations.abs().max() <= 1e-6
        assert torch.allclose(found.variance, expected.variance, rtol=1e-6, atol=0)
        assert torch.allclose(model.posterior.log_evidence, pooled.log_evidence, rtol=1e-6)


def test_a_site_sends_its_part_of_the_weights_and_never_b() -> None:
    sites = [tables.site(seed=seed) for seed in range(2)]
    model = _with_scales(tables.fitted(sites), noise=0.25, prior=1.0)
    state = linear_two_sums.initial(KEPT, model)
    assert set(linear_two_sums.contribute(state, sites[0])) == {"scatter", "target_squares", "rows"}
    state = sums.after_one(linear_two_sums, state, sites)
    blocks = linear_two_sums.contribute(state, sites[0])
    assert set(blocks) == {"posterior_weights", "rows"}

    x, y = sites[0].table(Part.TRAINING, model)
    pooled = Statistics.of_table(model.urk, *tables.together(sites).table(Part.TRAINING, model))
    own = Statistics.of_table(model.urk, x, y)
    precision = pooled.scatter / 0.25 + torch.eye(len(pooled.scatter), dtype=torch.float64)
    by_hand = torch.linalg.solve(precision, own.cross / 0.25)
    assert torch.allclose(torch.tensor(blocks["posterior_weights"]), by_hand, atol=1e-8)


@pytest.mark.parametrize(("noise", "prior"), [(1e-6, 1e6), (1e-6, 1e-4), (1e2, 1e6), (1.0, 1.0)])
def test_no_part_of_the_weights_exceeds_its_bound(noise: float, prior: float) -> None:
    """Also where one site has all of the plan's rows, and λ/σ is as large as it gets."""
    sites = [tables.site(seed=seed, held_out=0.0) for seed in range(2)]
    model = replace(_with_scales(tables.fitted(sites), noise=noise, prior=prior), max_rows=40)
    state = sums.after_one(linear_two_sums, linear_two_sums.initial(KEPT, model), sites)
    assert state.first is not None
    for site in sites:
        parts = linear_two_sums.contribute(state, site)["posterior_weights"]
        assert abs(parts).max() <= state.first.bound / 100  # targets are not at TARGET_BOUND


def test_a_second_sum_of_other_rows_is_refused_and_nothing_is_lost() -> None:
    sites = [tables.site(seed=seed) for seed in range(3)]
    state = sums.after_one(
        linear_two_sums, linear_two_sums.initial(KEPT, tables.fitted(sites)), sites
    )
    with pytest.raises(StatisticsError, match="the first "):
        linear_two_sums.update(state, sums.total(linear_two_sums, state, sites[:2]))
    assert linear_two_sums.finished(
        linear_two_sums.update(state, sums.total(linear_two_sums, state, sites))
    )


def test_masks_change_nothing() -> None:
    program = Program(
        tables.SCHEMA, tables.KERNEL, (moments.Spec(), linear_two_sums.Spec()), max_rows=1000
    )
    program = Program.from_json(program.to_json())
    hidden, plain = (simulate(program, tables.tables(3), DEALING, secure=s) for s in (True, False))
    assert storage.encode(hidden.states[-1]) == storage.encode(plain.states[-1])


def _with_scales(model: Model, *, noise: float, prior: float) -> Model:
    scales = Hyperparameters.of(noise_variance=noise, prior_variance=prior, targets=model.targets)
    return replace(model, hyperparameters=scales)

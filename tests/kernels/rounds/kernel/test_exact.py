"""Phase 1 by the exact gradient of the pooled evidence."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from kernels.errors import StateError, StatisticsError
from kernels.features.spec import KernelSpec
from kernels.features.urk import URK
from kernels.layer.local_evidence import negative_log_evidence
from kernels.layer.statistics import Statistics
from kernels.model.model import Model
from kernels.rounds.kernel import exact, fedavg
from kernels.rounds.shared.held_out import TOLERANCE
from kernels.rounds.shared.pooled import Pooled
from kernels.rounds.shared.weighted_sums import site_outcomes
from kernels.rounds.site.site import Part, Site
from kernels.tables.schema import Schema
from tests.conformance.algorithm import AdditiveOverRows, ChosenByHeldOutError, EqualToPooled
from tests.kernels.outcomes import tables as dense
from tests.kernels.rounds import outcomes as small
from tests.kernels.rounds import sums, tables


class TestExact(AdditiveOverRows, EqualToPooled, ChosenByHeldOutError):
    algorithm = exact

    def spec(self) -> Any:
        return exact.Spec(steps=3, penalties=(3.0, 30.0))

    def harmful(self, *, patience: int) -> Any:
        return exact.Spec(steps=8, learning_rate=0.5, penalties=(0.0, 3.0), patience=patience)


class TestExactWithALinearPart(AdditiveOverRows, EqualToPooled):
    algorithm = exact

    def spec(self) -> Any:
        return exact.Spec(steps=3, penalties=(3.0,))

    def model(self, sites: list[Site]) -> Model:
        return replace(tables.fitted(sites), kernel=tables.BESIDE)

    def test_the_ratio_is_trained_as_any_weight(self) -> None:
        ratios = [float(state.model.urk.weights.detach()[-1]) for state in self.states()]
        assert len(set(ratios)) == 3


class TestExactWithInducingFeatures(AdditiveOverRows, EqualToPooled):
    algorithm = exact

    def spec(self) -> Any:
        return exact.Spec(steps=3, learning_rate=0.05, penalties=(0.0,))

    def model(self, sites: list[Site]) -> Model:
        return replace(tables.fitted(sites), kernel=tables.INDUCING)

    def test_places_and_lengthscales_move(self) -> None:
        first, *_, last = (state.model.urk.named_weights() for state in self.states())
        assert all(not torch.equal(first[name], last[name]) for name in first)


@pytest.mark.parametrize("linear_part", [True, False])
def test_with_inducing_features_other_divisions_of_the_rows_give_the_same_bits(
    linear_part: bool,
) -> None:
    sites = [tables.site(n, seed=seed) for seed, n in enumerate((9, 40, 4, 25, 30))]
    kernel = replace(tables.INDUCING, samples=20, linear_part=linear_part)
    model = replace(tables.fitted(sites), kernel=kernel)
    spec = exact.Spec(steps=20, learning_rate=0.1, penalties=(0.0,))
    federated = sums.after_all(exact, spec, model, sites)
    pooled = sums.after_all(exact, spec, model, [tables.together(sites)])
    assert torch.equal(federated.model.weights, pooled.model.weights)
    evidences = [[each.evidence for each in last.history] for last in (federated, pooled)]
    assert evidences[0] == evidences[1]
    assert evidences[0][-1] < evidences[0][0]


def test_with_inducing_features_the_summed_gradient_is_that_of_titsias_bound() -> None:
    sites = [tables.site(seed=seed) for seed in range(3)]
    model = replace(tables.fitted(sites), kernel=tables.INDUCING)
    state = sums.after_one(exact, exact.initial(exact.Spec(penalties=(0.0,)), model), sites)
    x, y = tables.together(sites).table(Part.TRAINING, model)
    urk, scales = URK(tables.INDUCING), state.model.hyperparameters
    loss = negative_log_evidence(
        urk.features(x),
        y,
        log_noise=scales.noise_variance.log() / 2,
        log_prior=scales.prior_variance.log() / 2,
        inducing=tables.INDUCING.samples,
    )
    # Training rounds features and targets to grids; the gradient is compared without them.
    assert state.evidence == pytest.approx(float(loss.detach()) / len(x), abs=1e-3)
    exactly = replace(state, pooled=Pooled(Statistics.of_table(urk, x, y)))
    (expected,) = torch.autograd.grad(loss / len(x), urk.weights)
    found = sum(exact.contribute(exactly, site)["gradient"] for site in sites)
    assert torch.allclose(torch.as_tensor(found), expected, rtol=1e-9, atol=1e-10)


class TestExactWithOutcomes(AdditiveOverRows, EqualToPooled):
    algorithm = exact

    def spec(self) -> Any:
        return exact.Spec(steps=2, penalties=(3.0,))

    def sites(self) -> list[Site]:
        return [small.site(30, seed=seed, schema=small.MIXED) for seed in range(3)]

    def model(self, sites: list[Site]) -> Model:
        return small.fitted(sites)


@pytest.mark.parametrize("schema", [small.MIXED, small.ALONE], ids=["mixed", "alone"])
def test_with_outcomes_other_divisions_of_the_rows_give_the_same_bits(schema: Schema) -> None:
    sites = [small.site(n, seed=seed, schema=schema) for seed, n in enumerate((7, 40, 1, 25, 30))]
    model, spec = small.fitted(sites), exact.Spec(steps=5, penalties=(3.0,))
    federated = sums.after_all(exact, spec, model, sites)
    pooled = sums.after_all(exact, spec, model, [tables.together(sites)])
    assert torch.equal(federated.model.weights, pooled.model.weights)
    assert not torch.equal(federated.model.weights, model.urk.weights)
    evidences = [[each.evidence for each in last.history] for last in (federated, pooled)]
    assert evidences[0] == evidences[1]


@pytest.mark.parametrize("kernel", [small.DEEP, small.SMOOTH], ids=["deep", "matern52"])
def test_the_summed_gradient_is_that_of_the_dense_pooled_bound(kernel: KernelSpec) -> None:
    sites = [small.site(30, seed=seed) for seed in range(3)]
    model = small.fitted(sites, kernel=kernel)
    state = sums.after_one(exact, exact.initial(exact.Spec(penalties=(0.0,)), model), sites)
    whole = tables.together(sites)
    x, y = whole.table(Part.TRAINING, model)
    urk = URK(kernel, model.weights)
    phi, layer = urk.features(x), state.layer
    loss = (layer.scatter_gradient * (phi.mT @ phi)).sum()
    loss = loss + (layer.cross_gradient * (phi.mT @ y)).sum()
    for at, columns in zip(
        state.likelihoods, site_outcomes(model, whole, Part.TRAINING), strict=True
    ):
        loss = loss - dense.dense_fit(at, phi, columns)
    (expected,) = torch.autograd.grad(loss / len(x), urk.weights)
    found = sum(exact.contribute(state, site)["gradient"] for site in sites)
    assert torch.allclose(torch.as_tensor(found), expected, rtol=1e-9, atol=1e-9)


def test_with_outcomes_a_table_in_chunks_contributes_what_it_does_in_memory() -> None:
    sites = [small.site(40, seed=seed) for seed in range(2)]
    state = exact.initial(exact.Spec(steps=2, penalties=(3.0,)), small.fitted(sites))
    for _ in range(2):
        for site in sites:
            whole, pieces = exact.contribute(state, site), exact._contribute_in_chunks(state, site)
            assert whole.keys() == pieces.keys()
            for name, own in whole.items():
                assert np.allclose(own, pieces[name], rtol=1e-9, atol=1e-12), name
        state = sums.after_one(exact, state, sites)


def test_with_outcomes_training_lowers_the_bound_and_the_held_out_error() -> None:
    sites = [small.site(80, seed=seed, schema=small.ALONE) for seed in range(2)]
    spec = exact.Spec(steps=10, learning_rate=0.05, warm_up=0, penalties=(3.0,))
    last = sums.after_all(exact, spec, small.fitted(sites, kernel=small.DEEP), sites)
    assert last.history[-1].evidence < last.history[1].evidence
    assert last.best.error < last.history[0].held_out_error


def test_states_with_the_outcomes_of_another_schema_are_refused_by_name() -> None:
    state = exact.initial(exact.Spec(), small.fitted([small.site(30)]))
    for fitted in ((), state.fitted[:-1], state.fitted[::-1], None):
        with pytest.raises(StateError, match="outcome"):
            replace(state, fitted=fitted)


@pytest.mark.parametrize("learning_rate", [0.01, 1.0], ids=["training helps", "training harms"])
def test_after_a_fedavg_warm_up_it_starts_there_and_ends_about_as_good(
    learning_rate: float,
) -> None:
    sites = [tables.site(seed=seed) for seed in range(3)]
    warm_up = fedavg.Spec(rounds=3, local_steps=5, learning_rate=0.02)
    warm = sums.after_all(fedavg, warm_up, tables.fitted(sites), sites)
    assert warm.best.error < warm.history[0].held_out_error

    spec = exact.Spec(steps=4, learning_rate=learning_rate, warm_up=0, penalties=(3.0, 30.0))
    start = exact.initial(spec, warm.model)
    assert torch.equal(start.model.weights, warm.best.weights)
    trained = sums.after_all(exact, spec, warm.model, sites)
    for run in range(2):
        first = next(progress for progress in trained.history if progress.run == run)
        # The same θ, judged on the grids of exact training.
        assert first.held_out_error == pytest.approx(warm.best.error, rel=1e-3)
        assert trained.best.error <= (1 + TOLERANCE) * first.held_out_error
    harmful = learning_rate == 1.0
    assert torch.equal(trained.model.weights, warm.best.weights) is harmful


def test_a_table_that_changes_between_the_two_sums_of_a_step_is_noticed() -> None:
    conformance = TestExact()
    sites = conformance.sites()
    state = exact.initial(exact.Spec(steps=2), conformance.model(sites))
    state = exact.update(state, conformance.total(state, sites))
    with pytest.raises(StatisticsError, match="different rows"):
        exact.update(state, conformance.total(state, sites[:2]))

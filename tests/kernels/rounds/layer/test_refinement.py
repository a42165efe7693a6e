"""Residuals need less noise than targets, and what one unit can change of them is their clip."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm

from kernels.errors import NotFitted, NotPrivate
from kernels.rounds.columns import moments
from kernels.rounds.kernel import elbo
from kernels.rounds.layer import linear, refinement
from tests.conformance.private import PrivateConformance
from tests.kernels.rounds import private

BOUNDS = moments.Spec(from_bounds=True)
SAMPLED = elbo.Spec(steps=2, sampling_rate=1.0)


class TestRefinementOfALinearLayer(PrivateConformance):
    algorithm = refinement
    before = (BOUNDS, linear.Spec())

    def spec(self) -> Any:
        return refinement.Spec()

    def test_the_scatter_is_not_paid_for_again(self) -> None:
        (state, _) = self.all_states(private.ROWS)
        assert [block.name for block in refinement.layout(state).blocks] == [
            "cross",
            "target_squares",
        ]


class TestRefinementAfterSampledSteps(PrivateConformance):
    algorithm = refinement
    before = (BOUNDS, SAMPLED)

    def spec(self) -> Any:
        return refinement.Spec()

    def test_it_sums_the_scatter_that_nothing_has_summed_yet(self) -> None:
        (state, _) = self.all_states(private.ROWS)
        assert refinement.layout(state).blocks[0].name == "scatter"


@pytest.mark.parametrize("deviation", [0.3, 0.7, 1.4])
def test_a_deviation_is_found_through_the_clip(deviation: float) -> None:
    r = norm.ppf((np.arange(100_000) + 0.5) / 100_000) * deviation
    found = refinement.deviation_behind(float(np.minimum(r**2, 1.0).mean()), clip=1.0)
    assert found == pytest.approx(deviation, rel=1e-3)


def test_any_noise_gives_a_deviation() -> None:
    for mean in (-5.0, 0.0, 0.3, 1.0, 50.0):
        assert 0 < refinement.deviation_behind(mean, clip=1.0) <= 1.5


def test_the_same_noise_leaves_better_weights_than_the_layer_had() -> None:
    sites = [
        private.site(private.table(1500, seed=s, outliers=0.0), private.ROWS, held_out=0.0)
        for s in range(2)
    ]
    layer = private.program(BOUNDS, linear.Spec(), schema=private.ROWS, max_rows=2000)
    assert layer.privacy is not None
    layer = replace(layer, privacy=replace(layer.privacy, target_clip=3.0))
    exact = private.fitted(layer, sites, multiplier=1e-3)
    noisy = private.fitted(layer, sites, multiplier=5.0)
    (_, last) = private.states(refinement, refinement.Spec(), noisy, sites, multiplier=5.0)

    def error(weights: torch.Tensor) -> float:
        assert exact.statistics is not None
        gap = weights - exact.posterior.weights
        return float((gap * (exact.statistics.scatter @ gap)).sum())

    assert error(last.model.posterior.weights) < 0.7 * error(noisy.posterior.weights)


def test_it_is_for_private_programs_with_weights_to_begin_from() -> None:
    program = private.program(BOUNDS, schema=private.ROWS)
    with pytest.raises(NotFitted, match="elbo"):
        refinement.initial(refinement.Spec(), program.start())
    with pytest.raises(NotPrivate):
        refinement.initial(refinement.Spec(), replace(program.start(), privacy=None))

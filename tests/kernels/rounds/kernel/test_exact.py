"""Phase 1 by the exact gradient of the pooled evidence."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from kernels.errors import StatisticsError
from kernels.model.model import Model
from kernels.rounds.kernel import exact, fedavg
from kernels.rounds.shared.held_out import TOLERANCE
from kernels.rounds.site.site import Site
from tests.conformance.algorithm import AdditiveOverRows, ChosenByHeldOutError, EqualToPooled
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

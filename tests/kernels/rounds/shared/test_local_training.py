"""Training at one site, which federated averaging and distillation share."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.errors import NotFinite
from kernels.features.spec import Architecture, KernelSpec
from kernels.features.urk import URK
from kernels.layer.local_evidence import negative_log_evidence
from kernels.model.model import Model
from kernels.rounds.shared.local_training import (
    STEP_BOUND,
    Fit,
    minimise,
    starting_scales,
    train_locally,
)
from kernels.rounds.site.site import Part
from tests.kernels.rounds import tables


def test_training_lowers_the_site_s_own_loss() -> None:
    model, x, y = _one_site()
    start = Fit.of(model, starting_scales(model.targets))
    trained = train_locally(model.kernel, start, x, y, steps=30, learning_rate=0.01, proximal=0.0)
    assert _loss(model, trained, x, y) < _loss(model, start, x, y) - 0.1 * len(y)


def test_the_proximal_term_keeps_a_site_near_the_broadcast() -> None:
    model, x, y = _one_site()
    start = Fit.of(model, starting_scales(model.targets))

    def moved(proximal: float) -> float:
        trained = train_locally(
            model.kernel, start, x, y, steps=40, learning_rate=0.01, proximal=proximal
        )
        return float((trained.weights - start.weights).norm())

    free, near, nearest = moved(0.0), moved(1.0), moved(100.0)
    assert nearest < near < free


def test_with_the_proximal_term_training_rests_where_the_whole_gradient_vanishes() -> None:
    """Without it, and with another μ, that gradient is far from zero there."""
    model, x, y = _one_site()
    kernel = KernelSpec(inputs=5, architecture=Architecture.RBF, samples=4)
    start = Fit.of(replace(model, kernel=kernel), starting_scales(model.targets))
    end = train_locally(kernel, start, x, y, steps=300, learning_rate=0.02, proximal=0.5)
    urk = URK(kernel, end.weights)
    loss = negative_log_evidence(
        urk.features(x), y, log_noise=end.log_noise, log_prior=end.log_prior
    )
    (own,) = torch.autograd.grad(loss / len(y), urk.weights)
    assert (own + 0.5 * (end.weights - start.weights)).abs().max() < 1e-4
    assert own.abs().max() > 1e-2


def test_directions_that_change_nothing_do_not_move() -> None:
    """A stationary kernel does not see the last bias of f: its gradient is rounding alone."""
    model, x, y = _one_site()
    start = Fit.of(model, starting_scales(model.targets))
    for proximal in (0.0, 0.1):
        end = train_locally(
            model.kernel, start, x, y, steps=20, learning_rate=0.01, proximal=proximal
        )
        moved = URK(model.kernel, end.weights - start.weights).named_weights()["f.1.bias"]
        assert moved.abs().max() < 1e-8


def test_training_neither_asks_nor_moves_a_global_generator() -> None:
    model, x, y = _one_site()
    start = Fit.of(model, starting_scales(model.targets))
    fits = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        fits.append(
            train_locally(model.kernel, start, x, y, steps=3, learning_rate=0.01, proximal=0.1)
        )
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(fits[0].weights, fits[1].weights)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6).map(lambda x: round(x, 6)), min_size=1, max_size=12))
def test_no_gradients_move_a_parameter_beyond_the_bound(slopes: list[float]) -> None:
    assert all(far <= STEP_BOUND * k for k, far in enumerate(_path(slopes)))


def test_the_bound_is_nearly_reached_by_the_worst_gradients() -> None:
    """Those which equality in Cauchy–Schwarz asks for, after a long silence."""
    slopes = [*([0.0] * 700), *((0.999 / 0.9) ** k * 1e-6 for k in range(100))]
    positions = _path(slopes)
    assert 5 < positions[-1] - positions[-2] < STEP_BOUND


def test_sigma_and_lambda_stay_where_refitting_would_look_for_them() -> None:
    start = Fit.of(Model(tables.SCHEMA, tables.KERNEL, 10), starting_scales(2))
    end = minimise(
        lambda urk, log_noise, log_prior: log_noise.sum() - log_prior.sum() + 0 * urk.weights.sum(),
        tables.KERNEL,
        start,
        steps=30,
        learning_rate=1.0,
    )
    assert torch.allclose(end.hyperparameters.noise_variance.sqrt(), torch.tensor(1e-3).double())
    assert torch.allclose(end.hyperparameters.prior_variance.sqrt(), torch.tensor(1e3).double())


def test_diverging_training_says_so() -> None:
    kernel = KernelSpec(inputs=5, architecture=Architecture.EXPONENTIAL, samples=4)
    model, x, y = _one_site()
    start = Fit.of(replace(model, kernel=kernel), starting_scales(model.targets))
    start = replace(start, weights=torch.full_like(start.weights, -800.0))
    with pytest.raises(NotFinite, match="training has diverged"):
        train_locally(kernel, start, x, y, steps=2, learning_rate=1.0, proximal=0.0)


def _one_site() -> tuple[Model, torch.Tensor, torch.Tensor]:
    site = tables.site(40, seed=2)
    model = tables.fitted([site])
    return model, *site.table(Part.TRAINING, model)


def _loss(model: Model, fit: Fit, x: torch.Tensor, y: torch.Tensor) -> float:
    phi = URK(model.kernel, fit.weights).features(x)
    scales = {"log_noise": fit.log_noise, "log_prior": fit.log_prior}
    return negative_log_evidence(phi, y, **scales).item()


def _path(slopes: list[float]) -> list[float]:
    """Return how far gradients of these sizes have moved a weight after each, in rates."""
    kernel = KernelSpec(inputs=1, architecture=Architecture.RBF, samples=2)
    zero = torch.zeros(1, dtype=torch.float64)
    positions: list[float] = []

    def loss(urk: URK, log_noise: torch.Tensor, log_prior: torch.Tensor) -> torch.Tensor:
        positions.append(abs(urk.weights.item()) / 1e-3)
        slope = slopes[len(positions) - 1]
        return (slope * urk.weights + 0 * log_noise + 0 * log_prior).sum()

    end = minimise(loss, kernel, Fit(zero, zero, zero), steps=len(slopes), learning_rate=1e-3)
    return [*positions, abs(end.weights.item()) / 1e-3]

"""Gradients clipped per unit: those of single rows, and of phase 1 with noise."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from client_sdk.simulation import simulate
from kernels.features.spec import Architecture, Ending, KernelSpec
from kernels.features.urk import URK
from kernels.layer.evidence import client_gradient
from kernels.model.model import Model
from kernels.rounds.columns import moments
from kernels.rounds.kernel import elbo, private_exact
from kernels.rounds.layer import linear
from kernels.rounds.shared import sufficient
from kernels.rounds.shared.clipped import clipped_sum
from kernels.rounds.site.site import Part, Site
from privacy import noise
from tests.dealing import DEALING
from tests.kernels.rounds import private

KERNELS = [
    private.SMOOTH,
    private.KERNEL,
    KernelSpec(architecture=Architecture.DEEP, inputs=6, samples=5, hidden=(4,), latent=3),
    KernelSpec(architecture=Architecture.REPLICATED, inputs=6, samples=5, hidden=(4,), latent=3),
    KernelSpec(
        architecture=Architecture.REPLICATED,
        ending=Ending.LINEAR,
        inputs=6,
        samples=5,
        hidden=(4,),
        latent=3,
    ),
    KernelSpec(architecture=Architecture.MATERN32, inputs=6, samples=5),
    KernelSpec(architecture=Architecture.EXPONENTIAL, inputs=6, samples=5),
    KernelSpec(architecture=Architecture.POLYNOMIAL, inputs=6, samples=5),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.architecture.value)
def test_rows_gradients_are_opacus_grad_samples(kernel: KernelSpec) -> None:
    from opacus.grad_sample import GradSampleModule

    urk = URK(kernel)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(9, 6, generator=generator, dtype=torch.float64).requires_grad_()
    up = torch.randn(kernel.features, generator=generator, dtype=torch.float64)

    class Features(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = torch.nn.Parameter(urk.weights.detach().clone())

        def forward(self, rows: Tensor) -> Tensor:
            return urk._at(self.weights)(rows)[0]

    module = Features()
    wrapped = GradSampleModule(module, loss_reduction="sum")
    (wrapped(x) @ up).sum().backward()

    features, pullback = urk.features_and_row_pullback(x.detach())
    torch.testing.assert_close(features, urk.features(x.detach()).detach())
    torch.testing.assert_close(pullback(up.expand(9, -1)), module.weights.grad_sample)


def test_each_units_sum_is_clipped_once() -> None:
    generator = torch.Generator().manual_seed(2)
    rows = torch.randn(50, 7, generator=generator, dtype=torch.float64)
    units = torch.randint(0, 12, (50,), generator=generator)
    units = units.unique(return_inverse=True)[1]
    expected = torch.zeros(7, dtype=torch.float64)
    for unit in range(int(units.max()) + 1):
        own = rows[units == unit].sum(0)
        expected += own * min(1.0, 2.0 / float(own.norm()))
    torch.testing.assert_close(clipped_sum(rows, units, clip=2.0), expected)


def test_a_gradient_that_is_no_number_is_left_out() -> None:
    rows = torch.tensor([[float("nan"), 1.0], [float("inf"), 0.0], [0.5, 0.0]])
    assert clipped_sum(rows, torch.tensor([0, 1, 2]), clip=1.0).tolist() == [0.5, 0.0]


def _sites(count: int, rows: int = 60) -> list[Site]:
    return [
        private.site(private.table(rows, seed=s, patients=rows, outliers=0.0), held_out=0.0)
        for s in range(count)
    ]


@pytest.mark.parametrize("kernel", [private.SMOOTH, private.KERNEL], ids=["rbf", "shifted"])
def test_unclipped_the_private_gradient_of_exact_training_is_that_of_the_evidence(
    kernel: KernelSpec,
) -> None:
    sites = _sites(1)
    whole = private.program(moments.Spec(from_bounds=True), kernel=kernel, most=60)
    spec = private_exact.Spec(steps=1, penalty=1.0, unit_clip=1e9)
    model = private.fitted(whole, sites)
    asked = private.states(private_exact, spec, model, sites, multiplier=1e-3)[1]
    x, y = sites[0].table(Part.TRAINING, asked.model)
    gradient = asked.gradient
    expected = client_gradient(
        asked.model.urk,
        x,
        sufficient.trained_on(y, asked.model),
        scatter_gradient=gradient.scatter_gradient,
        cross_gradient=gradient.cross_gradient,
    )
    found = private_exact.contribute(asked, sites[0])["gradient"]
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-9, atol=1e-9 * np.abs(found).max())


def _at(model: Model, parameters: Tensor) -> Model:
    return model.advanced(weights=elbo._split(model, parameters)[0].clone())


def test_the_gradient_of_the_elbo_is_autograds() -> None:
    sites = _sites(1)
    whole = private.program(moments.Spec(from_bounds=True), most=60)
    model = private.fitted(whole, sites)
    state = elbo.initial(elbo.Spec(steps=1, sampling_rate=1.0, clip=1e9), model)
    generator = torch.Generator().manual_seed(4)
    moved = state.parameters + 0.1 * torch.randn(
        state.parameters.shape, generator=generator, dtype=torch.float64
    )
    state = elbo.State(_at(state.model, moved), state.spec, moved)
    flat = moved.clone().requires_grad_()
    theta, mean, log_deviation, log_noise = elbo._split(model, flat)
    x, y = sites[0].table(Part.TRAINING, model)
    shape = (model.kernel.features, model.targets)
    phi = model.urk._at(theta)(x)[0]
    y = sufficient.trained_on(y, model)
    expected = torch.distributions.Normal(phi @ mean.view(shape), log_noise.exp())
    spread = phi.square() @ (2 * log_deviation.view(shape)).exp() / (2 * (2 * log_noise).exp())
    (-expected.log_prob(y) + spread).sum().backward()
    assert flat.grad is not None
    flat.grad[-model.targets :] *= elbo.NOISE_WEIGHT
    found = elbo.contribute(state, sites[0])
    np.testing.assert_allclose(found["gradient"], flat.grad.numpy(), rtol=1e-9, atol=1e-9)


def test_the_divergence_of_q_is_differentiated_rightly() -> None:
    model = private.fitted(private.program(moments.Spec(from_bounds=True)), [])
    state = elbo.initial(elbo.Spec(), model)
    flat = (state.parameters + 0.1).requires_grad_()
    state = elbo.State(_at(state.model, flat.detach()), state.spec, flat.detach())
    _, mean, log_deviation, _ = elbo._split(model, flat)
    shape = (model.kernel.features, model.targets)
    prior = elbo._prior(model, flat.detach())
    q = torch.distributions.Normal(mean.view(shape), log_deviation.view(shape).exp())
    p = torch.distributions.Normal(torch.zeros(shape).double(), prior.sqrt().expand(shape))
    torch.distributions.kl_divergence(q, p).sum().backward()
    torch.testing.assert_close(elbo._divergence_gradient(state), flat.grad)


@pytest.mark.full
@pytest.mark.parametrize(
    "phase",
    [
        private_exact.Spec(steps=6, learning_rate=0.3, warm_up=1, penalty=1.0),
        elbo.Spec(steps=60, sampling_rate=0.5, learning_rate=0.05, clip=3.0),
    ],
    ids=["private_exact", "elbo"],
)
def test_phase_1_learns_which_column_matters(phase: Any) -> None:
    random = np.random.default_rng(0)
    tables = []
    for seed in range(3):
        whole = private.table(200, seed=seed, outliers=0.0)
        age = random.uniform(0, 120, 200)
        stay = 175 + 200 * np.sin(age / 15)
        tables.append({**whole, "age": age, "stay": stay, "cost": 1e6 * (stay + 50) / 450})
    whole = private.program(
        moments.Spec(from_bounds=True),
        phase,
        linear.Spec(),
        schema=private.ROWS,
        kernel=private.SMOOTH,
        multiplier=0.5,
        held_out=0.0,
    )
    source = noise.approximate(np.random.default_rng(1))
    found = simulate(whole, tables, DEALING, secure=False, source=source).model
    age, *others = found.urk.weights.tolist()
    assert age < min(others[0], others[1]), "the lengthscale of the column that matters is shorter"

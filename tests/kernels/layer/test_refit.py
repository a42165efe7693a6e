"""σ and λ from summed statistics: the optimum within its bounds, for every target."""

import math

import pytest
import torch

from kernels.errors import EmptyTable, HyperparameterError
from kernels.features.spec import KernelSpec
from kernels.features.urk import URK
from kernels.layer.posterior import Hyperparameters, Spectrum, rounding_of
from kernels.layer.refit import RefitOptions, refit
from kernels.layer.statistics import Statistics
from tests.kernels.layer.test_statistics import table

KERNEL = URK(KernelSpec(architecture="rbf", inputs=3, samples=30, seed=2, lengthscale=1.5))


def spectrum_of(noise: float, prior: float, rows: int = 600) -> Spectrum:
    x, epsilon = table(rows, targets=2)
    phi = KERNEL.features(x).detach()
    generator = torch.Generator().manual_seed(7)
    weights = prior * torch.randn(60, 2, generator=generator, dtype=torch.float64)
    return Spectrum.of(Statistics.of_features(phi, phi @ weights + noise * epsilon))


def objective(spectrum: Spectrum, found: Hyperparameters, options: RefitOptions) -> torch.Tensor:
    prior = (found.prior_variance.log() / 2 - options.log_prior_mean) / options.log_prior_scale
    return spectrum.log_evidence(found) - prior**2 / 2


def test_the_generating_values_are_found() -> None:
    found = refit(spectrum_of(0.2, 1.3, rows=3000))
    torch.testing.assert_close(
        found.noise_variance.sqrt(), torch.full((2,), 0.2).double(), rtol=0.05, atol=0
    )
    torch.testing.assert_close(
        found.prior_variance.sqrt(), torch.full((2,), 1.3).double(), rtol=0.35, atol=0
    )


@pytest.mark.parametrize(("noise", "prior"), [(0.2, 1.0), (1.0, 0.05), (0.01, 3.0)])
def test_no_neighbour_and_no_far_point_is_better(noise: float, prior: float) -> None:
    spectrum, options = spectrum_of(noise, prior), RefitOptions()
    found = refit(spectrum, options)
    best = objective(spectrum, found, options)
    steps = [1.0, 0.98, 1.02, 0.1, 10.0, 0.01]
    for by_noise in steps:
        for by_prior in steps:
            noise_variance = (found.noise_variance * by_noise).clamp(1e-6, 1e2)
            prior_variance = (found.prior_variance * by_prior).clamp(1e-4, 1e6)
            other = Hyperparameters(noise_variance, prior_variance)
            assert (objective(spectrum, other, options) <= best + 1e-7).all()


def test_the_prior_on_lambda_pulls() -> None:
    spectrum = spectrum_of(0.2, 1.0)
    loose = refit(spectrum, RefitOptions(log_prior_scale=100.0))
    tight = refit(spectrum, RefitOptions(log_prior_mean=math.log(5), log_prior_scale=0.001))
    assert (loose.prior_variance.sqrt() < 2).all()
    torch.testing.assert_close(
        tight.prior_variance.sqrt(), torch.full((2,), 5.0).double(), rtol=1e-2, atol=0
    )


def test_the_clamps_hold() -> None:
    options = RefitOptions(noise_bounds=(0.5, 2.0), prior_bounds=(0.1, 0.2))
    found = refit(spectrum_of(0.01, 3.0), options)
    assert (found.noise_variance.sqrt() >= 0.5 * (1 - 1e-12)).all()
    assert (found.prior_variance.sqrt() <= 0.2 * (1 + 1e-12)).all()


def test_no_rows_are_an_error() -> None:
    with pytest.raises(EmptyTable):
        refit(Spectrum.of(Statistics.zero(features=4)))


@pytest.mark.parametrize("spec", [KernelSpec(inputs=1), KernelSpec(architecture="rbf", inputs=1)])
@pytest.mark.parametrize("bits", [24, 30, 40])
def test_rounded_sums_give_the_same_sigma_and_lambda(spec: KernelSpec, bits: int) -> None:
    # Smooth features: most eigenvalues of S are below the rounding, and some are negative.
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(500, 1, generator=generator, dtype=torch.float64)
    y = x.sin() + 0.3 * torch.randn(500, 1, generator=generator, dtype=torch.float64)
    exact = Statistics.of_table(URK(spec), x, y)
    resolution, clients = 2.0**-bits, 20

    def rounding(*shape: int) -> torch.Tensor:
        parts = torch.rand(clients, *shape, generator=generator, dtype=torch.float64) - 0.5
        return resolution * parts.sum(0)

    upper = rounding(exact.features, exact.features).triu()
    rounded = Statistics(
        exact.scatter + upper + upper.triu(1).mT,
        exact.cross + rounding(exact.features, 1),
        exact.target_squares,
        exact.count,
        rounding_of(resolution=resolution, clients=clients, features=exact.features),
    )
    truth, ours = refit(Spectrum.of(exact)), refit(Spectrum.of(rounded))
    assert float(ours.noise_variance) == pytest.approx(float(truth.noise_variance), rel=0.05)
    assert float(ours.prior_variance) == pytest.approx(float(truth.prior_variance), rel=0.5)


def test_a_constant_target_goes_to_the_noise_floor_without_a_crash() -> None:
    x, _ = table(50)
    spectrum = Spectrum.of(Statistics.of_table(KERNEL, x, torch.zeros(50)))
    assert refit(spectrum).noise_variance.item() == pytest.approx(1e-6, rel=2.0**-16)


@pytest.mark.parametrize(
    "options",
    [
        {"noise_bounds": (0.0, 1.0)},
        {"prior_bounds": (2.0, 1.0)},
        {"log_prior_scale": 0.0},
        {"log_prior_mean": math.nan},
    ],
)
def test_impossible_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(HyperparameterError):
        RefitOptions(**options)

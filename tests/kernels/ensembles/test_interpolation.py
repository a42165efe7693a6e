"""β between mixture and product, by [PredBayes] eq. 4.11 and from sums over sites."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.func import grad

from kernels.ensembles.committee import interpolated
from kernels.ensembles.interpolation import crossing, fit_beta, grid_between, narrowed, slopes
from kernels.errors import EmptyTable
from kernels.scores.gaussians import Gaussian


def _problem(seed: int, rows: int = 40) -> tuple[Gaussian, Gaussian, Tensor]:
    """Return an overconfident product, an underconfident mixture, and targets."""
    generator = torch.Generator().manual_seed(seed)

    def draw() -> Tensor:
        return torch.randn(rows, 2, generator=generator, dtype=torch.float64)

    centre, spread = draw(), (0.3 * draw()).exp()
    product = Gaussian(centre + 0.2 * draw(), spread / 4)
    mixture = Gaussian(centre + 0.2 * draw(), spread * 3)
    return product, mixture, centre + spread.sqrt() * draw()


def _loss(product: Gaussian, mixture: Gaussian, targets: Tensor, beta: Tensor) -> Tensor:
    precision = mixture.precision + beta * (product.precision - mixture.precision)
    shift = mixture.shift + beta * (product.shift - mixture.shift)
    normal = torch.distributions.Normal(shift / precision, precision**-0.5, validate_args=False)
    return -normal.log_prob(targets).sum()


def test_slope_and_curvature_are_the_derivatives_of_the_likelihood_that_4_11_has() -> None:
    product, mixture, y = _problem(1)
    betas = torch.tensor([[0.0, 0.3], [0.7, 1.0]]).double()
    found = slopes(product, mixture, y, betas)
    first = grad(lambda beta: _loss(product, mixture, y, beta))
    second = grad(lambda beta: first(beta).sum())
    for row, beta in enumerate(betas):
        assert torch.allclose(found[0][row], first(beta))
        assert torch.allclose(found[1][row], second(beta))
    assert torch.isclose(
        _loss(product, mixture, y, betas[1]),
        -interpolated(product, mixture, betas[1]).log_density(y).sum(),
    )


@settings(max_examples=25)
@given(seed=st.integers(0, 50))
def test_no_other_beta_is_likelier(seed: int) -> None:
    product, mixture, y = _problem(seed)
    best = fit_beta(product, mixture, y)
    least = _loss(product, mixture, y, best)
    for beta in torch.linspace(0, 1, 41).double():
        for target in range(2):
            other = best.clone()
            other[target] = beta
            assert _loss(product, mixture, y, other) >= least - 1e-9


def test_the_end_is_chosen_where_it_is_likeliest() -> None:
    product, mixture, y = _problem(1)
    sharp = Gaussian(y, 0.01 * torch.ones_like(y))
    assert fit_beta(sharp, mixture, y).tolist() == pytest.approx([1.0, 1.0])
    assert fit_beta(product, sharp, y).tolist() == pytest.approx([0.0, 0.0], abs=1e-12)
    with pytest.raises(EmptyTable, match="at least one labelled row"):
        fit_beta(Gaussian(y[:0], y[:0]), Gaussian(y[:0], y[:0]), y[:0])


@settings(max_examples=25)
@given(seed=st.integers(0, 50))
def test_two_sums_over_sites_give_the_beta_of_all_rows_in_one_place(seed: int) -> None:
    sites = [_problem(100 * seed + site, rows=10 + 7 * site) for site in range(4)]
    pooled = _pooled(sites)
    low, high = torch.zeros(2).double(), torch.ones(2).double()
    for _ in range(2):
        betas = grid_between(low, high, points=17)
        slope = sum(slopes(*site, betas)[0] for site in sites)
        low, high = narrowed(betas, slope)
    assert torch.allclose(crossing(betas, slope), fit_beta(*pooled), atol=1e-4)
    assert (high - low <= 1 / 256 + 1e-12).all()


def test_a_slope_that_never_changes_its_sign_leaves_an_end() -> None:
    betas = grid_between(torch.zeros(2).double(), torch.ones(2).double(), points=3)
    slope = torch.tensor([[-3.0, 1.0], [-2.0, 2.0], [-1.0, 3.0]]).double()
    assert [each.tolist() for each in narrowed(betas, slope)] == [[1.0, 0.0], [1.0, 0.0]]
    assert crossing(betas, slope).tolist() == [1.0, 0.0]


def _pooled(sites: list[tuple[Gaussian, Gaussian, Tensor]]) -> tuple[Gaussian, Gaussian, Tensor]:
    products, mixtures, targets = zip(*sites, strict=True)

    def joined(each: tuple[Gaussian, ...]) -> Gaussian:
        return Gaussian(
            torch.cat([one.mean for one in each]), torch.cat([one.variance for one in each])
        )

    return joined(products), joined(mixtures), torch.cat(targets)

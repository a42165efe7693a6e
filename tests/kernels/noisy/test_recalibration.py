"""Recalibration from few noisy bins is close to that of all rows without noise."""

import pytest
import torch

from kernels.noisy.recalibration import BINS, EDGES, from_noisy, histogram
from kernels.scores import recalibration
from kernels.scores.recalibration import Recalibration


def residuals(rows: int, *, scale: float, freedom: float | None, seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    law = torch.distributions.StudentT(freedom) if freedom else torch.distributions.Normal(0.0, 1.0)
    return scale * law.sample((rows,)).double()


def noisy(z: torch.Tensor, deviation: float, seed: int) -> Recalibration:
    generator = torch.Generator().manual_seed(seed)
    drawn = deviation * torch.randn(BINS, generator=generator, dtype=torch.float64)
    return from_noisy(histogram(z) + drawn, noise=deviation, min_rows=100)


def test_every_residual_is_in_one_bin() -> None:
    z = torch.tensor([0.0, 1e-9, float(EDGES[0]), 1.0, 16.0, 1e9, -3.0], dtype=torch.float64)
    assert histogram(z).sum() == len(z)
    assert histogram(z)[0] == 3
    assert histogram(z)[-1] == 1


@pytest.mark.parametrize(("scale", "freedom"), [(1.0, None), (0.4, None), (2.5, None), (1.0, 3.0)])
def test_the_law_is_found_through_the_noise(scale: float, freedom: float | None) -> None:
    z = residuals(2000, scale=scale, freedom=freedom)
    exact = recalibration.fit(recalibration.histogram(z))
    for seed in range(5):
        found = noisy(z, 5.0, seed).law
        for level in (0.5, 0.8, 0.95):
            assert found.half_width(level) == pytest.approx(exact.half_width(level), rel=0.12)


def test_noise_in_empty_tails_is_no_heavy_tail() -> None:
    z = residuals(1000, scale=1.0, freedom=None)
    heavy = sum(noisy(z, 8.0, seed).law.freedom is not None for seed in range(20))
    assert heavy <= 6


def test_conformal_quantiles_are_near_those_of_the_rows() -> None:
    z = residuals(3000, scale=1.0, freedom=None)
    for seed in range(5):
        found = noisy(z, 5.0, seed)
        for level in (0.5, 0.8, 0.9):
            inside = float((z.abs() <= found.conformal(level)).double().mean())
            assert inside == pytest.approx(level, abs=0.03)


@pytest.mark.parametrize("deviation", [1e3, 1e6])
def test_noise_beyond_all_counts_still_gives_a_recalibration(deviation: float) -> None:
    for seed in range(10):
        found = noisy(residuals(10, scale=1.0, freedom=None), deviation, seed)
        assert bool((found.counts >= 0).all())
        assert found.law.variance > 0


def test_few_rows_leave_the_model_as_it_is() -> None:
    assert noisy(residuals(20, scale=3.0, freedom=None), 1.0, 1).fitted is None

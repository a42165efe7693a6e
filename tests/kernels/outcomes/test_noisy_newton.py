"""Slopes after one sum of S_ω: with little noise the variational optimum, with much the prior."""

import math
from dataclasses import replace

import pytest
import torch

from kernels.layer.statistics import Noise
from kernels.outcomes import binary, logistic
from kernels.outcomes.noisy_newton import Curvature, Logits, first, first_weight, refined
from kernels.outcomes.variational import Layer
from tests.kernels.outcomes import tables

ROWS = 2000


def fitted(*, deviation: float, sums: int, shift: float = -1.0) -> tuple[Layer, torch.Tensor]:
    """Return the layer after some sums with noise, and the slopes at it without."""
    generator = torch.Generator().manual_seed(5)
    phi = tables.features(ROWS)
    y = tables.yes_no(phi, shift=shift)
    offset = binary.base_offset(events=float(y.sum()), rows=ROWS)
    rows = binary.trials(y, offset=offset)

    def noise(*shape: int) -> torch.Tensor:
        return deviation * torch.randn(*shape, generator=generator, dtype=torch.float64)

    def slopes(layer: Layer) -> torch.Tensor:
        return logistic.slope(rows, *layer.latent(phi)) @ phi

    layers: tuple[Layer, ...] = (Layer.prior(phi.shape[1]),)
    total = logistic.local([(phi, rows)], layers[0])
    square = noise(*total.scatter.shape)
    total = replace(
        total,
        scatter=total.scatter + (square + square.mT) / 2,
        cross=total.cross + noise(phi.shape[1]),
        noise=Noise(scatter=deviation, cross=deviation, target_squares=1.0, count=1.0),
    )
    curvature: Curvature
    layers, curvature = first(layers, [total], weight=ROWS * first_weight(offset))
    for _ in range(sums - 1):
        noisy = slopes(layers[0]) + noise(phi.shape[1])
        layers, curvature = refined(
            layers, curvature, [noisy], deviation=deviation, kind=Logits(offset)
        )
    return layers[0], slopes(layers[0])


@pytest.mark.parametrize("shift", [-1.0, -3.0])
def test_with_little_noise_the_slopes_are_those_of_the_prior(shift: float) -> None:
    layer, slopes = fitted(deviation=1e-3, sums=12, shift=shift)
    pulled = layer.mean / layer.prior_variance
    assert float((slopes - pulled).norm()) < 0.02 * float(slopes.norm() + 1)


def test_each_sum_of_slopes_comes_nearer() -> None:
    left = []
    for sums in (1, 2, 4):
        layer, slopes = fitted(deviation=1e-3, sums=sums, shift=-3.0)
        left.append(float((slopes - layer.mean / layer.prior_variance).norm()))
    assert left[0] > 1.5 * left[1] > 3 * left[2]


def test_noise_without_end_leaves_little_more_than_the_prior() -> None:
    layer, _ = fitted(deviation=1e9, sums=3)
    typical = math.sqrt(layer.prior_variance * layer.features)
    assert float(layer.mean.norm()) < typical / 2
    assert bool((layer.covariance.diagonal() > 0.6 * layer.prior_variance).all())


def test_more_noise_leaves_more_doubt() -> None:
    doubts = [float(fitted(deviation=s, sums=3)[0].covariance.trace()) for s in (1.0, 10.0, 100.0)]
    assert doubts == sorted(doubts)

"""The ratio of the linear part: the one with the most evidence, from the sums at any ratio."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from kernels.errors import StatisticsError
from kernels.features.linear_part import with_log_ratio
from kernels.features.spec import KernelSpec
from kernels.features.urk import URK, starting_weights
from kernels.layer.local_evidence import negative_log_evidence
from kernels.layer.posterior import Posterior, Spectrum
from kernels.layer.ratio import LOG_RATIOS, best_ratio, rescaled, rescaling
from kernels.layer.refit import refit
from kernels.layer.statistics import Noise, Statistics

INPUTS = 4
BESIDE = KernelSpec(
    architecture="matern52", inputs=INPUTS, samples=25, seed=2, lengthscale=2.0, linear_part=True
)
ALONE = replace(BESIDE, linear_part=False)


def at(spec: KernelSpec, log_ratio: float) -> URK:
    return URK(spec, with_log_ratio(starting_weights(spec), log_ratio))


def table(rows: int, *, bend: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return rows of two targets: linear ones, bent by so much, with noise of .3."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, INPUTS, generator=generator, dtype=torch.float64)
    slope = torch.tensor([[0.7, -0.5, 0.3, 0.2], [0.1, 0.6, -0.6, 0.3]]).double().mT
    noise = 0.3 * torch.randn(rows, 2, generator=generator, dtype=torch.float64)
    waves = torch.stack([(2 * x[:, 0]).sin() * x[:, 1], (x[:, 1] + x[:, 2]).cos()], 1)
    return x, (1 - bend) * x @ slope + bend * waves + noise


def test_sums_at_one_ratio_give_those_at_every_other() -> None:
    x, y = table(60, bend=0.3)
    known = Statistics.of_table(at(BESIDE, 0.25), x, y)
    for other in (-2.5, 0.25, 1.75):
        diagonal = rescaling(BESIDE, before=0.25, after=other)
        ours, theirs = rescaled(known, diagonal), Statistics.of_table(at(BESIDE, other), x, y)
        torch.testing.assert_close(ours.scatter, theirs.scatter, rtol=1e-13, atol=1e-12)
        torch.testing.assert_close(ours.cross, theirs.cross, rtol=1e-13, atol=1e-12)
        assert torch.equal(ours.scatter, ours.scatter.mT)
        assert float((ours.scatter - theirs.scatter).norm()) <= ours.rounding


@pytest.mark.parametrize("bend", [0.0, 0.3, 1.0])
def test_the_ratio_is_that_of_brute_force_over_dense_evidence(bend: float) -> None:
    x, y = table(150, bend=bend)
    evidences = []
    for log_ratio in LOG_RATIOS:
        phi = at(BESIDE, log_ratio).features(x).detach()
        scales = refit(Spectrum.of(Statistics.of_features(phi, y)))
        log_noise, log_prior = (own.log() / 2 for own in vars(scales).values())
        dense = negative_log_evidence(phi, y, log_noise=log_noise, log_prior=log_prior)
        evidences.append(-float(dense) - float(log_prior.square().sum()) / 2)
    expected = LOG_RATIOS[evidences.index(max(evidences))]
    for start in (0.0, -1.5):
        known = Statistics.of_table(at(BESIDE, start), x, y)
        found = best_ratio(BESIDE, known, log_ratio=start)
        assert found.log_ratio == expected
        again = refit(Spectrum.of(found.statistics))
        assert torch.equal(again.noise_variance, found.hyperparameters.noise_variance)


def fitted(spec: KernelSpec, x: Tensor, y: Tensor) -> tuple[URK, Posterior]:
    statistics = Statistics.of_table(URK(spec), x, y)
    if not spec.linear_part:
        return URK(spec), Posterior.of(statistics, refit(Spectrum.of(statistics)))
    found = best_ratio(spec, statistics, log_ratio=0.0)
    return at(spec, found.log_ratio), Posterior.of(found.statistics, found.hyperparameters)


def error(model: tuple[URK, Posterior], x: Tensor, y: Tensor) -> float:
    kernel, posterior = model
    mean = posterior.predict(kernel.features(x).detach()).mean
    return math.sqrt(float((mean - y).square().mean()))


def test_on_linear_rows_the_linear_part_wins() -> None:
    (x, y), new = table(120, bend=0.0), table(1000, bend=0.0, seed=1)
    beside, alone = fitted(BESIDE, x, y), fitted(ALONE, x, y)
    assert float(beside[1].log_evidence.sum()) > float(alone[1].log_evidence.sum()) + 10
    assert error(beside, *new) < 0.95 * error(alone, *new)
    assert error(beside, *new) < 1.05 * 0.3
    assert float(beside[0].weights.detach()[-1]) > 0


def test_on_bent_rows_nothing_is_lost() -> None:
    (x, y), new = table(400, bend=1.0), table(1000, bend=1.0, seed=1)
    beside, alone = fitted(BESIDE, x, y), fitted(ALONE, x, y)
    assert float(beside[1].log_evidence.sum()) > float(alone[1].log_evidence.sum()) - 3
    assert error(beside, *new) < 1.02 * error(alone, *new)
    assert float(beside[0].weights.detach()[-1]) < 0


def test_a_kernel_with_one_part_keeps_its_ratio_and_its_sums() -> None:
    linear = KernelSpec(architecture="linear", inputs=INPUTS)
    x, y = table(60, bend=0.0)
    known = Statistics.of_table(at(linear, 0.5), x, y)
    found = best_ratio(linear, known, log_ratio=0.5)
    assert found.log_ratio == 0.5
    assert found.statistics is known


def test_the_ratios_are_weights_on_their_grid() -> None:
    assert [ratio * 2**16 % 1 for ratio in LOG_RATIOS] == [0.0] * 17
    halves = [ratio / math.log(2) * 2 for ratio in LOG_RATIOS]
    assert halves == pytest.approx(range(-8, 9), abs=1e-4)


def test_sums_with_noise_are_not_rescaled() -> None:
    noise = Noise(scatter=1.0, cross=1.0, target_squares=1.0, count=1.0)
    noisy = replace(Statistics.of_table(URK(BESIDE), *table(20, bend=0.0)), noise=noise)
    with pytest.raises(StatisticsError, match="keep the ratio"):
        rescaled(noisy, rescaling(BESIDE, before=0.0, after=1.0))

"""Scores from few clipped sums: equal to the full ones if nothing is clipped, and always valid."""

import pytest
import torch

from kernels.layer.posterior import Hyperparameters
from kernels.noisy.evaluation import Clips, bins, inside
from kernels.scores.evaluation import score
from kernels.scores.metrics import LEVELS
from kernels.scores.student_t import StudentT

SCALES = Hyperparameters.of(noise_variance=0.25, prior_variance=1.0, targets=2)
LAWS = [StudentT(), StudentT(5.0, 0.8)]


def rows(count: int, *, deviation: float = 0.5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    residuals = deviation * torch.randn(count, 2, generator=generator, dtype=torch.float64)
    variance = 0.25 * (1 + 0.1 * torch.rand(count, 2, generator=generator, dtype=torch.float64))
    return residuals.clamp(-1.2, 1.2), variance


def test_without_noise_and_clipping_they_are_the_scores() -> None:
    residuals, variance = rows(4000)
    clips, full = Clips.of(SCALES), score(LAWS, *rows(4000))
    sums = clips.of_model(residuals, variance) | clips.of_laws(LAWS, residuals, variance)
    found = clips.scores(LAWS, sums, 4000.0)
    for name in ("rmse", "nll", "crps", "ece", "mce", "brier", "calibration_curve", "width"):
        torch.testing.assert_close(getattr(found, name)(), getattr(full, name)())
    # Estimated from bins, so only approximately equal.
    torch.testing.assert_close(found.interval_score(), full.interval_score(), rtol=0.1, atol=0.02)


def test_no_row_adds_more_than_its_sensitivity_whatever_it_is() -> None:
    clips = Clips.of(SCALES)
    wild = torch.tensor([[1e6, -1e6], [0.0, 3.0], [-40.0, 1e-9]], dtype=torch.float64)
    for variance in (1e-8, 1.0, 1e8):
        for row in wild:
            given = row[None], torch.full((1, 2), variance, dtype=torch.float64)
            sums = clips.of_model(*given) | clips.of_laws(LAWS, *given)
            for name, most in clips.sensitivities().items():
                assert float(sums[name].norm()) <= most * (1 + 1e-12), name


def test_counts_of_nested_intervals_follow_from_bins() -> None:
    residuals, variance = rows(500)
    z = residuals / variance.sqrt()
    reach = [[law.half_width(p) for p in LEVELS] for law in LAWS]
    counted = (z.abs()[:, :, None] <= torch.tensor(reach, dtype=torch.float64)).double().mean(0)
    torch.testing.assert_close(inside(bins(z, reach)), counted)


@pytest.mark.parametrize("deviation", [10.0, 1e4, 1e8])
def test_any_noise_leaves_possible_scores(deviation: float) -> None:
    residuals, variance = rows(50)
    clips = Clips.of(SCALES)
    sums = clips.of_model(residuals, variance) | clips.of_laws(LAWS, residuals, variance)
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        noisy = {
            name: own + deviation * torch.randn(own.shape, generator=generator).double()
            for name, own in sums.items()
        }
        found = clips.scores(LAWS, noisy, 50.0)
        assert bool((found.rmse() >= 0).all())
        assert bool((found.nll().isfinite()).all())
        curve = found.calibration_curve()
        assert bool(((curve >= 0) & (curve <= 1 + 1e-12)).all())
        assert bool((curve.diff(dim=1) >= -1e-12).all())

"""A shrunk S is nearer to the truth than the noisy one, by as much as it says."""

import pytest
import torch

from kernels.noisy.realisable import symmetric_normals
from kernels.noisy.shrinkage import shrunk

SIDE = 40


def truth() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(400, SIDE, generator=generator, dtype=torch.float64)
    return x.mT @ x / 4


def deviation_of(error: torch.Tensor) -> float:
    return float(error.norm()) / (SIDE * (SIDE + 1) / 2) ** 0.5


@pytest.mark.parametrize("deviation", [1.0, 10.0, 100.0])
def test_the_error_that_is_left_is_the_one_that_is_told(deviation: float) -> None:
    noise = deviation * symmetric_normals(3, "noise", SIDE)
    found, left = shrunk(truth() + noise, deviation=deviation)
    error = deviation_of(found - truth())
    assert error < deviation_of(noise)
    assert left < deviation
    # With much noise it is the multiple of the identity that errs, by next to nothing of the noise.
    assert error == pytest.approx(left, rel=0.1, abs=0.2 * deviation)


def test_without_much_noise_nothing_changes() -> None:
    found, left = shrunk(truth(), deviation=1e-6)
    torch.testing.assert_close(found, truth(), rtol=1e-9, atol=0.0)
    assert left == pytest.approx(1e-6, rel=1e-3)

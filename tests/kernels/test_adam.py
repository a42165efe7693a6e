"""Adam compared with its formula over all gradients so far."""

import pytest
import torch

from kernels import adam


@pytest.mark.parametrize("damping", [1e-8, 1e-2])
def test_adam_steps_by_its_running_means_without_their_bias(damping: float) -> None:
    generator = torch.Generator().manual_seed(5)
    start = torch.randn(4, generator=generator, dtype=torch.float64)
    gradients = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    state, expected = adam.init(start), start.clone()
    for time in range(1, 6):
        state = adam.update(state, gradients[time - 1], learning_rate=0.1, damping=damping)
        ages = torch.arange(time - 1, -1, -1).double()[:, None]
        first, second = (
            (decay**ages * gradients[:time] ** power).sum(0) / (decay**ages).sum()
            for decay, power in ((0.9, 1), (0.999, 2))
        )
        scale = second.sqrt() + damping
        expected -= 0.1 * first / scale
        assert torch.allclose(adam.scale(state, damping=damping), scale, rtol=1e-12)
    assert torch.allclose(state.parameters, expected, rtol=1e-12)

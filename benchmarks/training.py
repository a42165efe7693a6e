"""Training of one kernel on one table by its pooled evidence, for the kernels in the pictures.

The federated way to the same weights (sums of statistics, sums of gradients) is in
`kernels.rounds`; here the table is in one place, as in the synthetic experiment of [FedBNR].
"""

import torch
from torch import Tensor

from kernels.features.spec import KernelSpec
from kernels.features.urk import URK
from kernels.layer.evidence import PooledEvidence, client_gradient
from kernels.layer.posterior import Hyperparameters, Spectrum
from kernels.layer.refit import RefitOptions, refit
from kernels.layer.statistics import Statistics


def train(
    spec: KernelSpec,
    x: Tensor,
    y: Tensor,
    *,
    steps: int = 300,
    learning_rate: float = 0.02,
    penalty: float = 0.0,
    options: RefitOptions | None = None,
) -> tuple[URK, Hyperparameters]:
    """Minimise −log evidence + penalty·‖θ‖²/2 by Adam; σ and λ are refitted at each step."""
    kernel = URK(spec)
    optimiser = torch.optim.Adam([kernel.weights], lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        spectrum = Spectrum.of(Statistics.of_table(kernel, x, y))
        pooled = PooledEvidence.of(spectrum, refit(spectrum, options))
        gradient = client_gradient(
            kernel,
            x,
            y,
            scatter_gradient=pooled.scatter_gradient,
            cross_gradient=pooled.cross_gradient,
        )
        kernel.weights.grad = gradient + penalty * kernel.weights.detach()
        torch.nn.utils.clip_grad_norm_([kernel.weights], 1.0)
        optimiser.step()
        schedule.step()
    return kernel, refit(Spectrum.of(Statistics.of_table(kernel, x, y)), options)

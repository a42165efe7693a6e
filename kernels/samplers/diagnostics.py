"""Whether chains have come to one law ([Gelman13] §11.4, [Vehtari21])."""

import torch
from torch import Tensor

from kernels.errors import WrongShape


def split_rhat(chains: Tensor) -> Tensor:
    """Return R̂ of each coordinate, (…), from chains of samples (chains, samples, …).

    Each chain is halved, so that one that still wanders disagrees with itself. With W the mean
    variance within the halves and B/n the variance of their means, R̂ = √((n − 1)/n + B/(nW)):
    1 when all have one law, well above 1.01 when not.
    """
    half = chains.shape[1] // 2 if chains.ndim > 1 else 0
    if half < 2:
        raise WrongShape(
            f"chains must be (chains, at least 4 samples, …), not {tuple(chains.shape)}"
        )
    halves = torch.cat([chains[:, :half], chains[:, -half:]])
    within = halves.var(1).mean(0)
    between = halves.mean(1).var(0)
    return ((half - 1) / half + between / within).sqrt()

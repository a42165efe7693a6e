"""Convergence of chains to one law ([Gelman13] §11.4, [Vehtari21])."""

import torch
from torch import Tensor

from kernels.errors import WrongShape


def split_rhat(chains: Tensor) -> Tensor:
    """Return R̂ of each coordinate, (…), from chains of samples (chains, samples, …).

    Each chain is halved, so that the halves of a chain that has not converged disagree. With W the
    mean variance within the halves and B/n the variance of their means,
    R̂ = √((n − 1)/n + B/(nW)): 1 if all have one law, well above 1.01 if not.
    """
    half = chains.shape[1] // 2 if chains.ndim > 1 else 0
    if half < 2:
        raise WrongShape(
            "chains must have shape (chains, samples, …) with at least 4 samples, not "
            f"{tuple(chains.shape)}"
        )
    halves = torch.cat([chains[:, :half], chains[:, -half:]])
    within = halves.var(1).mean(0)
    between = halves.mean(1).var(0)
    return ((half - 1) / half + between / within).sqrt()

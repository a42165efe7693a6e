"""Statistics of random rows of a linear function with noise."""

import torch

from kernels.layer.statistics import Statistics

FEATURES = 12


def statistics_of(rows: int, *, seed: int) -> Statistics:
    """Return the sums of so many rows."""
    random = torch.Generator().manual_seed(seed)
    weights = torch.randn(FEATURES, 1, generator=torch.Generator().manual_seed(0)).double()
    phi = torch.randn(rows, FEATURES, generator=random).double()
    return Statistics.of_features(phi, phi @ weights + torch.randn(rows, 1, generator=random))

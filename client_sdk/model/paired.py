"""The standard error of a difference between two models' scores on the same rows.

Both models are scored on every row, so what counts is how much the rows' differences vary, not how
much the scores do. A score that is a mean of losses has the influence ℓ_local − ℓ_federated of each
row; one that is the root R of a mean of squares e² has

    (e²_local − R²_local)/2R_local − (e²_federated − R²_federated)/2R_federated

to first order. The standard error is √(Σ_g u_g²)/n, with u_g the sum of a patient's centred
influences: a patient's rows are alike, and are one observation rather than many.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def of_roots(local: Tensor, federated: Tensor) -> Tensor:
    """Return the influences on a difference of roots of mean squares, from squares (n, T)."""
    return _of_root(local) - _of_root(federated)


def standard_error(influences: Tensor, patients: Sequence[bytes]) -> Tensor:
    """Return the standard error of the mean influence (n, T), (T,); NaN for a single patient.

    patients: a key for each row, equal for the rows of one patient.
    """
    numbers: dict[bytes, int] = {}
    which = torch.tensor([numbers.setdefault(key, len(numbers)) for key in patients])
    count = len(numbers)
    if count < 2:
        return torch.full(influences.shape[1:], torch.nan, dtype=torch.float64)
    centred = influences - influences.mean(0)
    by_patient = torch.zeros(count, influences.shape[1], dtype=torch.float64)
    by_patient.index_add_(0, which, centred)
    # With few patients their sums vary too little: as in a sample's variance.
    few = (count / (count - 1)) ** 0.5
    error: Tensor = by_patient.square().sum(0).sqrt() / len(influences) * few
    return error


def _of_root(squares: Tensor) -> Tensor:
    mean = squares.mean(0)
    return (squares - mean) / (2 * mean.sqrt()).clamp_min(torch.finfo(torch.float64).tiny)

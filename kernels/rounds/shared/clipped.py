"""Gradients clipped per unit, as a block of a sum: one unit can change the sum by at most the clip.

Each unit's gradient is that of a loss summed over its rows, scaled down to the norm C if it is
longer [Abadi16]. A sum over units then changes by at most C when one unit is added or removed,
however many rows it has.

Gradients of single rows are computed explicitly (`URK.features_and_row_pullback`): for the few
rows that a hospital samples, the overhead of `torch.func`, which Opacus uses for modules without a
rule of their own, is several times the cost of the arithmetic.
`tests/kernels/rounds/shared/test_clipped.py` compares the two.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from kernels.model.model import Model
from kernels.rounds.site.site import Part, Site
from privacy.layout import Block

RowGradients = Callable[[Tensor, Tensor], Tensor]
"""Maps rows' inputs (n, p) and targets (n, T) to the flat gradient of each row's loss, (n, P)."""

RESOLUTION = 2.0**-16
"""With noise, the fixed point follows from the noise; this value is coarser than any of those."""
_LEAST_ROWS = 8
"""The minimum rows of a batch: products of fewer rows use other code, whose last bits differ."""
_MOST_NUMBERS = 2**24
"""The maximum number of gradient elements of all rows in memory at a time: 128 MiB."""


def gradient_block(model: Model, parameters: int, *, clip: float) -> Block:
    """Return the block of a sum of clipped gradients."""
    return Block("gradient", (parameters,), model.max_rows * clip, RESOLUTION, clip)


def row_gradients(of: RowGradients, x: Tensor, y: Tensor) -> Tensor:
    """Return each row's gradient, bit for bit independent of the other rows in the batch.

    Small batches are padded with zero rows.
    """
    rows, lacking = len(x), max(0, _LEAST_ROWS - len(x))
    if lacking:
        x, y = (torch.cat([own, own.new_zeros(lacking, own.shape[1])]) for own in (x, y))
    return of(x, y)[:rows]


def clipped_sum(gradients: Tensor, units: Tensor, *, clip: float) -> Tensor:
    """Sum the rows' gradients (n, parameters) by unit, clip each unit's sum, and add them up.

    >>> rows = torch.tensor([[3.0, 0.0], [0.0, 4.0], [0.3, 0.0]])
    >>> clipped_sum(rows, torch.tensor([0, 0, 1]), clip=1.0)
    tensor([0.9000, 0.8000])
    """
    if len(gradients) == 0:
        return gradients.sum(0)
    count = int(units.max()) + 1
    if count < len(units):
        summed = gradients.new_zeros(count, gradients.shape[1]).index_add_(0, units, gradients)
    else:  # one row per unit; the order does not matter
        summed = gradients
    norms = summed.norm(dim=1)
    if not bool(norms.isfinite().all()):
        # A gradient that is not finite is left out: everyone would see a refusal.
        summed, norms = summed[norms.isfinite()], norms[norms.isfinite()]
    total: Tensor = (clip / norms.clamp_min(clip)) @ summed
    return total


def clipped_gradient(
    model: Model,
    site: Site,
    of: RowGradients,
    *,
    parameters: int,
    clip: float,
    sampling_rate: float = 1.0,
) -> tuple[Tensor, int]:
    """Return the sum over a site's training units, or a Poisson sample, and its number of rows."""
    total, rows = torch.zeros(parameters, dtype=torch.float64), 0
    most = max(1, _MOST_NUMBERS // parameters)
    for x, y, units in site.units(Part.TRAINING, model, rows=most, sampling_rate=sampling_rate):
        total += clipped_sum(row_gradients(of, x, y), units, clip=clip)
        rows += len(x)
    return total, rows

"""Gradients clipped per unit, as a block of a sum: what one unit can change is the clip.

Each unit's gradient is that of a loss summed over its rows, scaled down to the norm C where it is
longer (Abadi et al. 2016, "Deep learning with differential privacy"); a sum over units then changes
by at most C when one is added or removed, however many rows it has.

Gradients of single rows come from `torch.func`: the gradient of the loss of one row, vectorised. It
is what Opacus does for modules that it has no rule of its own for, and no rule of Opacus fits here:
the shifter's network is applied to random frequencies, which all rows share, and Opacus's rules
take a layer's first dimension for the rows. `tests/rounds/test_clipped.py` compares the two.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import grad, vmap

from kernels.rounds.model import Model
from kernels.rounds.site import Part, Site
from privacy.layout import Block

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From flat parameters, one row's features x (p,) and targets (T,) to a number."""

RESOLUTION = 2.0**-16
"""With noise the fixed point follows from the noise; this is coarser than any."""
_LEAST_ROWS = 8
"""Of a batch: products of fewer rows take other ways, whose last bits differ."""
_MOST_NUMBERS = 2**24
"""Of all rows' gradients that exist at a time: 128 MiB."""


def gradient_block(model: Model, parameters: int, *, clip: float) -> Block:
    """Return the block of a sum of clipped gradients."""
    return Block("gradient", (parameters,), model.max_rows * clip, RESOLUTION, clip)


def row_gradients(loss: Loss, parameters: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return the gradient of each row's loss, (n, parameters).

    A row's own, to the last bit, whatever other rows there are: small batches are filled up.
    """
    rows, lacking = len(x), max(0, _LEAST_ROWS - len(x))
    x, y = (torch.cat([own, own.new_zeros(lacking, own.shape[1])]) for own in (x, y))
    gradients: Tensor = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
    return gradients[:rows]


def clipped_sum(gradients: Tensor, units: Tensor, *, clip: float) -> Tensor:
    """Add up rows' gradients (n, parameters) by unit, clip each unit's, and add those up.

    >>> rows = torch.tensor([[3.0, 0.0], [0.0, 4.0], [0.3, 0.0]])
    >>> clipped_sum(rows, torch.tensor([0, 0, 1]), clip=1.0)
    tensor([0.9000, 0.8000])
    """
    if len(gradients) == 0:
        return gradients.sum(0)
    summed = gradients.new_zeros(int(units.max()) + 1, gradients.shape[1])
    summed.index_add_(0, units, gradients)
    norms = summed.norm(dim=1, keepdim=True)
    # A gradient that is no number any more is left out: a refusal would be seen by everyone.
    scaled = summed * (clip / norms.clamp_min(clip))
    return torch.where(norms.isfinite(), scaled, 0.0).sum(0)


def clipped_gradient(
    model: Model,
    site: Site,
    loss: Loss,
    parameters: Tensor,
    *,
    clip: float,
    sampling_rate: float = 1.0,
) -> tuple[Tensor, int]:
    """Return a site's sum over its training units, or over a Poisson sample, and their rows."""
    total, rows = torch.zeros_like(parameters), 0
    most = max(1, _MOST_NUMBERS // len(parameters))
    for x, y, units in site.units(Part.TRAINING, model, rows=most, sampling_rate=sampling_rate):
        total += clipped_sum(row_gradients(loss, parameters, x, y), units, clip=clip)
        rows += len(x)
    return total, rows

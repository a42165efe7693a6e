"""Counts that noise was added to, as counts again: none negative, all together what they sum to.

A histogram of n rows is a point of the simplex {x ≥ 0, Σx = n}. Noise of equal deviation in every
bin moves it off, and of all points of the simplex the likeliest origin is the nearest one: subtract
one number from all bins so that what is left above zero sums to n. That takes a little from every
bin, and so removes the many small false counts of empty bins rather than keeping their positive
half.
"""

import torch
from torch import Tensor


def repaired(counts: Tensor) -> Tensor:
    """Return the nearest histogram to noisy counts (…, bins), of as many rows, at least one.

    >>> repaired(torch.tensor([90.0, -4.0, 12.0, 3.0], dtype=torch.float64)).tolist()
    [88.66666666666667, 0.0, 10.666666666666666, 1.6666666666666667]
    """
    total = counts.sum(-1, keepdim=True).clamp_min(1.0)
    ordered = counts.sort(dim=-1, descending=True).values
    excess = (ordered.cumsum(-1) - total) / torch.arange(1, counts.shape[-1] + 1).to(counts)
    # The largest bins stay above zero, as many as are above what would be subtracted for them.
    kept = (ordered > excess).sum(-1, keepdim=True)
    return (counts - excess.gather(-1, kept - 1)).clamp_min(0.0)

"""Noisy counts turned back into a histogram: no count negative, and the same sum.

A histogram of n rows is a point of the simplex {x ≥ 0, Σx = n}. Noise of equal deviation in every
bin moves it off the simplex, and the most likely original is the nearest point of the simplex:
subtract one number from all bins and set negative results to 0, so that the rest sums to n. This
takes a little from every bin, and so removes the many small false counts of empty bins instead of
keeping their positive half.
"""

import torch
from torch import Tensor


def repaired(counts: Tensor) -> Tensor:
    """Return the histogram nearest to noisy counts (…, bins), with the same sum, at least 1.

    >>> repaired(torch.tensor([90.0, -4.0, 12.0, 3.0], dtype=torch.float64)).tolist()
    [88.66666666666667, 0.0, 10.666666666666666, 1.6666666666666667]
    """
    total = counts.sum(-1, keepdim=True).clamp_min(1.0)
    ordered = counts.sort(dim=-1, descending=True).values
    excess = (ordered.cumsum(-1) - total) / torch.arange(1, counts.shape[-1] + 1).to(counts)
    # The k largest bins stay above 0: those that exceed what would be subtracted if k were kept.
    kept = (ordered > excess).sum(-1, keepdim=True)
    return (counts - excess.gather(-1, kept - 1)).clamp_min(0.0)

"""A noisy S shrunk towards a multiple of the identity: what noise explains is taken out.

S̃ = S + N, with N symmetric, of deviation s on the diagonal and s/√2 off it, so that
E‖N‖² = s²d with d = M(M + 1)/2. Around the multiple of the identity with the same trace, μI,

    Ŝ = μI + g(S̃ − μI),    g = (1 − s²d/‖S̃ − μI‖²)₊

is the positive part of [JamesStein61], and for a matrix the shrinkage of [LedoitWolf04]. As a
posterior mean, with entries of S that are normal around μI, its error has the deviation s√g: with
little noise that of the noise, and with much noise the small one that S has around μI at all. But g
is estimated from d numbers, and known to about ±√(2/d): where the noise explains all, g is not 0.
The deviation is that of the larger of both.

For kernels that end in cos and sin, `kernels.noisy.realisable` removes more. It does not know the
weights ω of weighted sums, nor a linear part, whose S is near a multiple of the identity anyway:
its columns are standardised. Only sums and products in a fixed order: the same bits everywhere.
"""

import math

import torch
from torch import Tensor

from kernels.reproducible import norm, number_to_bits, total

_BITS = 16


def shrunk(scatter: Tensor, *, deviation: float) -> tuple[Tensor, float]:
    """Return Ŝ and the deviation of its error, from a symmetric S̃ and s.

    >>> noisy = torch.tensor([[12.0, 1.0], [1.0, 8.0]], dtype=torch.float64)
    >>> shrunk(noisy, deviation=1.0)
    (tensor([[11.4000,  0.7000],
            [ 0.7000,  8.6000]], dtype=torch.float64), 0.903594970703125)
    """
    side = len(scatter)
    centre = max(float(total(scatter.diagonal())) / side, 0.0)
    middle = torch.full((side,), centre, dtype=torch.float64).diag()
    beyond = scatter - middle
    square = norm(beyond) ** 2
    explained = deviation**2 * side * (side + 1) / 2
    gain = max(0.0, 1 - explained / square) if square > 0 else 0.0
    known_to = min(1.0, math.sqrt(2 / (side * (side + 1) / 2)))
    left = deviation * math.sqrt(max(gain, known_to))
    return middle + gain * beyond, number_to_bits(left, _BITS)

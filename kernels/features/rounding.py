"""How far rounding can move a kernel's features: how much the weights amplify float64's last bit.

φ is cos and sin of angles, so ‖φ‖ is bounded for all weights. Its rounding error is not: the cosine
of an angle of 10¹⁷ is determined by the angle's rounding, and the rounding of an angle may depend
on which rows are computed in the same batch (matrix products treat the last rows of a batch
differently). Then adding one row also changes other rows' features, and no declared sensitivity
covers that. Weights of 10³⁰⁸ are worse: angles overflow for some rows and not for others, and a
site that refuses the overflow reveals that it has such rows.

Inputs are within ±CLIP, so the weights alone bound both effects. If |x| ≤ m with error at most e, a
layer of n inputs gives |Wx + b| ≤ |W|m + |b| with error at most |W|e + (n + 2)·u·(|W|m + |b|), and
tanh does not increase errors. An error of δ in an angle moves its cos and sin by at most
min(δ, 2)/√m. The linear part has no angles: its error is a few units in the last place of its norm,
which is bounded (`kernels.features.linear_part`).
"""

import math

import torch
from torch import Tensor

from kernels.features.architectures import RANDOM_FUNCTIONS, Deep, Named, Replicated, Stationary
from kernels.features.linear_part import log_ratio_of, ratio
from kernels.features.spec import Architecture, KernelSpec, Replication
from kernels.features.urk import URK
from kernels.tables.standardiser import CLIP

_UNIT = 2.0**-53
_FINITE = 2.0**900

_Interval = tuple[Tensor, Tensor]
"""The largest absolute value of each number, and its largest error."""


def feature_rounding(kernel: URK) -> float:
    """Return the largest error of φ(x), as a norm, over all standardised x; ∞ if features overflow.

    >>> feature_rounding(URK(KernelSpec(inputs=4))) < 2.0**-30
    True
    """
    main = _main_rounding(kernel.spec, {n: w.detach() for n, w in kernel.named_weights().items()})
    return math.hypot(main, _linear_rounding(kernel))


def _main_rounding(spec: KernelSpec, weights: Named) -> float:
    bound = spec.main_squared_norm
    if bound is None:
        return math.inf
    if spec.architecture is Architecture.LINEAR:
        return 0.0
    function = RANDOM_FUNCTIONS[spec.architecture]
    draws = function.draws(spec)
    if isinstance(function, Deep):
        frequencies, _ = function.frequencies(spec, draws, weights)
        latent = _network(spec, _inputs(spec, function, draws), weights)
    elif isinstance(function, Stationary):
        frequencies = draws["frequencies"]
        scaled = CLIP * (-weights["log_lengthscale"]).exp()
        latent = scaled, _UNIT * scaled
    else:
        return math.inf
    size, error = _layer(frequencies, latent)
    if not bool((size < _FINITE).all()) or not bool(error.isfinite().all()):
        return math.inf
    moved = (error + 4 * _UNIT).clamp_max(2.0).square().mean().sqrt()
    return math.sqrt(bound) * float(moved)


def _linear_rounding(kernel: URK) -> float:
    """Return the error of ρ·u: of p + 1 additions in the norm, and of a few operations more."""
    log_ratio = log_ratio_of(kernel.spec, kernel.weights.detach())
    if log_ratio is None:
        return 0.0
    norm = ratio(log_ratio) * math.sqrt(kernel.spec.linear_squared_norm)
    return (kernel.spec.inputs + 8) * _UNIT * norm


def _inputs(spec: KernelSpec, function: Deep, draws: Named) -> _Interval:
    size = torch.full((spec.inputs,), CLIP, dtype=torch.float64)
    if isinstance(function, Replicated):
        most = spec.replication_scale * draws["copies"].abs().amax(0)
        size = size + most if spec.replication is Replication.ADD else size * (1 + most)
    return size, 2 * _UNIT * size


def _network(spec: KernelSpec, x: _Interval, weights: Named) -> _Interval:
    inner, last = x, len(spec.hidden)
    for layer in range(last):
        size, error = _layer(weights[f"f.{layer}.weight"], inner, weights[f"f.{layer}.bias"])
        # A sum that overflows before tanh may be ∞ − ∞.
        error = torch.where(size < _FINITE, error.clamp_max(2.0) + 4 * _UNIT, math.inf)
        inner = size.clamp_max(1.0), error
    size, error = _layer(weights[f"f.{last}.weight"], inner, weights[f"f.{last}.bias"])
    skipped, skipped_error = _layer(weights["f.skip"], x)
    return size + skipped, error + skipped_error + _UNIT * (size + skipped)


def _layer(weight: Tensor, x: _Interval, bias: Tensor | None = None) -> _Interval:
    matrix, (size, error) = weight.abs(), x
    own = matrix @ size + (0.0 if bias is None else bias.abs())
    return own, matrix @ error + (matrix.shape[1] + 2) * _UNIT * own

"""Newton's steps from noisy sums: S_ω once, then only slopes, which need little noise.

The first sum, at the prior, is of S_ω and b. A posterior that follows from them alone
(`kernels.noisy.noise_aware`) suffers from the noise of S_ω in proportion to ‖w‖, which is 5 to 15
for a logit whose features have norms below 1: more than from the noise of b. A further sum at q,
N(μ, V), therefore has no S_ω, only the slopes

    g = Σ ∂E[log p]/∂m·φ = Σ (κ − ωm)φ ≈ S_ω(w − μ)

so that the noise of S_ω counts in proportion to ‖w − μ‖, and where the slopes vanish does not
depend on it at all. Each row's part is shortened to a norm of at most C, which is their sensitivity
(`kernels.rounds.shared.weighted_sums`).

**What a sum tells** is always an observation of Sw, in the eigenbasis of S with independent errors,

    b = Sw + error,   error of variance Λ + v,   so V⁻¹ = Λ²/(Λ + v) + λ⁻² and μ = V·Λb/(Λ + v)

where Λ is the rows' own variance (σ = 1) and v that of all noise. It is `noise_aware`'s posterior
with v as the noise of b and next to none of S, which is how a layer is held here. With s for the
deviation of the error of S (`kernels.noisy.shrinkage`):

    first sum    b,          v = s_b² + s²λ²(M + 1)/2,   because E‖w‖² = λ²M
    later sums   g + Sμ,     v = s_g² + s²·tr V/2,       because E‖w − μ‖² = tr V

λ follows from b and v (`noise_aware.refit_prior`). Before a later sum, b − Sμ is what the sums
before it say that g is; both are averaged with weights 1/v, so no sum is lost. The former is
extrapolated along a straight line, and what is between them beyond their noise, in the mean of
squares, is its error and is added to its v: with little noise the last sum alone decides.

**The curvature** is not summed again. That of the first sum is where |f| is small; with logits g of
variance c² over rows and q, each row has the share E[s(1 − s)]/(tanh(o/2)/2o) of it, g ~ N(o, c²).
c² = ⟨S_ω, μμᵀ + V⟩/Σω is known, so S is the first one times that share. The slopes are those of a
curve: from μ to the new optimum they change with the mean of the curvatures at both ends, and g is
rescaled by it. For classes, S is divided by `classes.STRIDE` instead. An error in the share makes
steps longer or shorter, and does not move where they end.

**Steps must not be too long.** Where S is too small, a step overshoots; logits then grow, the share
falls, the next step is longer still, and the search diverges. Curvature that is too large only
makes steps shorter. So the share is not below LEAST_SHARE, and later sums use Ŝ + MARGIN·s·I, s for
the deviation of Ŝ's error.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from kernels.errors import StateError
from kernels.layer.refit import RefitOptions
from kernels.layer.statistics import Noise
from kernels.noisy import noise_aware
from kernels.noisy.shrinkage import shrunk
from kernels.outcomes.quadrature import expected
from kernels.outcomes.variational import Layer
from kernels.outcomes.weighted import Weighted
from kernels.reproducible import number_to_bits, on_grid

SHARE_BITS = 6
"""Significant bits of the curvature's share: coarse, and so the same on all machines."""
DEVIATION_BITS = 16
"""Significant bits of √v."""
LEAST_SHARE = 0.8
"""The least share of the first sum's curvature that is used."""
MARGIN = 2.0
"""By how many deviations of its error the curvature of later sums is larger."""
_CROSS_BITS = 14
"""b is rounded to so many bits below √v."""
_PASSES = 2
"""The share depends on the new q, which depends on the share."""
_NOTHING = 2.0**-20
"""The deviation of S that a layer is held with, of that which counts in its v."""


@dataclass(frozen=True, eq=False)
class Curvature:
    """S_ω of the first sum, of each latent function, and how it is used now.

    scatters: Ŝ with its margin, (M, M) each. deviations: s of each. weight: Σω of the first sum,
    about. share: the layers' S is this times Ŝ.
    """

    STORED_AS: ClassVar[str] = "outcome.curvature"

    scatters: tuple[Tensor, ...]
    deviations: tuple[float, ...]
    weight: float
    share: float = 1.0

    def __post_init__(self) -> None:
        numbers = (*self.deviations, self.weight, self.share)
        if not all(isinstance(own, float) and 0 < own < math.inf for own in numbers):
            raise StateError("numbers of a curvature must be positive and finite")
        if len(self.scatters) != len(self.deviations):
            raise StateError("a curvature must have one deviation for each S")


@dataclass(frozen=True)
class Logits:
    """The kinds whose curvature shrinks where |f| is large: all but classes. offset: o."""

    offset: float

    def share(self, variance: float) -> float:
        """Return E[s(1 − s)]/(tanh(o/2)/2o) for logits of this variance around o, within reason.

        >>> Logits(0.0).share(0.0), Logits(0.0).share(0.5), Logits(-2.0).share(4.0)
        (1.0, 0.90625, 0.8)
        """
        spread = torch.tensor([variance], dtype=torch.float64)
        centre = torch.tensor([self.offset], dtype=torch.float64)
        found = expected(lambda g: torch.sigmoid(g) * torch.sigmoid(-g), centre, spread)
        share = number_to_bits(float(found) / first_weight(self.offset), SHARE_BITS)
        return max(share, LEAST_SHARE)


@dataclass(frozen=True)
class Constant:
    """A kind whose curvature is taken as a constant share of the first sum's."""

    of_first: float

    def share(self, _variance: float) -> float:
        """Return the share, whatever the variance."""
        return self.of_first


def first_weight(offset: float) -> float:
    """Return ω of a trial in the first sum: tanh(o/2)/2o."""
    o = max(abs(offset), 1e-3)
    return math.tanh(o / 2) / (2 * o)


def first(
    layers: Sequence[Layer],
    totals: Sequence[Weighted],
    *,
    weight: float,
    options: RefitOptions | None = None,
) -> tuple[tuple[Layer, ...], Curvature]:
    """Return the layers after the first sum, of S_ω and b, and the curvature for later ones.

    weight: Σω, about: the number of trials times `first_weight`.
    """
    repaired, deviations = [], []
    for own in totals:
        noise = _noise(own)
        scatter, left = shrunk(own.scatter, deviation=noise.scatter)
        repaired.append(replace(own, scatter=scatter, noise=replace(noise, scatter=left)))
        deviations.append(left)
    # Here v depends on λ, as `noise_aware` has it.
    prior = noise_aware.refit_prior([own.as_statistics() for own in repaired], options)
    found = []
    for layer, own, left in zip(layers, repaired, deviations, strict=True):
        squares = prior * (own.features + 1)
        variance = _noise(own).cross ** 2 + left**2 * squares / 2
        sums = _held(own, own.scatter, own.cross, variance, left)
        found.append(replace(layer, sums=sums, prior_variance=prior))
    scatters = tuple(
        own.scatter + MARGIN * left * torch.eye(own.features, dtype=torch.float64)
        for own, left in zip(repaired, deviations, strict=True)
    )
    return tuple(found), Curvature(scatters, tuple(deviations), weight)


def refined(
    layers: Sequence[Layer],
    curvature: Curvature,
    slopes: Sequence[Tensor],
    *,
    deviation: float,
    kind: Logits | Constant,
    options: RefitOptions | None = None,
) -> tuple[tuple[Layer, ...], Curvature]:
    """Return the layers after the slopes, (M,) each, that were summed at them.

    deviation: s_g, of the noise in each element of the slopes.
    """
    here = _share(layers, curvature, kind)
    share, found = here, tuple(layers)
    for _ in range(_PASSES):
        parts = [
            _observed(*each, before=curvature.share, here=here, share=share, deviation=deviation)
            for each in zip(layers, curvature.scatters, curvature.deviations, slopes, strict=True)
        ]
        prior = noise_aware.refit_prior([own.as_statistics() for own in parts], options)
        found = tuple(
            replace(layer, sums=own, prior_variance=prior)
            for layer, own in zip(layers, parts, strict=True)
        )
        used, share = share, _share(found, curvature, kind)
    return found, replace(curvature, share=used)


def _share(layers: Sequence[Layer], curvature: Curvature, kind: Logits | Constant) -> float:
    """Return the curvature at q relative to the first sum's."""
    squares = 0.0
    for layer, scatter in zip(layers, curvature.scatters, strict=True):
        second = layer.covariance + layer.mean.outer(layer.mean)
        squares += float((scatter * second).sum())
    return kind.share(max(squares, 0.0) / curvature.weight)


def _observed(
    layer: Layer,
    scatter: Tensor,
    left: float,
    slope: Tensor,
    *,
    before: float,
    here: float,
    share: float,
    deviation: float,
) -> Weighted:
    """Return b and v after a sum of slopes, for S = share·Ŝ.

    before: the share that the layer is held with. here: that at the layer's q.
    """
    mean, own = layer.mean, layer.sums
    expected_slope = own.cross - own.scatter @ mean
    old = share / before
    new = share / ((share + here) / 2)
    spread = float(layer.posterior.variances[:, 0].sum())
    old_variance = (old * _noise(own).cross) ** 2
    new_variance = (new * deviation) ** 2 + (share * left) ** 2 * spread / 2
    apart = float((old * expected_slope - new * slope).square().mean())
    old_variance += max(0.0, apart - old_variance - new_variance)
    trust = old_variance / (old_variance + new_variance)
    curved = share * scatter
    cross = (1 - trust) * old * expected_slope + trust * new * slope + curved @ mean
    return _held(own, curved, cross, trust * new_variance, share * left)


def _held(own: Weighted, scatter: Tensor, cross: Tensor, variance: float, left: float) -> Weighted:
    """Return sums with all noise in that of b, rounded."""
    deviation = number_to_bits(math.sqrt(variance), DEVIATION_BITS)
    step = math.ldexp(1.0, math.frexp(deviation)[1] - _CROSS_BITS)
    noise = replace(_noise(own), scatter=_NOTHING * left, cross=deviation)
    return replace(own, scatter=scatter, cross=on_grid(cross, step), noise=noise)


def _noise(own: Weighted) -> Noise:
    if own.noise is None:
        raise StateError("sums of a private run must have noise")
    return own.noise

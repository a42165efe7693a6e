"""The linear part of a kernel, alone or beside another architecture: features ρ·u(x).

    u(x) = [v·min(1, r/‖v‖), 1/√(p + 1)]    with v = x/√(p + 1)

so the kernel is ρ²(xᵀx' + 1)/(p + 1): Bayesian linear regression with an intercept. For
standardised x, ‖u‖² is about 1, as ‖φ‖² is for cos and sin. Features side by side are a sum of
kernels, and ρ is the ratio of the linear part to the other one. Medical tables are nearly linear:
the linear part then explains most, and the other part only what is left.

Rows far outside are moved onto the sphere of the radius r, with and without differential privacy: a
row then has a bounded norm, ‖u‖² ≤ r² + 1/(p + 1), which noise can cover. The constant is the same
for every row, so rows can be counted by it. A radius of .8 moves the outer tenth of the rows of a
table of yes/no columns and levels, whose ‖v‖ is about .6; r² is then an eighth of that of r = 2,
and so is the noise of S.

ρ = exp(log_ratio) is one weight, the last of the flat vector, trained as any other. log_ratio
counts only within ±MOST_LOG_RATIO, so that features are bounded for all weights.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.features.architectures import (
    RANDOM_FUNCTIONS,
    Features,
    Named,
    Pullback,
    RandomFunction,
    Shapes,
)
from kernels.features.inducing import Inducing
from kernels.features.spec import MOST_LOG_RATIO, Architecture, KernelSpec
from kernels.reproducible import exp

_NAME = "log_ratio"


def random_function(spec: KernelSpec) -> RandomFunction:
    """Return the architecture's g, with the linear part beside it if the spec says so."""
    if spec.architecture is Architecture.LINEAR:
        return _LINEAR
    inducing = spec.architecture is Architecture.INDUCING
    main = _INDUCING if inducing else RANDOM_FUNCTIONS[spec.architecture]
    return Beside(main) if spec.linear_part else main


def ratio(log_ratio: float) -> float:
    """Return ρ at a log_ratio, the same on every machine."""
    within = min(max(log_ratio, -MOST_LOG_RATIO), MOST_LOG_RATIO)
    return float(exp(torch.tensor(within, dtype=torch.float64)))


def log_ratio_of(spec: KernelSpec, weights: Tensor) -> float | None:
    """Return log_ratio in a flat vector of weights, or None for a kernel without a linear part."""
    return float(weights[-1]) if spec.linear_features else None


def with_log_ratio(weights: Tensor, log_ratio: float) -> Tensor:
    """Return the flat vector of weights with another log_ratio."""
    return torch.cat([weights[:-1], weights.new_tensor([log_ratio])])


def squared_norm_at(spec: KernelSpec, weights: Tensor) -> float | None:
    """Return a bound on ‖φ(x)‖² that holds for all x at these weights, if there is one.

    Without a linear part it is `spec.squared_norm_bound`; with one, it is far below that bound,
    which is for all ρ.
    """
    main, log_ratio = spec.main_squared_norm_bound, log_ratio_of(spec, weights)
    if main is None or log_ratio is None:
        return main
    return main + spec.linear_squared_norm * ratio(log_ratio) ** 2


def coordinates(x: Tensor, *, radius: float) -> Tensor:
    """Return u of x (…, rows, p), (…, rows, p + 1)."""
    root = math.sqrt(x.shape[-1] + 1)
    scaled = x / root
    # Of the least norm r rather than a factor of at most 1: its slope is finite at x = 0.
    norm = scaled.norm(dim=-1, keepdim=True).clamp_min(radius)
    constant = scaled.new_full((*x.shape[:-1], 1), 1 / root)
    return torch.cat([scaled * (radius / norm), constant], dim=-1)


class Linear:
    """The linear part alone: ρ·u(x). It has no random draws."""

    def draws(self, spec: KernelSpec) -> Named:
        return {}

    def shapes(self, spec: KernelSpec) -> Shapes:
        return {_NAME: (1,)}

    def start(self, spec: KernelSpec) -> Named:
        return {_NAME: torch.zeros(1, dtype=torch.float64)}

    def features(self, spec: KernelSpec, draws: Named, weights: Named) -> Features:
        log_ratio = weights[_NAME]
        within = log_ratio.clamp(-MOST_LOG_RATIO, MOST_LOG_RATIO)
        scale, free = within.exp(), (within == log_ratio).to(log_ratio.dtype)

        def features(x: Tensor) -> tuple[Tensor, Pullback]:
            phi = coordinates(x, radius=spec.radius) * scale

            def pullback(gradient: Tensor) -> Named:
                return {_NAME: (gradient * phi).sum(-2).sum(-1, keepdim=True) * free}

            return phi, pullback

        return features


_LINEAR, _INDUCING = Linear(), Inducing()


@dataclass(frozen=True)
class Beside:
    """Another architecture's features, and the linear part beside them: [φ_main(x), ρ·u(x)]."""

    main: RandomFunction

    def draws(self, spec: KernelSpec) -> Named:
        return self.main.draws(spec)

    def shapes(self, spec: KernelSpec) -> Shapes:
        return {**self.main.shapes(spec), **_LINEAR.shapes(spec)}

    def start(self, spec: KernelSpec) -> Named:
        return {**self.main.start(spec), **_LINEAR.start(spec)}

    def features(self, spec: KernelSpec, draws: Named, weights: Named) -> Features:
        main = self.main.features(spec, draws, weights)
        linear = _LINEAR.features(spec, {}, weights)

        def features(x: Tensor) -> tuple[Tensor, Pullback]:
            (phi, main_pullback), (u, linear_pullback) = main(x), linear(x)

            def pullback(gradient: Tensor) -> Named:
                first = main_pullback(gradient[..., : phi.shape[-1]])
                return {**first, **linear_pullback(gradient[..., phi.shape[-1] :])}

            return torch.cat([phi, u], dim=-1), pullback

        return features

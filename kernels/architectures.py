"""g(ω, x) of each architecture: its random draws, its weights, and m samples of it.

Every class here is one row of 004 §3.1 and answers the same four questions, given a spec:

    draws(spec)           what is random: hashes of the seed, shared by all parties, never trained
    shapes(spec)          names and shapes of the weights, in the order of the flat vector
    start(spec)           where the weights start: hashes of the seed too
    samples(x, ω, θ)      z_ω(x) for all m draws, flattened to (rows, M), not yet normalised

Features stand coordinate by coordinate: the first coordinate of z for all m samples, then the
second. That is eq. 3.2's concatenation up to a permutation, which no kernel value depends on.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from kernels.hashed import normals, uniforms
from kernels.spec import Architecture, Ending, KernelSpec, Replication

Named = Mapping[str, Tensor]
Shapes = Mapping[str, tuple[int, ...]]


class RandomFunction(Protocol):
    """One architecture's g."""

    def draws(self, spec: KernelSpec) -> Named:
        """Return the random numbers, float64, by name."""

    def shapes(self, spec: KernelSpec) -> Shapes:
        """Return the weights' shapes in the order of the flat vector."""

    def start(self, spec: KernelSpec) -> Named:
        """Return the starting weights, float64."""

    def samples(self, spec: KernelSpec, x: Tensor, draws: Named, weights: Named) -> Tensor:
        """Map x (rows, p) to the m samples (rows, M)."""


def _fourier(angles: Tensor) -> Tensor:
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


class _Scaled:
    """What the classical kernels share: one log lengthscale per input, x/ℓ instead of x."""

    def shapes(self, spec: KernelSpec) -> Shapes:
        return {"log_lengthscale": (spec.inputs,)}

    def start(self, spec: KernelSpec) -> Named:
        level = math.log(spec.lengthscale)
        return {"log_lengthscale": torch.full((spec.inputs,), level, dtype=torch.float64)}

    @staticmethod
    def scale(x: Tensor, weights: Named) -> Tensor:
        return x * (-weights["log_lengthscale"]).exp()


@dataclass(frozen=True)
class Stationary(_Scaled):
    """Theorem 3: [cos ωᵀx, sin ωᵀx] with ω from the kernel's spectral density.

    RBF: ω ~ N(0, I). Matérn-ν: ω ~ Student-t with 2ν degrees of freedom, that is a normal over
    √(χ²/2ν), and χ² is a sum of 2ν squared normals.
    """

    degrees_of_freedom: int | None = None

    def draws(self, spec: KernelSpec) -> Named:
        omega = normals(spec.seed, "frequencies", spec.samples, spec.inputs)
        if self.degrees_of_freedom is not None:
            squares = normals(spec.seed, "chi-square", spec.samples, self.degrees_of_freedom) ** 2
            mean_square = squares.mean(dim=1, keepdim=True).clamp_min(2.0**-60)
            omega = omega / mean_square.sqrt()
        return {"frequencies": omega}

    def samples(self, spec: KernelSpec, x: Tensor, draws: Named, weights: Named) -> Tensor:
        return _fourier(self.scale(x, weights) @ draws["frequencies"].T)


class Exponential(_Scaled):
    """Theorem 4: exp ωᵀx, ω ~ N(0, I), whose kernel is exp(‖x + x'‖²/2).

    Its variance is exp(2‖x + x'‖²) − exp(‖x + x'‖²): good for small ‖x‖ only.
    """

    def draws(self, spec: KernelSpec) -> Named:
        return {"frequencies": normals(spec.seed, "frequencies", spec.samples, spec.inputs)}

    def samples(self, spec: KernelSpec, x: Tensor, draws: Named, weights: Named) -> Tensor:
        return (self.scale(x, weights) @ draws["frequencies"].T).exp()


class Polynomial(_Scaled):
    """Theorem 5: Π x̄_i^ω_i with x̄ = [√(2c), √(2p)·x] and ω ~ Multinomial(n, [½, 1/2p, …]).

    The thesis writes exp(ωᵀ log x̄), which has no meaning for x < 0. A multinomial count is n
    independent picks of a coordinate, so the product of the picked coordinates is the same
    function where both exist, and keeps the sign where only it does.
    """

    def draws(self, spec: KernelSpec) -> Named:
        picks = uniforms(spec.seed, "coordinates", spec.samples, spec.degree)
        coordinate = 1 + ((picks - 0.5) * 2 * spec.inputs).floor().clamp(0, spec.inputs - 1)
        return {"coordinates": torch.where(picks < 0.5, 0, coordinate).long()}

    def samples(self, spec: KernelSpec, x: Tensor, draws: Named, weights: Named) -> Tensor:
        scaled = math.sqrt(2 * spec.inputs) * self.scale(x, weights)
        offset = scaled.new_full((len(x), 1), math.sqrt(2 * spec.offset))
        extended = torch.cat([offset, scaled], dim=1)
        product = extended[:, draws["coordinates"][:, 0]]
        for pick in draws["coordinates"].T[1:]:
            product = product * extended[:, pick]
        return product


class Deep:
    """cos and sin of ωᵀf(x): a network f before random Fourier features (fig. 3.1, middle).

    f(x) = Vx + W_L tanh(… tanh(W_1 x + b_1) …) + b_L: tanh layers beside a linear skip, so that a
    linear trend in x needs no training.
    """

    def draws(self, spec: KernelSpec) -> Named:
        return {"frequencies": normals(spec.seed, "frequencies", spec.samples, spec.latent)}

    def shapes(self, spec: KernelSpec) -> Shapes:
        widths = (spec.inputs, *spec.hidden, spec.latent)
        shapes: dict[str, tuple[int, ...]] = {}
        for layer, (fan_in, fan_out) in enumerate(pairwise(widths)):
            shapes[f"f.{layer}.weight"] = (fan_out, fan_in)
            shapes[f"f.{layer}.bias"] = (fan_out,)
        shapes["f.skip"] = (spec.latent, spec.inputs)
        return shapes

    def start(self, spec: KernelSpec) -> Named:
        return {name: self._start(spec, name, shape) for name, shape in self.shapes(spec).items()}

    @staticmethod
    def _start(spec: KernelSpec, name: str, shape: tuple[int, ...]) -> Tensor:
        if len(shape) == 1:
            return torch.zeros(shape, dtype=torch.float64)
        return normals(spec.seed, f"weights/{name}", *shape) / math.sqrt(shape[1])

    @staticmethod
    def network(spec: KernelSpec, x: Tensor, weights: Named) -> Tensor:
        """Return f(x) of shape (…, latent) for x of shape (…, p)."""
        hidden = x
        for layer in range(len(spec.hidden) + 1):
            if layer:
                hidden = hidden.tanh()
            hidden = torch.nn.functional.linear(
                hidden, weights[f"f.{layer}.weight"], weights[f"f.{layer}.bias"]
            )
        return hidden + torch.nn.functional.linear(x, weights["f.skip"])

    def frequencies(self, spec: KernelSpec, draws: Named, weights: Named) -> Tensor:
        """Return the frequencies (m, latent), scaled so that the kernel starts smooth."""
        return draws["frequencies"] * (spec.frequency_scale / math.sqrt(spec.latent))

    def samples(self, spec: KernelSpec, x: Tensor, draws: Named, weights: Named) -> Tensor:
        frequencies = self.frequencies(spec, draws, weights)
        return _fourier(self.network(spec, x, weights) @ frequencies.T)


class Shifted(Deep):
    """cos and sin of h(ω)ᵀf(x), with h a trained map of ω ~ N(0, I_5) (fig. 3.1, right).

    h(ω) = Lω + W₂ tanh(W₁ω + b₁) + b₂ has the identity in its family (L = I, W₂ = 0) when ω has as
    many coordinates as f, so the Gaussian kernel on f(x) is never lost. L starts as the identity,
    its rows repeated when f has more coordinates than ω, and W₂ starts small.
    """

    def draws(self, spec: KernelSpec) -> Named:
        return {"frequencies": normals(spec.seed, "frequencies", spec.samples, spec.shifter_inputs)}

    def shapes(self, spec: KernelSpec) -> Shapes:
        return {
            **super().shapes(spec),
            "h.0.weight": (spec.shifter_hidden, spec.shifter_inputs),
            "h.0.bias": (spec.shifter_hidden,),
            "h.1.weight": (spec.latent, spec.shifter_hidden),
            "h.1.bias": (spec.latent,),
            "h.skip": (spec.latent, spec.shifter_inputs),
        }

    def start(self, spec: KernelSpec) -> Named:
        weights = dict(super().start(spec))
        weights["h.1.weight"] = weights["h.1.weight"] * 0.1
        repeated = torch.arange(spec.latent) % spec.shifter_inputs
        weights["h.skip"] = torch.eye(spec.shifter_inputs, dtype=torch.float64)[repeated]
        return weights

    def frequencies(self, spec: KernelSpec, draws: Named, weights: Named) -> Tensor:
        linear = torch.nn.functional.linear
        omega = draws["frequencies"]
        bent = linear(omega, weights["h.0.weight"], weights["h.0.bias"]).tanh()
        shifted = linear(bent, weights["h.1.weight"], weights["h.1.bias"])
        shifted = shifted + linear(omega, weights["h.skip"])
        return shifted * (spec.frequency_scale / math.sqrt(spec.latent))


class Replicated(Deep):
    """f of m randomised copies of x (fig. 3.2, left): x + rω or x ⊙ (1 + rω).

    With the Fourier ending each copy is then seen along its own random direction,
    [cos ω'ᵀf(x̃), sin ω'ᵀf(x̃)]; with the linear ending z is f(x̃) itself. No weights beyond f's.
    """

    def draws(self, spec: KernelSpec) -> Named:
        copies = normals(spec.seed, "copies", spec.samples, spec.inputs)
        return {**super().draws(spec), "copies": copies}

    def samples(self, spec: KernelSpec, x: Tensor, draws: Named, weights: Named) -> Tensor:
        noise = spec.replication_scale * draws["copies"]
        rows = x.unsqueeze(1)  # (rows, 1, p) against (m, p)
        copies = rows + noise if spec.replication is Replication.ADD else rows * (1 + noise)
        latent = self.network(spec, copies, weights)  # (rows, m, latent)
        if spec.ending is Ending.LINEAR:
            return latent.transpose(1, 2).flatten(1)
        return _fourier((latent * self.frequencies(spec, draws, weights)).sum(-1))


RANDOM_FUNCTIONS: Mapping[Architecture, RandomFunction] = {
    Architecture.RBF: Stationary(),
    Architecture.MATERN12: Stationary(degrees_of_freedom=1),
    Architecture.MATERN32: Stationary(degrees_of_freedom=3),
    Architecture.MATERN52: Stationary(degrees_of_freedom=5),
    Architecture.EXPONENTIAL: Exponential(),
    Architecture.POLYNOMIAL: Polynomial(),
    Architecture.DEEP: Deep(),
    Architecture.SHIFTED: Shifted(),
    Architecture.REPLICATED: Replicated(),
}

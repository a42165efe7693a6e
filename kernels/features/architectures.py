"""g(ω, x) of each architecture: its random draws, its weights, and the features of m samples.

Every class here is one row of [FedBNR] §3.1 and has the same four methods, given a spec:

    draws(spec)           the random numbers: hashes of the seed, shared by all parties, not trained
    shapes(spec)          names and shapes of the weights, in the order of the flat vector
    start(spec)           the starting weights, also hashes of the seed
    features(ω, θ)        the function φ: z_ω(x) for all m draws, flattened to (rows, M) and
                          normalised; and its pullback, the map from ∂/∂φ to ∂/∂θ

A pullback computes what autograd would, written out by hand: for the few rows of a hospital,
autograd's bookkeeping costs more than the arithmetic. Features are also differentiable by autograd.

Features are ordered by coordinate: the first coordinate of z for all m samples, then the second.
This is the concatenation of [FedBNR] eq. 3.2 up to a permutation, on which no kernel value depends.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear, one_hot

from kernels.features.seeded_random import normals, uniforms
from kernels.features.spec import Architecture, Ending, KernelSpec, Replication
from kernels.reproducible import near

Named = Mapping[str, Tensor]
Shapes = Mapping[str, tuple[int, ...]]
Pullback = Callable[[Tensor], Named]
"""The map from the gradient of an output to the gradients of the weights, by name."""
Features = Callable[[Tensor], tuple[Tensor, Pullback]]
"""The map from x (…, rows, p) to φ(x) (…, rows, M) and the pullback.

Each index of the dimensions before the rows is a separate table, and the pullback returns a
gradient for each table. With tables of one row, this is a gradient for each row.
"""


class RandomFunction(Protocol):
    """One architecture's g."""

    def draws(self, spec: KernelSpec) -> Named:
        """Return the random numbers, float64, by name."""

    def shapes(self, spec: KernelSpec) -> Shapes:
        """Return the weights' shapes in the order of the flat vector."""

    def start(self, spec: KernelSpec) -> Named:
        """Return the starting weights, float64."""

    def features(self, spec: KernelSpec, draws: Named, weights: Named) -> Features:
        """Return φ at these weights; what does not depend on x is computed here, once for all x."""


def _root(spec: KernelSpec) -> float:
    """Return the divisor of the samples, √m or √(m − 1)."""
    return math.sqrt(spec.normalising_square)


def _fourier(spec: KernelSpec, angles: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return normalised cos and sin of (rows, m) angles, and the pullback to the angles."""
    features = torch.cat([angles.cos(), angles.sin()], dim=-1).div_(_root(spec))

    def pullback(gradient: Tensor) -> Tensor:
        cosines, sines = features.chunk(2, dim=-1)
        of_cosines, of_sines = gradient.chunk(2, dim=-1)
        return (of_sines * cosines).addcmul_(of_cosines, sines, value=-1)

    return features, pullback


def _through_tanh(gradient: Tensor, output: Tensor) -> Tensor:
    """Pull a gradient back through a tanh with this output, in place: times 1 − tanh²."""
    return gradient.addcmul_(gradient * output, output, value=-1)


def starting_lengthscale(spec: KernelSpec) -> Tensor:
    """Return the logarithm of the spec's lengthscale for each input, (p,)."""
    level = near(math.log(spec.lengthscale), 2.0**-40)  # the same with every libm
    return torch.full((spec.inputs,), level, dtype=torch.float64)


class _Scaled:
    """The common part of the classical kernels: one log lengthscale per input, x/ℓ instead of x."""

    def shapes(self, spec: KernelSpec) -> Shapes:
        return {"log_lengthscale": (spec.inputs,)}

    def start(self, spec: KernelSpec) -> Named:
        return {"log_lengthscale": starting_lengthscale(spec)}

    @staticmethod
    def scaling(weights: Named) -> Features:
        inverse = (-weights["log_lengthscale"]).exp()

        def scale(x: Tensor) -> tuple[Tensor, Pullback]:
            scaled = x * inverse
            return scaled, lambda gradient: {"log_lengthscale": -(gradient * scaled).sum(-2)}

        return scale


@dataclass(frozen=True)
class Stationary(_Scaled):
    """Theorem 3: [cos ωᵀx, sin ωᵀx] with ω from the kernel's spectral density.

    RBF: ω ~ N(0, I). Matérn-ν: ω ~ Student-t with 2ν degrees of freedom, that is, a normal divided
    by √(χ²/2ν), where χ² is a sum of 2ν squared normals.
    """

    degrees_of_freedom: int | None = None

    def draws(self, spec: KernelSpec) -> Named:
        omega = normals(spec.seed, "frequencies", spec.samples, spec.inputs)
        if self.degrees_of_freedom is not None:
            squares = normals(spec.seed, "chi-square", spec.samples, self.degrees_of_freedom) ** 2
            mean_square = squares.mean(dim=1, keepdim=True).clamp_min(2.0**-60)
            omega = omega / mean_square.sqrt()
        return {"frequencies": omega}

    def features(self, spec: KernelSpec, draws: Named, weights: Named) -> Features:
        scale, omega = self.scaling(weights), draws["frequencies"]

        def features(x: Tensor) -> tuple[Tensor, Pullback]:
            scaled, scale_pullback = scale(x)
            phi, angles_pullback = _fourier(spec, scaled @ omega.T)
            return phi, lambda gradient: scale_pullback(angles_pullback(gradient) @ omega)

        return features


class Exponential(_Scaled):
    """Theorem 4: exp ωᵀx, ω ~ N(0, I), whose kernel is exp(‖x + x'‖²/2).

    Its variance is exp(2‖x + x'‖²) − exp(‖x + x'‖²), so it is useful only for small ‖x‖.
    """

    def draws(self, spec: KernelSpec) -> Named:
        return {"frequencies": normals(spec.seed, "frequencies", spec.samples, spec.inputs)}

    def features(self, spec: KernelSpec, draws: Named, weights: Named) -> Features:
        scale, omega = self.scaling(weights), draws["frequencies"]

        def features(x: Tensor) -> tuple[Tensor, Pullback]:
            scaled, scale_pullback = scale(x)
            phi = (scaled @ omega.T).exp() / _root(spec)
            return phi, lambda gradient: scale_pullback((gradient * phi) @ omega)

        return features


class Polynomial(_Scaled):
    """Theorem 5: Π x̄_i^ω_i with x̄ = [√(2c), √(2p)·x] and ω ~ Multinomial(n, [½, 1/2p, …]).

    [FedBNR] writes exp(ωᵀ log x̄), which is undefined for x < 0. A multinomial count is n
    independent picks of a coordinate, so the product of the picked coordinates is the same
    function where both are defined, and has the right sign where exp(ωᵀ log x̄) is undefined.
    """

    def draws(self, spec: KernelSpec) -> Named:
        picks = uniforms(spec.seed, "coordinates", spec.samples, spec.degree)
        coordinate = 1 + ((picks - 0.5) * 2 * spec.inputs).floor().clamp(0, spec.inputs - 1)
        return {"coordinates": torch.where(picks < 0.5, 0, coordinate).long()}

    def features(self, spec: KernelSpec, draws: Named, weights: Named) -> Features:
        scale, coordinates = self.scaling(weights), draws["coordinates"]

        def features(x: Tensor) -> tuple[Tensor, Pullback]:
            scaled = math.sqrt(2 * spec.inputs) * scale(x)[0]
            offset = scaled.new_full((*x.shape[:-1], 1), math.sqrt(2 * spec.offset))
            extended = torch.cat([offset, scaled], dim=-1)
            product = extended[..., coordinates[:, 0]]
            for pick in coordinates.T[1:]:
                product = product * extended[..., pick]
            phi = product / _root(spec)

            def pullback(gradient: Tensor) -> Named:
                # ∂z/∂log ℓ_i = −ω_i·z: each of the ω_i picks of x_i has a factor 1/ℓ_i.
                counts = one_hot(coordinates, spec.inputs + 1).sum(1)[:, 1:]
                return {"log_lengthscale": -(gradient * phi).sum(-2) @ counts.to(phi.dtype)}

            return phi, pullback

        return features


class Deep:
    """cos and sin of ωᵀf(x): a network f before random Fourier features (fig. 3.1, middle).

    f(x) = Vx + W_L tanh(… tanh(W_1 x + b_1) …) + b_L: tanh layers plus a linear skip connection,
    so that a linear trend in x needs no training.
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
    def network(spec: KernelSpec, x: Tensor, weights: Named) -> tuple[Tensor, Pullback]:
        """Return f(x) of shape (…, rows, latent) for x of shape (…, rows, p), and its pullback."""
        inputs = [x]  # the input of each layer
        for layer in range(len(spec.hidden)):
            inputs.append(
                linear(inputs[-1], weights[f"f.{layer}.weight"], weights[f"f.{layer}.bias"]).tanh()
            )
        last = len(spec.hidden)
        hidden = linear(inputs[-1], weights[f"f.{last}.weight"], weights[f"f.{last}.bias"])

        def pullback(gradient: Tensor) -> Named:
            found = {"f.skip": gradient.mT @ x}
            for layer in range(last, -1, -1):
                entering = inputs[layer]
                found[f"f.{layer}.weight"] = gradient.mT @ entering
                found[f"f.{layer}.bias"] = gradient.sum(-2)
                if layer:
                    gradient = _through_tanh(gradient @ weights[f"f.{layer}.weight"], entering)
            return found

        return hidden + linear(x, weights["f.skip"]), pullback

    def frequencies(
        self, spec: KernelSpec, draws: Named, weights: Named
    ) -> tuple[Tensor, Pullback]:
        """Return the frequencies (m, latent), scaled so that the kernel starts smooth."""
        scale = spec.frequency_scale / math.sqrt(spec.latent)
        return draws["frequencies"] * scale, lambda _: {}

    def features(self, spec: KernelSpec, draws: Named, weights: Named) -> Features:
        frequencies, frequencies_pullback = self.frequencies(spec, draws, weights)

        def features(x: Tensor) -> tuple[Tensor, Pullback]:
            latent, network_pullback = self.network(spec, x, weights)
            phi, angles_pullback = _fourier(spec, latent @ frequencies.T)

            def pullback(gradient: Tensor) -> Named:
                angles = angles_pullback(gradient)
                return {
                    **network_pullback(angles @ frequencies),
                    **frequencies_pullback(angles.mT @ latent),
                }

            return phi, pullback

        return features


class Shifted(Deep):
    """cos and sin of h(ω)ᵀf(x), with h a trained map of ω ~ N(0, I_5) (fig. 3.1, right).

    h(ω) = Lω + W₂ tanh(W₁ω + b₁) + b₂ includes the identity (L = I, W₂ = 0) when ω has as many
    coordinates as f, so the Gaussian kernel on f(x) is always one of the possible kernels. L starts
    as the identity, with its rows repeated if f has more coordinates than ω, and W₂ starts small.
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

    def frequencies(
        self, spec: KernelSpec, draws: Named, weights: Named
    ) -> tuple[Tensor, Pullback]:
        omega, scale = draws["frequencies"], spec.frequency_scale / math.sqrt(spec.latent)
        bent = linear(omega, weights["h.0.weight"], weights["h.0.bias"]).tanh()
        shifted = linear(bent, weights["h.1.weight"], weights["h.1.bias"])
        shifted = shifted + linear(omega, weights["h.skip"])

        def pullback(gradient: Tensor) -> Named:
            gradient = gradient * scale
            before = _through_tanh(gradient @ weights["h.1.weight"], bent)
            return {
                "h.0.weight": before.mT @ omega,
                "h.0.bias": before.sum(-2),
                "h.1.weight": gradient.mT @ bent,
                "h.1.bias": gradient.sum(-2),
                "h.skip": gradient.mT @ omega,
            }

        return shifted * scale, pullback


class Replicated(Deep):
    """f of m randomised copies of x (fig. 3.2, left): x + rω or x ⊙ (1 + rω).

    With the Fourier ending each copy is projected on its own random direction,
    [cos ω'ᵀf(x̃), sin ω'ᵀf(x̃)]; with the linear ending z is f(x̃). The only weights are those of f.
    """

    def draws(self, spec: KernelSpec) -> Named:
        copies = normals(spec.seed, "copies", spec.samples, spec.inputs)
        return {**super().draws(spec), "copies": copies}

    def features(self, spec: KernelSpec, draws: Named, weights: Named) -> Features:
        noise = spec.replication_scale * draws["copies"]
        frequencies, _ = self.frequencies(spec, draws, weights)

        def features(x: Tensor) -> tuple[Tensor, Pullback]:
            rows = x.unsqueeze(-2)  # (…, rows, 1, p) against (m, p)
            copies = rows + noise if spec.replication is Replication.ADD else rows * (1 + noise)
            flat, network_pullback = self.network(spec, copies.flatten(-3, -2), weights)
            latent = flat.reshape(*x.shape[:-1], spec.samples, -1)  # (…, rows, m, latent)

            def pullback(gradient: Tensor) -> Named:
                return network_pullback(gradient.flatten(-3, -2))

            if spec.ending is Ending.LINEAR:
                coordinates = latent.mT  # (…, rows, latent, m)
                return coordinates.flatten(-2) / _root(spec), lambda gradient: pullback(
                    gradient.reshape(coordinates.shape).mT / _root(spec)
                )
            phi, angles_pullback = _fourier(spec, (latent * frequencies).sum(-1))
            return phi, lambda gradient: pullback(
                angles_pullback(gradient).unsqueeze(-1) * frequencies
            )

        return features


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
"""All but the linear kernel, which `kernels.features.linear_part` has, beside any of these, and the
one that is not random (`kernels.features.inducing`)."""

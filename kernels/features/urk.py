"""The unifying random kernel ([FedBNR] §3.1): k(x, x') ≈ φ(x)ᵀφ(x') for any g and any p(ω).

φ(x) = [g(ω₁, x), …, g(ω_m, x)] / √m (or √(m − 1), its eq. 3.2), so the Gram matrix ΦΦᵀ is positive
semi-definite for every g (theorem 6), and a Gaussian process with this kernel is a Bayesian
linear layer on φ.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from gpytorch.kernels import Kernel
from linear_operator.operators import (
    LowRankRootLinearOperator,
    MatmulLinearOperator,
    RootLinearOperator,
)
from torch import Tensor
from torch.nn.functional import pad

from kernels.errors import EmptyTable, NotFinite, WeightsError, WrongShape
from kernels.features.architectures import Features, Shapes
from kernels.features.linear_part import random_function
from kernels.features.spec import KernelSpec
from kernels.tables.chunks import chunks


def weight_shapes(spec: KernelSpec) -> Shapes:
    """Return the names and shapes of a kernel's weights in the order of the flat vector.

    Each array is stored row by row; the flat vector is their concatenation.
    """
    return random_function(spec).shapes(spec)


def weight_count(spec: KernelSpec) -> int:
    """Return the length of the flat weight vector."""
    return sum(math.prod(shape) for shape in weight_shapes(spec).values())


def starting_weights(spec: KernelSpec) -> Tensor:
    """Return the flat float64 vector of starting weights, a function of the spec alone."""
    start = random_function(spec).start(spec)
    return torch.cat([start[name].flatten() for name in weight_shapes(spec)])


class URK(Kernel):
    """A unifying random kernel: a spec and one flat vector of weights.

    `weights` is the only parameter, in the order of `weight_shapes(spec)`; the random draws are
    derived from the spec. It is a `gpytorch.kernels.Kernel` with unit scale: the linear layer's
    prior variance λ² is `ScaleKernel`'s outputscale.

    >>> kernel = URK(KernelSpec(inputs=2, samples=4, hidden=(3,), latent=5))
    >>> kernel.features(torch.zeros(7, 2, dtype=torch.float64)).shape
    torch.Size([7, 8])
    """

    weights: torch.nn.Parameter

    def __init__(self, spec: KernelSpec, weights: Tensor | None = None) -> None:
        super().__init__()
        self.spec = spec
        self._function = random_function(spec)
        self._shapes = dict(self._function.shapes(spec))
        flat = starting_weights(spec) if weights is None else _checked(spec, weights)
        self.register_parameter("weights", torch.nn.Parameter(flat))
        draws = self._function.draws(spec)
        for name, draw in draws.items():
            self.register_buffer(f"_draw_{name}", draw, persistent=False)
        self._draw_names = tuple(draws)
        self.to(flat.dtype)

    def named_weights(self) -> Mapping[str, Tensor]:
        """Return differentiable views of the flat vector, by name."""
        return self._named(self.weights)

    def _named(self, flat: Tensor) -> Mapping[str, Tensor]:
        pieces = torch.split(flat, [math.prod(shape) for shape in self._shapes.values()])
        return {
            name: piece.view(shape)
            for (name, shape), piece in zip(self._shapes.items(), pieces, strict=True)
        }

    def features(self, x: Tensor) -> Tensor:
        """Map x (rows, p) to φ(x) (rows, M), in the weights' floating-point type."""
        return self._at(self.weights)(self._checked_rows(x))[0]

    def fixed(self) -> Callable[[Tensor], Tensor]:
        """Return x ↦ φ(x) at the present weights, without a graph.

        What does not depend on x is computed once: for a single row it is most of the work.
        """
        at = self._at(self.weights.detach().clone())
        return lambda x: at(self._checked_rows(x))[0]

    def features_and_pullback(self, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Return φ(x) without a graph, and the map from ∂/∂φ(x) to the flat ∂/∂weights.

        The map accepts the gradient of the first rows of φ(x) only; that of the others is then 0.
        """
        features, named_pullback = self._at(self.weights.detach())(self._checked_rows(x))

        def pullback(gradient: Tensor) -> Tensor:
            named = named_pullback(pad(gradient, (0, 0, 0, len(features) - len(gradient))))
            return torch.cat([named[name].flatten() for name in self._shapes])

        return features, pullback

    def features_and_row_pullback(self, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Return φ(x) without a graph, and the map from ∂/∂φ(x) to each row's ∂/∂weights.

        Each row is treated as a table: the map is from (rows, M) to (rows, weights). Values are
        not checked.
        """
        features, named_pullback = self._at(self.weights.detach())(x.unsqueeze(-2))

        def pullback(gradient: Tensor) -> Tensor:
            named = named_pullback(gradient.unsqueeze(-2))
            return torch.cat([named[name].flatten(1) for name in self._shapes], dim=1)

        return features.squeeze(-2), pullback

    def _at(self, flat: Tensor) -> Features:
        draws = {name: getattr(self, f"_draw_{name}") for name in self._draw_names}
        return self._function.features(self.spec, draws, self._named(flat))

    def features_in_chunks(self, x: Tensor, *, chunk_rows: int) -> Iterator[tuple[slice, Tensor]]:
        """Yield slices of rows with their φ, without a graph; `chunk_rows` bounds the memory."""
        features = self.fixed()
        for rows in chunks(len(x), self.spec.rows_at_a_time(chunk_rows)):
            yield rows, features(x[rows])

    def _checked_rows(self, x: Tensor) -> Tensor:
        if x.ndim != 2 or x.shape[1] != self.spec.inputs:
            raise WrongShape(
                f"x must have shape (rows, {self.spec.inputs}), not {tuple(x.shape)}: encode the "
                "table with the session's schema"
            )
        if len(x) == 0:
            raise EmptyTable("x has no rows: pass at least one")
        # A finite sum has finite terms: one pass without a temporary array.
        if not math.isfinite(float(x.detach().sum())) and not torch.isfinite(x).all():
            rows = int((~torch.isfinite(x).all(dim=1)).sum())
            raise NotFinite(
                f"{rows} of {len(x)} rows contain NaN or infinite cells: impute the cells or "
                "remove the rows before computing features"
            )
        return x.to(self.weights.dtype)

    def forward(
        self,
        x1: Tensor,
        x2: Tensor,
        diag: bool = False,  # noqa: FBT001, FBT002 (gpytorch's signature)
        **_: Any,
    ) -> Any:
        """Return the Gram matrix of two tables as a linear operator (or its diagonal)."""
        left = self.features(x1)
        if diag:
            return (left * (left if x1 is x2 else self.features(x2))).sum(-1)
        if x1.shape == x2.shape and torch.equal(x1, x2):
            low_rank = left.shape[1] < left.shape[0]
            return (LowRankRootLinearOperator if low_rank else RootLinearOperator)(left)
        return MatmulLinearOperator(left, self.features(x2).mT)


def _checked(spec: KernelSpec, weights: Tensor) -> Tensor:
    expected = weight_count(spec)
    if weights.ndim != 1 or len(weights) != expected:
        raise WeightsError(
            f"the weights of this {spec.architecture} kernel must be one flat vector of length "
            f"{expected}, not of shape {tuple(weights.shape)}: use weights of the same spec"
        )
    if not weights.dtype.is_floating_point:
        raise WeightsError(f"weights must be floating-point numbers, not {weights.dtype}")
    if not torch.isfinite(weights).all():
        bad = int((~torch.isfinite(weights)).sum())
        raise WeightsError(
            f"{bad} of {expected} weights are NaN or infinite: training has diverged"
        )
    return weights.detach().clone()

"""Many networks of one kind laid out for predicting: each layer of all of them is one product.

A row costs a network few operations, so that few rows through many networks, one after the other,
are mostly calls. Here layer l of K networks is one batched product of (K, n, in) and (K, in, out),
with the weights transposed and contiguous once, when the stack is made. `torch.func.vmap` over
`functional_call` makes the same products, and takes two to three times as long over them at the
sizes that are served.

Many rows are arithmetic, and then a cache counts: as many networks at a time as have their
activations in it, down to one.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from kernels.ensembles.networks import NetworkSpec, layers
from kernels.errors import WrongShape
from kernels.tables.chunks import chunks

_ACTIVATIONS = 2**17
"""Numbers of one layer's outputs that are worth having at once."""
_ROWS = 256
"""At a time: enough that a network's weights are read once for many of them."""


@dataclass(frozen=True, eq=False)
class NetworkStack:
    """K networks; parameters: (K, P)."""

    spec: NetworkSpec
    parameters: Tensor

    @cached_property
    def _layers(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """Biases (K, 1, out) and weights (K, in, out) of each layer."""
        found = layers(self.spec, self.parameters)
        return tuple((bias.contiguous(), weight.mT.contiguous()) for weight, bias in found)

    def __len__(self) -> int:
        return len(self.parameters)

    def outputs(self, x: Tensor) -> Tensor:
        """Return f_θ(x), (K, n, T), of every network at rows (n, p), without gradients."""
        if x.ndim != 2 or x.shape[1] != self.spec.inputs:
            raise WrongShape(f"rows must be (n, {self.spec.inputs}), not {tuple(x.shape)}")
        found = x.new_empty((len(self), len(x), self.spec.outputs))
        widest = max((*self.spec.hidden, self.spec.outputs))
        with torch.no_grad():
            for rows in chunks(len(x), _ROWS):
                piece = x[rows]
                for few in chunks(len(self), max(1, _ACTIVATIONS // (len(piece) * widest))):
                    found[few, rows] = self._through(few, piece)
        return found

    def _through(self, few: slice, x: Tensor) -> Tensor:
        *hidden, (last_bias, last_weight) = self._layers
        said = x.expand(few.stop - few.start, *x.shape)
        for bias, weight in hidden:
            said = torch.baddbmm(bias[few], said, weight[few]).relu_()
        return torch.baddbmm(last_bias[few], said, last_weight[few])

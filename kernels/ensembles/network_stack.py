"""Many networks of one spec arranged for prediction: one matrix product per layer for all of them.

A network needs few operations for a row, so passing few rows through many networks, one after
another, is mostly the overhead of calls. Here layer l of K networks is one batched product of
(K, n, in) and (K, in, out), with weights that are transposed and made contiguous once, when the
stack is first used. `torch.func.vmap` over `functional_call` computes the same products, and takes
two to three times as long at the sizes that are served.

For many rows the arithmetic dominates, and the cache matters: networks are processed in groups
whose activations fit the cache, down to one network at a time.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from kernels.ensembles.networks import NetworkSpec, layers
from kernels.errors import WrongShape
from kernels.tables.chunks import chunks

_ACTIVATIONS = 2**17
"""The most numbers of one layer's outputs to compute at once."""
_ROWS = 256
"""Rows processed at a time: enough that each reading of a network's weights serves many rows."""


@dataclass(frozen=True, eq=False)
class NetworkStack:
    """K networks of one spec; parameters: (K, P)."""

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
        """Return f_θ(x), (K, n, T), for every network at rows (n, p), without gradients."""
        if x.ndim != 2 or x.shape[1] != self.spec.inputs:
            raise WrongShape(f"x must have shape (n, {self.spec.inputs}), not {tuple(x.shape)}")
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

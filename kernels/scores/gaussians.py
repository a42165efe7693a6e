"""Gaussian predictions, one for each row and target, and the divergence between them."""

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from kernels.errors import PredictionError


@dataclass(frozen=True, eq=False)
class Gaussian:
    """N(mean, variance) of new observations; any shapes that broadcast; variances positive."""

    STORED_AS: ClassVar[str] = "gaussian"

    mean: Tensor
    variance: Tensor

    def __post_init__(self) -> None:
        finite = torch.isfinite(self.mean).all() and torch.isfinite(self.variance).all()
        if not (bool(finite) and bool((self.variance > 0).all())):
            raise PredictionError(
                "a Gaussian must have a finite mean and a positive, finite variance"
            )

    @classmethod
    def natural(cls, precision: Tensor, shift: Tensor) -> Self:
        """Return the Gaussian with these 1/variance and mean/variance."""
        return cls(shift / precision, 1 / precision)

    @property
    def precision(self) -> Tensor:
        """1/variance."""
        return 1 / self.variance

    @property
    def shift(self) -> Tensor:
        """mean/variance; in a product of densities, precisions and shifts add up."""
        return self.mean / self.variance

    def log_density(self, y: Tensor) -> Tensor:
        """Return log N(y)."""
        squares = (y - self.mean).square() / self.variance
        return -(squares + (2 * math.pi * self.variance).log()) / 2


def divergence(first: Gaussian, second: Gaussian) -> Tensor:
    """Return KL(first ‖ second) of each element, differentiable.

    >>> one = torch.ones(1)
    >>> divergence(Gaussian(one, one), Gaussian(0 * one, one)).tolist()
    [0.5]
    """
    ratio = first.variance / second.variance
    apart = (first.mean - second.mean).square() / second.variance
    return (ratio - 1 - ratio.log() + apart) / 2

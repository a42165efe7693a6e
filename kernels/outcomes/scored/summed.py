"""What sums of outcomes have in common: named float64 tensors, each with a bound, that are added.

Two kinds of sum are made of held-out rows: `Scored`, from which scores follow, and `HeldOut`, from
which a recalibration does. Each describes its blocks as plain tuples, of which a stage makes the
layout of its vector.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Generic, NamedTuple, Self, TypeVar

import torch
from torch import Tensor

from kernels.errors import EmptyTable, StateError, WrongShape
from kernels.scores.recalibration import FOLDS
from kernels.storage import check_tensor
from kernels.tables.targets import Outcome

RESOLUTION = 2.0**-16
"""The step of sums that are not counts."""
LOG_LOSS_BOUND = 1000.0
"""A row's log loss is clipped here, in nats: no usable model has such a loss."""

TargetT = TypeVar("TargetT", bound=Outcome)
PredictedT = TypeVar("PredictedT")


class SumBlock(NamedTuple):
    """One tensor of a sum.

    bound: what one row adds to an element at most. resolution: its step; 1 for counts.
    sensitivity: what one row changes the block by at most, in Euclidean norm; None for a block that
    is never summed with noise.
    """

    name: str
    shape: tuple[int, ...]
    bound: float
    resolution: float
    sensitivity: float | None = None


class Summed(ABC, Generic[TargetT]):
    """A frozen dataclass of tensors, one for each of its blocks, in their order."""

    @classmethod
    @abstractmethod
    def blocks(cls, target: TargetT) -> tuple[SumBlock, ...]:
        """Return the blocks of the sum without noise, one for each field."""

    @classmethod
    @abstractmethod
    def few_blocks(cls, target: TargetT) -> tuple[SumBlock, ...]:
        """Return the blocks of the sum with noise, each with its sensitivity."""

    @classmethod
    def zero(cls, target: TargetT) -> Self:
        """Return the sums of no rows."""
        return cls(*(torch.zeros(own.shape, dtype=torch.float64) for own in cls.blocks(target)))

    @classmethod
    def of_totals(cls, target: TargetT, totals: Mapping[str, Tensor]) -> Self:
        """Return the sums from tensors by the names of their blocks."""
        found = cls(*(totals[own.name].double() for own in cls.blocks(target)))
        found.check(target)
        return found

    def named(self) -> dict[str, Tensor]:
        """Return the tensors by the names of their blocks."""
        return {own.name: getattr(self, own.name) for own in fields(self)}  # type: ignore[arg-type]

    def __add__(self, other: Self) -> Self:
        mine, theirs = self.named(), other.named()
        if any(mine[name].shape != theirs[name].shape for name in mine):
            raise WrongShape("sums of different targets cannot be added")
        return type(self)(*(mine[name] + theirs[name] for name in mine))

    def check(self, target: TargetT) -> None:
        """Refuse sums of another target, or with negative counts; they may be untrusted."""
        for block in self.blocks(target):
            own = getattr(self, block.name)
            check_tensor(f"{type(self).__name__}.{block.name}", own, block.shape)
            if block.resolution == 1 and not bool((own >= 0).all()):
                raise StateError(f"{type(self).__name__}.{block.name} contains negative counts")


class Scored(Summed[TargetT], Generic[TargetT, PredictedT]):
    """Sums from which scores follow."""

    @classmethod
    @abstractmethod
    def of(cls, target: TargetT, outcomes: Tensor, predicted: PredictedT) -> Self:
        """Return the sums over rows with outcomes (n, width), as a table has them."""

    @classmethod
    @abstractmethod
    def few(cls, target: TargetT, outcomes: Tensor, predicted: PredictedT) -> dict[str, Tensor]:
        """Return the blocks of the sum with noise over rows."""

    @classmethod
    @abstractmethod
    def from_noisy(cls, target: TargetT, totals: Mapping[str, Tensor]) -> Self:
        """Return valid sums from the noisy totals of `few`."""

    @property
    @abstractmethod
    def row_count(self) -> float:
        """The number of rows, or with noise an estimate of it."""

    @abstractmethod
    def quality(self, target: TargetT) -> Any:
        """Return the scores; refuse sums without rows."""


class HeldOut(Summed[TargetT], Generic[TargetT, PredictedT]):
    """Sums by fold (`kernels.scores.recalibration.FOLDS`), the first dimension of every tensor."""

    @classmethod
    @abstractmethod
    def of(cls, target: TargetT, outcomes: Tensor, predicted: PredictedT, folds: Tensor) -> Self:
        """Return the sums over rows with outcomes (n, width) and folds (n,)."""

    @classmethod
    @abstractmethod
    def few(cls, target: TargetT, outcomes: Tensor, predicted: PredictedT) -> dict[str, Tensor]:
        """Return the blocks of the sum with noise over rows, without folds."""

    def without(self, fold: int) -> Self:
        """Return the sums of the other folds."""
        kept = torch.ones(FOLDS, dtype=torch.float64)
        kept[fold] = 0.0
        return type(self)(
            *(own * kept.view(-1, *[1] * (own.ndim - 1)) for own in self.named().values())
        )


def in_folds(whole: Tensor) -> Tensor:
    """Return a sum without folds divided evenly among them, (FOLDS, …)."""
    return (whole / FOLDS).expand(FOLDS, *whole.shape).contiguous()


def check_some(rows: Tensor | float) -> float:
    """Return the number of rows; refuse none."""
    found = float(rows)
    if not found > 0:
        raise EmptyTable("these scores have no rows; score at least one held-out row")
    return found

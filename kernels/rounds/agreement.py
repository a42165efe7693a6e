"""Whether two machines that replayed one run hold the same state, up to a few steps of grids.

The digests of two positions are equal unless a value lay between two multiples of its grid. If they
differ, the states are compared field by field: only fields with a declared grid may differ, by
exactly one step, and the elements that do are counted. A run has a budget for them, so that whoever
chooses a state cannot walk away from the true one a step at a time.

σ and λ maximise the evidence of sums that both have. Where two maxima are equally good, machines
may choose different ones: then the value decides.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from kernels.errors import StateDiffers
from kernels.layer.posterior import Hyperparameters, Spectrum
from kernels.layer.refit import objective
from kernels.layer.statistics import Statistics
from kernels.model.model import Model
from kernels.reproducible import to_bits
from kernels.rounds.plan import declared
from kernels.rounds.position import Position
from kernels.rounds.program import Program
from kernels.rounds.replay import Bits, Grid, OwnStep, Step

_SLACK = 2.0**-30
"""How much worse per row σ and λ may be than one's own, which are rounded themselves."""


@dataclass(frozen=True)
class Agreement:
    """The deviations that a member has accepted in a run, and the most that it accepts."""

    budget: int
    spent: int = 0

    def including(self, own: Position, theirs: Position) -> "Agreement":
        """Return the agreement after accepting another's position instead of one's own.

        Raise `StateDiffers` if the positions differ by more than declared, or too often in this
        run.
        """
        spent = self.spent + deviations(own, theirs)
        if spent > self.budget:
            raise StateDiffers(
                f"in this run, {spent} numbers of states were a step off, and at most "
                f"{self.budget} are accepted: rounding does not explain that many"
            )
        return replace(self, spent=spent)


def agreement(program: Program) -> Agreement:
    """Return the agreement at the start of a run: its budget is that of all its stages."""
    return Agreement(sum(each.replay.budget for each in declared(program)))


def deviations(own: Position, theirs: Position) -> int:
    """Return how many elements of another's state are one step off; `theirs` is not trusted.

    Raise `StateDiffers` if anything else differs.
    """
    place = own.stage, own.sum_index
    if own.program != theirs.program or place != (theirs.stage, theirs.sum_index):
        raise StateDiffers("these are states at different positions, or of different programs")
    return _Comparison(_grids(own), own.state).of(own.state, theirs.state, "")


def _grids(position: Position) -> Mapping[str, Grid]:
    """Return the grids of a state: its stage's own, and those of the model that it started from."""
    grids: dict[str, Grid] = {}
    for each in declared(position.program)[: position.stage + 1]:
        grids = {name: own for name, own in grids.items() if name.startswith("model.")}
        grids |= each.replay.grids
    return grids


@dataclass(frozen=True, eq=False)
class _Comparison:
    grids: Mapping[str, Grid]
    own_state: Any

    def of(self, own: object, theirs: object, name: str) -> int:
        """Return the deviations in one field, and in what it contains."""
        if type(own) is not type(theirs):
            raise _differs(name, "is of another kind")
        if isinstance(own, Tensor) and isinstance(theirs, Tensor):
            return self._of_tensors(own, theirs, name)
        if isinstance(own, Hyperparameters) and isinstance(theirs, Hyperparameters):
            return self._of_scales(own, theirs, name)
        if is_dataclass(own):
            return sum(
                self.of(
                    getattr(own, each.name),
                    getattr(theirs, each.name),
                    f"{name}.{each.name}" if name else each.name,
                )
                for each in fields(own)
            )
        if isinstance(own, tuple | list) and isinstance(theirs, tuple | list):
            if len(own) != len(theirs):
                raise _differs(name, "has another length")
            return sum(self.of(*each, name) for each in zip(own, theirs, strict=True))
        if isinstance(own, float) and isinstance(theirs, float):
            mine, other = (torch.tensor([each], dtype=torch.float64) for each in (own, theirs))
            return self._of_tensors(mine, other, name)
        if own != theirs:
            raise _differs(name, "has another value")
        return 0

    def _of_tensors(self, own: Tensor, theirs: Tensor, name: str) -> int:
        if own.shape != theirs.shape or own.dtype != theirs.dtype:
            raise _differs(name, "has another shape or type")
        apart = own != theirs
        count = int(apart.sum())
        if not count:
            return 0
        if name not in self.grids:
            raise _differs(name, "differs, and must not")
        steps = _steps(own, theirs, self.grids[name])
        if not bool(((own - theirs).abs()[apart] == steps[apart]).all()):
            raise _differs(name, "differs by more than a step of its grid")
        return count

    def _of_scales(self, own: Hyperparameters, theirs: Hyperparameters, name: str) -> int:
        pairs = [
            (getattr(own, each), getattr(theirs, each), f"{name}.{each}")
            for each in ("noise_variance", "prior_variance")
        ]
        try:
            return sum(self._of_tensors(*pair) for pair in pairs)
        except StateDiffers:
            if not self._are_as_good(own, theirs, name):
                raise
        return sum(int((mine != other).sum()) for mine, other, _ in pairs)

    def _are_as_good(self, own: Hyperparameters, theirs: Hyperparameters, name: str) -> bool:
        """Return whether another's σ and λ of the model explain the sums as well as one's own."""
        if name not in _SCALES or not _are_rounded(theirs):
            return False
        model = _SCALES[name](self.own_state.model)
        statistics = None if model is None else _sums_of(self.own_state, model)
        if model is None or statistics is None:
            return False
        if f"{name}.noise_variance" not in self.grids or statistics.noise is not None:
            return False
        spectrum = Spectrum.of(statistics, inducing=model.kernel.inducing_features)
        worse = objective(spectrum, theirs) - objective(spectrum, own)
        return bool((worse <= _SLACK * (statistics.count + 1)).all())


_SCALES: Mapping[str, Callable[[Model], Model | None]] = {
    "model.hyperparameters": lambda model: model,
    "model.second.hyperparameters": lambda model: model.other,
}
"""The model whose sums σ and λ were fitted to, by the names of the fields that lead to them."""


def _sums_of(state: Any, model: Model) -> Statistics | None:
    """Return the sums to which σ and λ of a state's model were fitted, if it still has them."""
    pooled = getattr(state, "pooled", None)
    found = model.statistics if pooled is None else pooled.statistics
    return found if isinstance(found, Statistics) else None


def _are_rounded(scales: Hyperparameters) -> bool:
    rounded = scales.rounded()
    return torch.equal(rounded.noise_variance, scales.noise_variance) and torch.equal(
        rounded.prior_variance, scales.prior_variance
    )


def _steps(own: Tensor, theirs: Tensor, grid: Grid) -> Tensor:
    """Return the distance at which two values are neighbours; NaN where one is not on the grid."""
    match grid:
        case Bits(bits):
            least = own.abs().minimum(theirs.abs())
            _, exponent = torch.frexp(least)
            steps = torch.pow(2.0, (exponent - bits).double())
            # Between two powers of two the step is that of the smaller number.
            on_it = (to_bits(own, bits) == own) & (to_bits(theirs, bits) == theirs)
        case Step(size):
            steps = torch.full_like(own, size)
            on_it = _multiples(own, size) & _multiples(theirs, size)
        case OwnStep():
            size = _largest_divisor(own)
            steps = torch.full_like(own, size)
            on_it = _multiples(own, size) & _multiples(theirs, size)
    return torch.where(on_it, steps, math.nan)


def _multiples(values: Tensor, step: float) -> Tensor:
    return (values / step).round() * step == values


def _largest_divisor(values: Tensor) -> float:
    """Return the largest power of two that divides all elements; NaN if all are zero."""
    exponents = []
    for value in values[values != 0].flatten().tolist():
        numerator, denominator = value.as_integer_ratio()
        trailing = (numerator & -numerator).bit_length() - 1
        exponents.append(trailing - (denominator.bit_length() - 1))
    return math.ldexp(1.0, min(exponents)) if exponents else math.nan


def _differs(name: str, how: str) -> StateDiffers:
    return StateDiffers(
        f"the state that was sent is not the one that follows from the totals: {name or 'it'} "
        f"{how}. Somebody computes otherwise, or with other versions of the libraries"
    )

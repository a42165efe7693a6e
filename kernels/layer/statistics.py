"""What the Bayesian linear layer needs of a table, and all it needs: S, b, yᵀy and n.

S = Σ φφᵀ, b = Σ φy, yᵀy = Σ y², n = Σ 1 over rows: additive, so those of any split of a table add
up to the pooled ones, and rows can be taken out again by subtraction. Targets share S.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from scipy.linalg.blas import dsyrk
from torch import Tensor

from kernels.errors import EmptyTable, NotFinite, NotSymmetric, StatisticsError, WrongShape
from kernels.features.urk import URK
from kernels.strict_json import is_number
from kernels.tables.chunks import CHUNK_ROWS

_EPSILON = torch.finfo(torch.float64).eps
_NOTHING = 2.0**-30
"""A sum of squared standardised targets this small is no row's."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Standard deviations of the Gaussian noise that statistics were released with.

    scatter: s, of each diagonal element of S; off the diagonal s/√2, and S stays symmetric.
    cross, target_squares: of each element of b and of yᵀy. count: of n.
    """

    STORED_AS: ClassVar[str] = "statistics.noise"

    scatter: float
    cross: float
    target_squares: float
    count: float

    def __post_init__(self) -> None:
        for name, deviation in vars(self).items():
            if not (is_number(deviation) and deviation > 0):
                raise StatisticsError(f"the noise of {name} is a positive number, or there is none")

    def __add__(self, other: "Noise") -> "Noise":
        return Noise(
            **{name: math.hypot(own, getattr(other, name)) for name, own in vars(self).items()}
        )


@dataclass(frozen=True, eq=False)
class Statistics:
    """Sufficient statistics of rows, float64.

    scatter: S, (M, M), symmetric.
    cross: b, (M, T), a column per target.
    target_squares: yᵀy, (T,).
    count: n. Not negative; a difference of tables may have fewer rows than features.
    rounding: a bound on the spectral norm of S's error, 0 for statistics that were never rounded;
        it adds up, whatever is done with the statistics, and a difference adds float64's own.
    noise: with differential privacy, what was added to them. S need not be positive then, and n is
        an estimate; `kernels.noisy.realisable` repairs S, and `kernels.noisy.noise_aware` has the
        posterior.
    """

    STORED_AS: ClassVar[str] = "statistics"

    scatter: Tensor
    cross: Tensor
    target_squares: Tensor
    count: int
    rounding: float = 0.0
    noise: Noise | None = None

    def __post_init__(self) -> None:
        if self.scatter.ndim != 2 or self.cross.ndim != 2 or 0 in self.cross.shape:
            raise WrongShape("S and b are matrices of at least one feature and one target")
        features, targets = self.features, self.targets
        if self.scatter.shape != (features, features):
            raise WrongShape(f"S must be square, not {tuple(self.scatter.shape)}")
        if self.cross.shape != (features, targets) or self.target_squares.shape != (targets,):
            raise WrongShape(
                f"with {features} features b must be ({features}, targets) and yᵀy (targets,), "
                f"not {tuple(self.cross.shape)} and {tuple(self.target_squares.shape)}"
            )
        for name in ("scatter", "cross", "target_squares"):
            value = getattr(self, name)
            if value.dtype != torch.float64:
                raise StatisticsError(f"{name} must be float64, not {value.dtype}: sums need it")
            # A sum is finite if its terms are (and overflows only where they are useless).
            if not math.isfinite(float(value.sum())):
                raise NotFinite(
                    f"{name} is not finite: the features overflow, or a table had NaN cells"
                )
        if (self.target_squares < 0).any():
            raise StatisticsError("yᵀy is negative: more was subtracted than was ever added")
        if type(self.count) is not int or self.count < 0:
            raise StatisticsError(f"n is a count of rows, not {self.count}: was more subtracted?")
        if not (math.isfinite(self.rounding) and self.rounding >= 0):
            raise StatisticsError(f"a rounding is finite and not negative, not {self.rounding}")
        if not (self.noise is None or isinstance(self.noise, Noise)):
            raise StatisticsError("the noise of statistics is a Noise, or None")
        if not torch.equal(self.scatter, self.scatter.mT):
            scale = float(self.scatter.diagonal().abs().max())
            asymmetry = float((self.scatter - self.scatter.mT).abs().max())
            if asymmetry > 1e-9 * scale + 2 * self.rounding:
                raise NotSymmetric(
                    f"S differs from its transpose by up to {asymmetry:.3g} at a scale of "
                    f"{scale:.3g}: it is no sum of φφᵀ"
                )

    @property
    def features(self) -> int:
        """Return M."""
        return self.scatter.shape[0]

    @property
    def targets(self) -> int:
        """Return T."""
        return self.cross.shape[1]

    @classmethod
    def zero(cls, *, features: int, targets: int = 1) -> Self:
        """Return the statistics of no rows."""
        return cls(
            torch.zeros(features, features, dtype=torch.float64),
            torch.zeros(features, targets, dtype=torch.float64),
            torch.zeros(targets, dtype=torch.float64),
            0,
        )

    @classmethod
    def of_features(cls, features: Tensor, targets: Tensor) -> Self:
        """Sum over rows of features (n, M) and targets (n,) or (n, T)."""
        return cls.of_chunks([(features, targets)])

    @classmethod
    def of_table(
        cls, kernel: URK, x: Tensor, targets: Tensor, *, chunk_rows: int = CHUNK_ROWS
    ) -> Self:
        """Sum over the rows of a table; features exist for `chunk_rows` rows at a time only."""
        if len(x) != len(targets):
            raise WrongShape(f"{len(x)} rows of x but {len(targets)} of targets")
        if len(x) == 0:
            columns = 1 if targets.ndim == 1 else targets.shape[1]
            return cls.zero(features=kernel.spec.features, targets=columns)
        return cls.of_chunks(
            (phi, targets[rows])
            for rows, phi in kernel.features_in_chunks(x, chunk_rows=chunk_rows)
        )

    @classmethod
    def of_chunks(cls, chunks: Iterable[tuple[Tensor, Tensor]]) -> Self:
        """Sum over a stream of (features, targets), in the memory of one chunk."""
        scatter: Tensor | None = None
        cross = target_squares = torch.empty(0)
        count = 0
        for features, targets in chunks:
            phi, y = _checked_chunk(features, targets)
            if scatter is None:
                # Stored transposed: BLAS wants columns, and the upper triangle suffices.
                scatter = torch.zeros(phi.shape[1], phi.shape[1], dtype=torch.float64)
                cross = torch.zeros(phi.shape[1], y.shape[1], dtype=torch.float64)
                target_squares = torch.zeros(y.shape[1], dtype=torch.float64)
            if phi.shape[1] != len(scatter) or y.shape[1] != cross.shape[1]:
                raise WrongShape("chunks of one table differ in their number of columns")
            dsyrk(1.0, phi.mT.numpy(), beta=1.0, c=scatter.mT.numpy(), overwrite_c=1)
            cross += phi.mT @ y
            target_squares += (y * y).sum(0)
            count += len(y)
        if scatter is None:
            raise EmptyTable("no chunk of rows: use Statistics.zero for an empty table")
        # dsyrk wrote the upper triangle of the column-major view, the lower one of ours.
        scatter = scatter + scatter.mT
        scatter.diagonal().div_(2)
        return cls(scatter, cross, target_squares, count)

    def __add__(self, other: Self) -> Self:
        self._check_compatible(other)
        return type(self)(
            self.scatter + other.scatter,
            self.cross + other.cross,
            self.target_squares + other.target_squares,
            self.count + other.count,
            self.rounding + other.rounding,
            added(self.noise, other.noise),
        )

    def __sub__(self, other: Self) -> Self:
        self._check_compatible(other)
        # What is left of equal numbers is the rounding of float64, and may be below zero.
        rounding = self.features * _EPSILON * float(self.scatter.diagonal().abs().max())
        squares = self.target_squares - other.target_squares
        squares = squares.masked_fill((squares < 0) & (squares > -_NOTHING), 0.0)
        return type(self)(
            self.scatter - other.scatter,
            self.cross - other.cross,
            squares,
            self.count - other.count,
            self.rounding + other.rounding + rounding,
            added(self.noise, other.noise),
        )

    def _check_compatible(self, other: Self) -> None:
        if (self.features, self.targets) != (other.features, other.targets):
            raise WrongShape(
                f"statistics of {self.features} features and {self.targets} targets do not add to "
                f"{other.features} and {other.targets}: they are of different kernels or schemas"
            )


def added(one: Noise | None, other: Noise | None) -> Noise | None:
    """Return the noise of a sum, or of a difference, of independent releases."""
    return one + other if one is not None and other is not None else one or other


def _checked_chunk(features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    if features.ndim != 2 or targets.ndim not in (1, 2) or len(features) != len(targets):
        raise WrongShape(
            f"features must be (rows, M) and targets (rows,) or (rows, T), "
            f"not {tuple(features.shape)} and {tuple(targets.shape)}"
        )
    y = targets.unsqueeze(1) if targets.ndim == 1 else targets
    return features.detach().double().contiguous(), y.detach().double()

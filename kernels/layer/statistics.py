"""The sufficient statistics of the Bayesian linear layer: S, b, yᵀy and n.

S = Σ φφᵀ, b = Σ φy, yᵀy = Σ y², n = Σ 1 over rows: additive, so those of the parts of a table add
up to those of the whole table, and rows can be removed again by subtraction. Targets share S.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from scipy.linalg.blas import dsyrk
from torch import Tensor

from kernels.errors import NotFinite, NotSymmetric, StatisticsError, WrongShape
from kernels.features.urk import URK
from kernels.strict_json import is_number
from kernels.tables.chunks import CHUNK_ROWS

_EPSILON = torch.finfo(torch.float64).eps
_NOTHING = 2.0**-30
"""A sum of squared standardised targets below this is rounding, not a row."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Standard deviations of the Gaussian noise in released statistics.

    scatter: s, for each diagonal element of S; s/√2 off the diagonal, where S stays symmetric.
    cross, target_squares: for each element of b and of yᵀy. count: for n.
    """

    STORED_AS: ClassVar[str] = "statistics.noise"

    scatter: float
    cross: float
    target_squares: float
    count: float

    def __post_init__(self) -> None:
        for name, deviation in vars(self).items():
            if not (is_number(deviation) and deviation > 0):
                raise StatisticsError(
                    f"noise.{name} must be a positive finite number, not {deviation!r:.40}; "
                    "statistics without noise have noise=None"
                )

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
    count: n ≥ 0; a difference of tables may have fewer rows than features.
    rounding: a bound on the spectral norm of S's error, 0 for statistics that were never rounded.
        Both sums and differences add their roundings; a difference also adds that of float64.
    noise: with differential privacy, the noise added to them. Then S need not be positive, and n is
        an estimate; `kernels.noisy.realisable` repairs S, and `kernels.noisy.noise_aware` computes
        the posterior.
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
            raise WrongShape(
                "scatter and cross must be matrices for at least one feature and one target"
            )
        features, targets = self.features, self.targets
        if self.scatter.shape != (features, features):
            raise WrongShape(f"scatter must be square, not {tuple(self.scatter.shape)}")
        if self.cross.shape != (features, targets) or self.target_squares.shape != (targets,):
            raise WrongShape(
                f"with {features} features, cross must have shape ({features}, targets) and "
                f"target_squares (targets,), not {tuple(self.cross.shape)} and "
                f"{tuple(self.target_squares.shape)}"
            )
        for name in ("scatter", "cross", "target_squares"):
            value = getattr(self, name)
            if value.dtype != torch.float64:
                raise StatisticsError(f"{name} must be float64, not {value.dtype}")
            # A finite sum has finite terms (and it overflows only if they are too large to use).
            if not math.isfinite(float(value.sum())):
                raise NotFinite(
                    f"{name} contains NaN or infinite values: the features overflow, or a table "
                    "has NaN cells"
                )
        if (self.target_squares < 0).any():
            raise StatisticsError(
                "target_squares is negative: rows were subtracted that had not been added"
            )
        if type(self.count) is not int or self.count < 0:
            raise StatisticsError(
                f"count must be an integer of at least 0, not {self.count}: if it is negative, "
                "rows were subtracted that had not been added"
            )
        if not (math.isfinite(self.rounding) and self.rounding >= 0):
            raise StatisticsError(
                f"rounding must be a finite number of at least 0, not {self.rounding}"
            )
        if not (self.noise is None or isinstance(self.noise, Noise)):
            raise StatisticsError(
                f"statistics.noise must be a Noise or None, not {type(self.noise).__name__}"
            )
        if not torch.equal(self.scatter, self.scatter.mT):
            scale = float(self.scatter.diagonal().abs().max())
            asymmetry = float((self.scatter - self.scatter.mT).abs().max())
            if asymmetry > 1e-9 * scale + 2 * self.rounding:
                raise NotSymmetric(
                    f"scatter must be symmetric; it differs from its transpose by up to "
                    f"{asymmetry:.3g}, at a scale of {scale:.3g}"
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
        """Return the statistics of an empty table."""
        return cls(
            torch.zeros(features, features, dtype=torch.float64),
            torch.zeros(features, targets, dtype=torch.float64),
            torch.zeros(targets, dtype=torch.float64),
            0,
        )

    @classmethod
    def of_features(cls, features: Tensor, targets: Tensor) -> Self:
        """Return the sums over rows of features (n, M) and targets (n,) or (n, T)."""
        columns = 1 if targets.ndim == 1 else targets.shape[-1]
        return cls.of_chunks([(features, targets)], features=features.shape[-1], targets=columns)

    @classmethod
    def of_table(
        cls, kernel: URK, x: Tensor, targets: Tensor, *, chunk_rows: int = CHUNK_ROWS
    ) -> Self:
        """Return the sums over a table's rows, computing features `chunk_rows` rows at a time."""
        if len(x) != len(targets):
            raise WrongShape(
                f"x and targets must have the same number of rows, not {len(x)} and {len(targets)}"
            )
        chunks = kernel.features_in_chunks(x, chunk_rows=chunk_rows)
        return cls.of_chunks(
            ((phi, targets[rows]) for rows, phi in chunks),
            features=kernel.spec.features,
            targets=1 if targets.ndim == 1 else targets.shape[-1],
        )

    @classmethod
    def of_chunks(
        cls, chunks: Iterable[tuple[Tensor, Tensor]], *, features: int, targets: int = 1
    ) -> Self:
        """Return the sums over a stream of (features, targets), in the memory of one chunk.

        features, targets: the numbers of columns; there may be no chunks.
        """
        # Stored transposed: BLAS needs column-major order, and one triangle suffices.
        scatter = torch.zeros(features, features, dtype=torch.float64)
        cross = torch.zeros(features, targets, dtype=torch.float64)
        target_squares = torch.zeros(targets, dtype=torch.float64)
        count = 0
        for chunk in chunks:
            phi, y = _checked_chunk(*chunk)
            if phi.shape[1] != features or y.shape[1] != targets:
                raise WrongShape("all chunks of a table must have the same number of columns")
            dsyrk(1.0, phi.mT.numpy(), beta=1.0, c=scatter.mT.numpy(), overwrite_c=1)
            cross += phi.mT @ y
            target_squares += (y * y).sum(0)
            count += len(y)
        # dsyrk wrote the upper triangle of the column-major view, which is our lower triangle.
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
        # The difference of equal numbers is float64's rounding, and may be below 0.
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
                f"statistics of {self.features} features and {self.targets} targets cannot be "
                f"combined with those of {other.features} and {other.targets}: use the same kernel "
                "and schema at all sites"
            )


def added(one: Noise | None, other: Noise | None) -> Noise | None:
    """Return the noise of a sum, or of a difference, of independent releases."""
    return one + other if one is not None and other is not None else one or other


def _checked_chunk(features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    if features.ndim != 2 or targets.ndim not in (1, 2) or len(features) != len(targets):
        raise WrongShape(
            "features must have shape (rows, M) and targets (rows,) or (rows, T), "
            f"not {tuple(features.shape)} and {tuple(targets.shape)}"
        )
    y = targets.unsqueeze(1) if targets.ndim == 1 else targets
    return features.detach().double().contiguous(), y.detach().double()

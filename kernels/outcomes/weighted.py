"""The weighted statistics that every likelihood shares: S_ω, b, the bound's terms and n.

At a given q(w), a likelihood replaces each row's log p(y | f), f = φᵀw, by a parabola

    log p(y | f) ≈ κf − ωf²/2 + constant,    ω ≥ 0

whose expectation under q is t, that of log p or of a bound of it. All that the layer needs of a
table are sums over its rows, as for a real-valued outcome:

    S_ω = Σ ωφφᵀ,  b = Σ κφ,  Σ t,  n

Next to t no constant is needed: the bound at q is Σt − KL(q ‖ prior), and it has no error from the
rounding of S_ω and b. The sums are additive, so those of the parts of a table add up to those of
the whole. ω, κ and t depend on q, which everybody computes from the sums before.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from scipy.linalg.blas import dsyrk
from torch import Tensor

from kernels.errors import NotFinite, NotSymmetric, StatisticsError, WrongShape
from kernels.layer.statistics import Noise, Statistics, added
from kernels.reproducible import on_grid


@dataclass(frozen=True, eq=False)
class Rows:
    """The parabolas of some rows, each (n,) float64: ω ≥ 0, κ, and t, the expectation under q."""

    weights: Tensor
    pulls: Tensor
    terms: Tensor


def bounded(rows: Rows, pull: float) -> Rows:
    """Return parabolas for sums with differential privacy: |κ| ≤ pull, and no t.

    If a hostile q makes a row's parabola infinite or NaN, it is 0: a failure would reveal the row.
    """
    failed = ~(rows.weights.isfinite() & rows.pulls.isfinite())
    return Rows(
        rows.weights.masked_fill(failed, 0.0),
        rows.pulls.masked_fill(failed, 0.0).clamp(-pull, pull),
        torch.zeros_like(rows.terms),
    )


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Steps, powers of two, to which √ω·φ, φ, κ and t are rounded before they are multiplied.

    features: one step for all features, or one for each, (M,).

    The sums are then multiples of products of steps, which float64 adds without error in any order
    until 2⁵³ of them: the same bits however rows are divided among sites. S_ω remains a Gram
    matrix, because √ω·φ is rounded and not ω.
    """

    features: float | Tensor
    pulls: float = 2.0**-12
    terms: float = 2.0**-20


@dataclass(frozen=True, eq=False)
class Weighted:
    """Weighted statistics of rows for one latent function, float64.

    scatter: S_ω, (M, M), symmetric. cross: b, (M,). terms: Σt. count: n.
    rounding: a bound on the spectral norm of S_ω's error, 0 if it was never rounded.
    noise: with differential privacy, the noise that was added. Then Σt is not summed, and is 0.
    """

    STORED_AS: ClassVar[str] = "weighted"

    scatter: Tensor
    cross: Tensor
    terms: float
    count: int
    rounding: float = 0.0
    noise: Noise | None = None

    def __post_init__(self) -> None:
        side = self.features
        if self.cross.ndim != 1 or side < 1 or self.scatter.shape != (side, side):
            raise WrongShape(
                "scatter must have shape (M, M) and cross (M,), not "
                f"{tuple(self.scatter.shape)} and {tuple(self.cross.shape)}"
            )
        for name in ("scatter", "cross"):
            value = getattr(self, name)
            if value.dtype != torch.float64:
                raise StatisticsError(f"{name} must be float64, not {value.dtype}")
            # A finite sum has finite terms (and it overflows only if they are too large to use).
            if not math.isfinite(float(value.sum())):
                raise NotFinite(f"{name} contains NaN or infinite values: the features overflow")
        if not math.isfinite(self.terms):
            raise NotFinite("the sum of the bound's terms is not finite: the features overflow")
        if type(self.count) is not int or self.count < 0:
            raise StatisticsError(f"count must be an integer of at least 0, not {self.count}")
        if not (math.isfinite(self.rounding) and self.rounding >= 0):
            raise StatisticsError(f"rounding must be finite and at least 0, not {self.rounding}")
        if not (self.noise is None or isinstance(self.noise, Noise)):
            raise StatisticsError("the noise of weighted statistics must be a Noise or None")
        asymmetry = float((self.scatter - self.scatter.mT).abs().max())
        scale = float(self.scatter.diagonal().abs().max())
        if asymmetry > 1e-9 * scale + 2 * self.rounding:
            raise NotSymmetric(
                f"scatter must be symmetric; it differs from its transpose by up to "
                f"{asymmetry:.3g}, at a scale of {scale:.3g}"
            )

    @property
    def features(self) -> int:
        """Return M."""
        return len(self.cross)

    @classmethod
    def zero(cls, features: int) -> Self:
        """Return the statistics of an empty table."""
        scatter = torch.zeros(features, features, dtype=torch.float64)
        return cls(scatter, torch.zeros(features, dtype=torch.float64), 0.0, 0)

    @classmethod
    def of_chunks(
        cls, chunks: Iterable[tuple[Tensor, Rows]], *, features: int, grid: Grid | None = None
    ) -> Self:
        """Return the sums over a stream of (φ (rows, M), their parabolas), in one chunk's memory.

        features: M; there may be no chunks.
        """
        # Stored transposed: BLAS needs column-major order, and one triangle suffices.
        scatter = torch.zeros(features, features, dtype=torch.float64)
        cross = torch.zeros(features, dtype=torch.float64)
        terms, count = 0.0, 0
        for phi, rows in chunks:
            if phi.ndim != 2 or phi.shape != (len(rows.weights), features):
                raise WrongShape(
                    f"features must have shape ({len(rows.weights)}, {features}), not "
                    f"{tuple(phi.shape)}"
                )
            phi, pulls, own = phi.detach().double(), rows.pulls, rows.terms
            scaled = phi * rows.weights.sqrt().unsqueeze(1)
            if grid is not None:
                phi, scaled = on_grid(phi, grid.features), on_grid(scaled, grid.features)
                pulls, own = on_grid(pulls, grid.pulls), on_grid(own, grid.terms)
            scaled = scaled.contiguous()
            if len(phi):
                dsyrk(1.0, scaled.mT.numpy(), beta=1.0, c=scatter.mT.numpy(), overwrite_c=1)
            cross += pulls @ phi
            terms += float(own.sum())
            count += len(phi)
        # dsyrk wrote the upper triangle of the column-major view, which is our lower triangle.
        scatter = scatter + scatter.mT
        scatter.diagonal().div_(2)
        return cls(scatter, cross, terms, count)

    def __add__(self, other: Self) -> Self:
        if self.features != other.features:
            raise WrongShape(
                f"statistics of {self.features} features cannot be added to those of "
                f"{other.features}: use the same kernel at all sites"
            )
        return type(self)(
            self.scatter + other.scatter,
            self.cross + other.cross,
            self.terms + other.terms,
            self.count + other.count,
            self.rounding + other.rounding,
            added(self.noise, other.noise),
        )

    def towards(self, other: Self, share: float) -> Self:
        """Return (1 − share) of these and `share` of others, of the same rows at another q.

        Element by element, so that every machine has the same bits. S_ω and b are q's natural
        parameters: this is a step of that length along the natural gradient.
        """
        if share == 1:
            return other
        return type(self)(
            (1 - share) * self.scatter + share * other.scatter,
            (1 - share) * self.cross + share * other.cross,
            (1 - share) * self.terms + share * other.terms,
            other.count,
            max(self.rounding, other.rounding),
            other.noise,
        )

    def stretched(self, by: Tensor) -> Self:
        """Return the statistics of features multiplied by `by`, (M,), element by element."""
        largest = float(by.max())
        return replace(
            self,
            scatter=self.scatter * by.unsqueeze(0) * by.unsqueeze(1),
            cross=self.cross * by,
            rounding=self.rounding * max(1.0, largest * largest),
        )

    def as_statistics(self) -> Statistics:
        """Return S_ω and b as the statistics of one target whose noise has the variance 1."""
        squares = torch.zeros(1, dtype=torch.float64)
        return Statistics(
            (self.scatter + self.scatter.mT) / 2,
            self.cross.unsqueeze(1),
            squares,
            self.count,
            self.rounding,
            self.noise,
        )

"""What yes/no outcomes, classes, counts and hazards have in common: a likelihood of logits.

Of each of them log p(y | f) = a·g − B·log(1 + eᵍ) + constant, at the logit g = f + o with a known
offset o: `successes` a out of `trials` B, for a yes/no outcome y out of 1. Two rules replace it by
a parabola κf − ωf²/2 + constant at q(f) = N(m, v), where s(g) = 1/(1 + e⁻ᵍ):

**Pólya–Gamma** ([PolsonScottWindle13]; the bound of [JaakkolaJordan00]). With c² = (m + o)² + v,

    ω̄ = B·tanh(c/2)/2c,   κ = a − B/2 − ω̄o,   t = (a − B/2)(m + o) − B·log 2cosh(c/2)

is a lower bound for every f, and c is its optimum for q. So the bound rises with every sum; near
the optimum a sum leaves the share 1 − s(1 − s)/ω̄ of its error: much, if |g| is large (rare events).

**Newton**: the parabola with the expected slope and curvature ([KhanLin17], with steps of 1),

    ω = B·E[s(1 − s)],   κ = a − B·E[s] + ωm,   t = E[log p]

The bound is then the evidence lower bound itself, which is higher. Its error shrinks several times
with every sum, rare events or not; a step may go too far (`kernels.outcomes.newton` shortens it).

**Sensitivity.** A row changes S_ω by ωφφᵀ, of Frobenius norm ω‖φ‖², and b by κφ. Of both rules
ω ≤ B/4. Without an offset Pólya–Gamma has |κ| ≤ |a − B/2|: ½ for a yes/no outcome. Newton has
|κ| ≤ B: the slope of S(m) = E[s] is symmetric with one peak, as a convolution of two such is, so κ
falls in m, κ′ = B·m·S″(m) ≤ 0, from a to a − B. An offset adds at most |o|·B/4 to |κ|. The slope
alone, κ − ωm = a − B·E[s], has |κ − ωm| ≤ B, with any offset.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from kernels.errors import NotFinite, TableError, WrongShape
from kernels.features.urk import URK
from kernels.outcomes.quadrature import expected
from kernels.outcomes.variational import Layer
from kernels.outcomes.weighted import Grid, Rows, Weighted
from kernels.reproducible import on_grid
from kernels.tables.chunks import CHUNK_ROWS, chunks

_SMALL = 1e-3
"""Below this c, tanh(c/2)/2c is ¼ − c²/48 to the last bit but one."""


@dataclass(frozen=True, eq=False)
class Trials:
    """The likelihood of some rows, each (n,) float64: a, B, o and the constant of log p."""

    successes: Tensor
    trials: Tensor
    offset: Tensor
    constant: Tensor

    def __post_init__(self) -> None:
        shape = self.successes.shape
        columns = (self.successes, self.trials, self.offset, self.constant)
        if len(shape) != 1 or any(column.shape != shape for column in columns):
            raise WrongShape("outcomes and offsets must be vectors with one value per row")
        if not all(math.isfinite(float(column.sum())) for column in columns):
            raise NotFinite("outcomes or offsets contain NaN or infinite values")
        if not bool(((self.successes >= 0) & (self.successes <= self.trials)).all()):
            raise TableError("outcomes are outside the range of their kind: check the table")

    def __len__(self) -> int:
        return len(self.successes)

    def __getitem__(self, rows: slice) -> "Trials":
        return Trials(
            self.successes[rows], self.trials[rows], self.offset[rows], self.constant[rows]
        )


Rule = Callable[[Trials, Tensor, Tensor], Rows]
"""From the likelihood and the mean and variance of f, each (n,), to the rows' parabolas."""


def polya_gamma(rows: Trials, mean: Tensor, variance: Tensor) -> Rows:
    """Return the Pólya–Gamma bound's parabolas."""
    logits, half = mean + rows.offset, rows.trials / 2
    c = (logits.square() + variance).sqrt()
    weights = rows.trials * _weight(c)
    slope = rows.successes - half
    curve = rows.trials * (c / 2 + torch.log1p((-c).exp()))  # B·log 2cosh(c/2)
    return Rows(weights, slope - weights * rows.offset, slope * logits - curve + rows.constant)


def newton(rows: Trials, mean: Tensor, variance: Tensor) -> Rows:
    """Return the parabolas of expected slope and curvature."""
    logits = mean + rows.offset
    chance = expected(torch.sigmoid, logits, variance)
    weights = rows.trials * expected(
        lambda g: torch.sigmoid(g) * torch.sigmoid(-g), logits, variance
    )
    pulls = rows.successes - rows.trials * chance + weights * mean
    return Rows(weights, pulls, expected_log_density(rows, mean, variance))


def slope(rows: Trials, mean: Tensor, variance: Tensor) -> Tensor:
    """Return ∂E[log p]/∂m = a − B·E[s] of each row, (n,): Newton's κ − ωm, and at most B."""
    return rows.successes - rows.trials * expected(torch.sigmoid, mean + rows.offset, variance)


def expected_log_density(rows: Trials, mean: Tensor, variance: Tensor) -> Tensor:
    """Return E[log p(y | f)] of each row, (n,), for f ~ N(mean, variance)."""
    logits = mean + rows.offset
    curve = expected(lambda g: -logsigmoid(-g), logits, variance)
    return rows.successes * logits - rows.trials * curve + rows.constant


def local(
    table: Iterable[tuple[Tensor, Trials]],
    layer: Layer,
    *,
    rule: Rule = polya_gamma,
    grid: Grid | None = None,
) -> Weighted:
    """Return the hospital's sums at q, from chunks of features (rows, M) and their outcomes.

    With a grid, features are rounded before anything is computed from them.
    """
    rounded = (
        (phi if grid is None else on_grid(phi.double(), grid.features), rows) for phi, rows in table
    )
    return Weighted.of_chunks(
        ((phi, rule(rows, *layer.latent(phi))) for phi, rows in rounded),
        features=layer.features,
        grid=grid,
    )


def client_gradient(
    kernel: URK,
    x: Tensor,
    outcomes: Trials,
    layer: Layer,
    *,
    rule: Rule = polya_gamma,
    chunk_rows: int = CHUNK_ROWS,
) -> Tensor:
    """Return ∂/∂θ of the negative bound's part that depends on a client's rows: flat like θ.

    It is the gradient of ⟨G_S, S_ω⟩ + ⟨G_b, b⟩ with ω and κ held fixed at q; the sum over clients
    is the gradient of the pooled negative bound at q.
    """
    if len(x) != len(outcomes):
        raise WrongShape(
            f"x and outcomes must have the same number of rows, not {len(x)} and {len(outcomes)}"
        )
    gradient = torch.zeros(kernel.weights.shape, dtype=torch.float64)
    for part in chunks(len(x), kernel.spec.rows_at_a_time(chunk_rows)):
        phi, pullback = kernel.features_and_pullback(x[part])
        rows = rule(outcomes[part], *layer.latent(phi))
        gradient += pullback(feature_gradient(phi, rows, layer))
    if not torch.isfinite(gradient).all():
        raise NotFinite("the gradient contains NaN or infinite values: training has diverged")
    return gradient


def feature_gradient(features: Tensor, rows: Rows, layer: Layer) -> Tensor:
    """Return ∂/∂Φ of ⟨G_S, S_ω⟩ + ⟨G_b, b⟩ = 2ω·ΦG_S + κG_bᵀ, in the features' type."""
    scatter_gradient, cross_gradient = layer.gradient
    phi = features.detach().double()
    gradient = 2 * rows.weights.unsqueeze(1) * (phi @ scatter_gradient)
    gradient = gradient.addmm_(rows.pulls.unsqueeze(1), cross_gradient.mT)
    return gradient.to(features.dtype)


def _weight(c: Tensor) -> Tensor:
    """Return tanh(c/2)/2c, which is ¼ at 0."""
    small = c < _SMALL
    safe = c.masked_fill(small, 1.0)
    return torch.where(small, 0.25 - c.square() / 48, torch.tanh(safe / 2) / (2 * safe))

"""One of K classes: a softmax of K latent functions f_k = φᵀw_k that share Φ and λ.

    log p(y = k | f) = g_k − log Σ_j e^{g_j},   g = f + o,   q = Π_k N(w_k; μ_k, V_k)

As in `kernels.outcomes.logistic.newton`, each class has a parabola of expected slope and curvature,
with p = softmax(g) at q(f_k) = N(m_k, v_k):

    ω_k = E[p_k(1 − p_k)],   κ_k = 1[y = k] − E[p_k] + ω_k·m_k
    Σ_k t_k = E[log p(y)]

so K weighted sums, one for each class. Expectations are over a lattice of points m + √v·z
(`kernels.outcomes.quadrature.points`); ω_k is computed as E[p_k·z_k]/√v_k, equal to it by Stein's
lemma, which is minus twice the slope of the lattice's own E[log p] in v_k: the gradient is then
exactly that of the bound.

Classes are coupled by −p_j·p_k, which their parabolas leave out. Relative to the curvature that is
kept, a row's whole curvature has one eigenvalue 0 and K − 1 from 1 to 2, so a full step can be
twice too long, and ⅔ of it (`STRIDE`) leaves at most a third of the error. The 0 is a shift of all
f_k alike, which changes no probability: there the prior alone decides, Σμ_k = 0 at the optimum, and
`local` takes the mean over classes out of ω_k·m_k, so that the next q is there at once.

**Why not one class against the rest**, K yes/no outcomes: log odds against the rest are not linear
in φ where the softmax's are, and its probabilities have to be normalised afterwards. With 3 classes
drawn from softmaxes of logits twice and four times as large, 600 rows: held-out log loss .801,
.546, .320; here .793, .522, .274, as a dense softmax with its best ridge.
**Why not Böhning's bound**, whose curvature ½(I − 11ᵀ/K) ⊗ S needs S once and then only sums of
Φᵀ(Y − P), M·K numbers each: its curvature is that of maximal doubt everywhere, so V does not depend
on the outcomes, is too small wherever a class is nearly certain, and steps are short.
The price of K matrices is K·M(M + 1)/2 numbers a sum.

**Sensitivity** of one row, for the K blocks together: with ω_k clipped to [0, ¼], where it is but
for the lattice's error, S_ω moves by at most √K·‖φ‖²/4; with κ_k clipped to ±1, b by at most
√K·‖φ‖. |κ_k| exceeds 1 only where an offset or the lattice's error make it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from kernels.errors import NotFinite, TableError, WrongShape
from kernels.features.urk import URK
from kernels.outcomes.logistic import feature_gradient
from kernels.outcomes.quadrature import points
from kernels.outcomes.variational import Layer
from kernels.outcomes.weighted import Grid, Rows, Weighted, bounded
from kernels.reproducible import on_grid
from kernels.tables.chunks import CHUNK_ROWS, chunks

STRIDE = 2 / 3
"""The length of a step that is best for the worst of probabilities."""
_POINTS = 256
_ROWS_AT_A_TIME = 1024
_LEAST_VARIANCE = 1e-16
"""Below this √v·z would be lost in the rounding of m."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """The probabilities of the classes, which add up to 1, and their variances: (rows, K)."""

    mean: Tensor
    variance: Tensor


def rows_of(outcomes: Tensor, mean: Tensor, variance: Tensor, offsets: Tensor) -> tuple[Rows, ...]:
    """Return the K parabolas of outcomes (n,), from the mean and variance of f, each (n, K)."""
    z, classes = points(mean.shape[1], _POINTS), mean.shape[1]
    hot = one_hot(outcomes.long(), classes).double()
    deviation = variance.clamp_min(_LEAST_VARIANCE).sqrt()
    value, chance, weight = [], [], []
    for part in chunks(len(mean), _ROWS_AT_A_TIME):
        centre = (mean[part] + offsets).unsqueeze(1)
        logs = (centre + deviation[part].unsqueeze(1) * z).log_softmax(2)
        value.append((logs * hot[part].unsqueeze(1)).sum(2).mean(1))
        p = logs.exp()
        chance.append(p.mean(1))
        weight.append((p * z).mean(1) / deviation[part])
    if not value:
        none = mean.new_zeros(0)
        return (Rows(none, none, none),) * classes
    weights = torch.cat(weight).clamp(0.0, 0.25)
    pulls = hot - torch.cat(chance) + weights * mean
    terms = torch.cat(value) / classes  # E[log p] belongs to all classes alike
    return tuple(
        Rows(own, pull, terms) for own, pull in zip(weights.unbind(1), pulls.unbind(1), strict=True)
    )


def local(
    table: Iterable[tuple[Tensor, Tensor]],
    layers: Sequence[Layer],
    *,
    offsets: Sequence[float] | None = None,
    grid: Grid | None = None,
    clip: float | None = None,
) -> tuple[Weighted, ...]:
    """Return the hospital's K sums at q, from chunks of features (rows, M) and classes (rows,).

    clip: with differential privacy, the largest |κ|.
    """
    shift = _checked_offsets(offsets, len(layers))
    totals = [Weighted.zero(layer.features) for layer in layers]
    for features, outcomes in table:
        y = check_classes(outcomes, len(layers))
        phi = features if grid is None else on_grid(features.double(), grid.features)
        mean, variance = latent(layers, phi)
        centre = mean.mean(1)
        for level, rows in enumerate(rows_of(y, mean, variance, shift)):
            rows = replace(rows, pulls=rows.pulls - rows.weights * centre)
            rows = rows if clip is None else bounded(rows, clip)
            own = Weighted.of_chunks([(phi, rows)], features=phi.shape[1], grid=grid)
            totals[level] = totals[level] + own
    return tuple(totals)


def latent(
    layers: Sequence[Layer], features: Tensor, *, inducing: int = 0
) -> tuple[Tensor, Tensor]:
    """Return the means and variances of the K latent functions, each (rows, K).

    inducing: as in `Layer.latent`.
    """
    each = [layer.latent(features, inducing=inducing) for layer in layers]
    return torch.stack([own[0] for own in each], 1), torch.stack([own[1] for own in each], 1)


def client_gradient(
    kernel: URK,
    x: Tensor,
    outcomes: Tensor,
    layers: Sequence[Layer],
    *,
    offsets: Sequence[float] | None = None,
    chunk_rows: int = CHUNK_ROWS,
) -> Tensor:
    """Return ∂/∂θ of the negative bound's part that depends on a client's rows: flat like θ."""
    shift, y = _checked_offsets(offsets, len(layers)), check_classes(outcomes, len(layers))
    if len(x) != len(y):
        raise WrongShape(
            f"x and outcomes must have the same number of rows, not {len(x)} and {len(y)}"
        )
    gradient = torch.zeros(kernel.weights.shape, dtype=torch.float64)
    for part in chunks(len(x), kernel.spec.rows_at_a_time(chunk_rows)):
        phi, pullback = kernel.features_and_pullback(x[part])
        found = rows_of(y[part], *latent(layers, phi), shift)
        backward = torch.zeros_like(phi)
        for layer, rows in zip(layers, found, strict=True):
            backward += feature_gradient(phi, rows, layer)
        gradient += pullback(backward)
    if not torch.isfinite(gradient).all():
        raise NotFinite("the gradient contains NaN or infinite values: training has diverged")
    return gradient


def predict(
    mean: Tensor, variance: Tensor, *, offsets: Sequence[float] | None = None
) -> Prediction:
    """Return the probabilities from the means and variances of the latent functions, (rows, K)."""
    shift = _checked_offsets(offsets, mean.shape[1])
    found = []
    for part in chunks(len(mean), _ROWS_AT_A_TIME):
        p = _log_chances(mean[part] + shift, variance[part]).exp()
        found.append((p.mean(1), p.var(1, correction=0)))
    if not found:
        return Prediction(torch.zeros_like(mean), torch.zeros_like(mean))
    return Prediction(torch.cat([own[0] for own in found]), torch.cat([own[1] for own in found]))


def log_density(
    outcomes: Tensor, mean: Tensor, variance: Tensor, *, offsets: Sequence[float] | None = None
) -> Tensor:
    """Return log E[p_y] of each row, (rows,), finite also for a class out of the question."""
    shift, y = _checked_offsets(offsets, mean.shape[1]), check_classes(outcomes, mean.shape[1])
    found = [mean.new_zeros(0)]
    for part in chunks(len(mean), _ROWS_AT_A_TIME):
        logs = _log_chances(mean[part] + shift, variance[part])
        chosen = y[part].long()[:, None, None].expand(-1, logs.shape[1], 1)
        own = logs.gather(2, chosen).squeeze(2)
        found.append(own.logsumexp(1) - math.log(logs.shape[1]))
    return torch.cat(found)


def check_classes(outcomes: Tensor, classes: int) -> Tensor:
    """Return the classes as float64; refuse them unless they are integers from 0 to K − 1."""
    y = outcomes.detach().double()
    if classes < 2:
        raise TableError(f"an outcome must have at least two classes, not {classes}")
    if not bool(((y >= 0) & (y < classes) & (y == y.floor())).all()):
        raise TableError(f"a class must be an integer from 0 to {classes - 1} in every row")
    return y


def _log_chances(logits: Tensor, variance: Tensor) -> Tensor:
    """Return log softmax at the lattice's points, (rows, points, K)."""
    spread = variance.clamp_min(0.0).sqrt().unsqueeze(1) * points(logits.shape[1])
    return (logits.unsqueeze(1) + spread).log_softmax(2)


def _checked_offsets(offsets: Sequence[float] | None, classes: int) -> Tensor:
    if offsets is None:
        return torch.zeros(classes, dtype=torch.float64)
    if len(offsets) != classes:
        raise WrongShape(f"there must be one offset for each of {classes} classes")
    return torch.tensor(offsets, dtype=torch.float64)

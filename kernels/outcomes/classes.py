"""One of K classes: each class against the rest, K yes/no outcomes that share Φ.

A row of class k is a yes for k and a no for every other class (`kernels.outcomes.binary`), with one
latent function f_k = φᵀw_k, one λ_k and one weighted sum for each class. With s_k = E[s(f_k + o_k)]
the probability of a class is p_k = s_k/Σs_j; by the delta method, the f_k being independent under
q, its variance is Σ_j (1[j = k] − p_k)²·Var[s_j]/(Σs)².

Σ_k of the K bounds is also a bound of the evidence of the softmax likelihood with these f: as
Σe^{f_k} ≤ Π(1 + e^{f_k}), the product of K yes/no likelihoods is nowhere above the softmax.

**Why not Böhning's bound**, whose curvature ½(I − 11ᵀ/K) ⊗ S needs S once and then only sums of
Φᵀ(Y − P), M·K numbers each. Its curvature is that of maximal doubt everywhere. So V does not depend
on the outcomes and is too small wherever a class is nearly certain, and its steps are as short as
its curvature is large: 96 sums instead of 8 in a test. Here each class has the sums, the grids and
the sensitivities of a yes/no outcome. The price is K matrices a sum, K·M(M + 1)/2 numbers, and, if
log odds against the rest are not linear in φ, some log loss: with 3 classes drawn from a softmax
that is linear in φ, .801, .546, .320 where a softmax has .793, .521, .274 (600 rows, ever fewer
rows in doubt). A kernel that is not linear has less of that to lose.

**Sensitivity** of one row, for the K blocks together: S_ω moves by at most √K·‖φ‖²/4; b by at most
√K·‖φ‖/2 with the Pólya–Gamma bound and √K·‖φ‖ with Newton's parabolas; an offset o_k adds at most
|o_k|/4 to the factor of its class.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.errors import TableError, WrongShape
from kernels.outcomes import binary
from kernels.outcomes.logistic import Trials

_LEAST = 1e-150
"""No class is less probable than this beforehand; its square is still a float64."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """The probabilities of the classes, which add up to 1, and their variances: (rows, K)."""

    mean: Tensor
    variance: Tensor


def trials(
    outcomes: Tensor, *, classes: int, offsets: Sequence[float] | None = None
) -> tuple[Trials, ...]:
    """Return the K likelihoods of classes 0 … K − 1, (n,): one for each latent function."""
    y = outcomes.detach()
    if classes < 2:
        raise TableError(f"an outcome must have at least two classes, not {classes}")
    if not bool(((y >= 0) & (y < classes) & (y == y.floor())).all()):
        raise TableError(f"a class must be an integer from 0 to {classes - 1} in every row")
    offsets = _checked(offsets, classes)
    return tuple(
        binary.trials((y == level).double(), offset=offset) for level, offset in enumerate(offsets)
    )


def predict(
    mean: Tensor, variance: Tensor, *, offsets: Sequence[float] | None = None
) -> Prediction:
    """Return the probabilities from the means and variances of the latent functions, (rows, K)."""
    offsets = _checked(offsets, mean.shape[1])
    each = [
        binary.predict(m, v, offset=offset)
        for m, v, offset in zip(mean.unbind(1), variance.unbind(1), offsets, strict=True)
    ]
    # Far from all data every class may be out of the question: then they are alike.
    chances = torch.stack([own.mean for own in each], 1).clamp_min(_LEAST)
    total = chances.sum(1, keepdim=True)
    p = chances / total
    spread = torch.stack([own.variance for own in each], 1) / total.square()
    # Σ_j (1[j = k] − p_k)²·u_j = (1 − 2p_k)·u_k + p_k²·Σu
    around = (1 - 2 * p) * spread + p.square() * spread.sum(1, keepdim=True)
    # No probability with the mean p varies by more than p(1 − p), whatever the delta method says.
    return Prediction(p, around.clamp_min(0.0).minimum(p * (1 - p)))


def log_density(
    outcomes: Tensor, mean: Tensor, variance: Tensor, *, offsets: Sequence[float] | None = None
) -> Tensor:
    """Return log p_y of each row, (rows,)."""
    p = predict(mean, variance, offsets=offsets).mean
    return p.gather(1, outcomes.long().unsqueeze(1)).squeeze(1).log()


def _checked(offsets: Sequence[float] | None, classes: int) -> Sequence[float]:
    if offsets is None:
        return [0.0] * classes
    if len(offsets) != classes:
        raise WrongShape(f"there must be one offset for each of {classes} classes")
    return offsets

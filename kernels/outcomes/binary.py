"""A yes/no outcome: p(y = 1 | f) = s(f + o), the logistic function of the latent f = φᵀw.

It is one trial (`kernels.outcomes.logistic`): a = y, B = 1. The offset o is a number that everyone
knows, such as the logit of the share of events: f is then what a row's features add to it, and the
search starts near its end.

A probability is uncertain because f is; a prediction's `variance` is that of s(f + o) under q. The
variance of y itself would be p(1 − p), whatever is known.

**Sensitivity** of one row, added or removed: S_ω moves by at most ‖φ‖²/4, and b by at most
(½ + |o|/4)‖φ‖ with the Pólya–Gamma bound and (1 + |o|/4)‖φ‖ with Newton's parabolas (proof in
`kernels.outcomes.logistic`). Nothing has to be clipped.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.errors import TableError
from kernels.outcomes.logistic import Trials
from kernels.outcomes.quadrature import expected


@dataclass(frozen=True, eq=False)
class Prediction:
    """The probability of an event, E[s(f + o)], and its variance under q, each (rows,)."""

    mean: Tensor
    variance: Tensor


def trials(outcomes: Tensor, *, offset: float = 0.0) -> Trials:
    """Return the likelihood of outcomes 0 or 1, (n,)."""
    y = outcomes.detach().double()
    if not bool(((y == 0) | (y == 1)).all()):
        raise TableError("a yes/no outcome must be 0 or 1 in every row")
    return Trials(y, torch.ones_like(y), torch.full_like(y, offset), torch.zeros_like(y))


def base_offset(*, events: float, rows: float) -> float:
    """Return the logit of the share of events, as if there were half an event more of each kind.

    It is finite for sums without events, and for noisy sums.
    """
    rows = max(rows, 0.0)
    events = min(max(events, 0.0), rows)
    return math.log((events + 0.5) / (rows - events + 0.5))


def predict(mean: Tensor, variance: Tensor, *, offset: float = 0.0) -> Prediction:
    """Return the probability and its variance from the mean and variance of f, each (rows,)."""
    logits = mean + offset
    chance = expected(torch.sigmoid, logits, variance)
    square = expected(lambda g: torch.sigmoid(g).square(), logits, variance)
    return Prediction(chance, (square - chance.square()).clamp_min(0.0))


def log_density(outcomes: Tensor, mean: Tensor, variance: Tensor, *, offset: float = 0.0) -> Tensor:
    """Return log p(y) of each row, (rows,), accurate for the rarest of events."""
    sign = 2 * outcomes.double() - 1
    return expected(torch.sigmoid, sign * (mean + offset), variance).log()

"""Time to an event, perhaps censored: a yes/no outcome for each interval that a patient enters.

Public edges 0 < e₁ < … < e_J cut time into J intervals (e_{j−1}, e_j], e₀ = 0. The hazard h_j(x) is
the probability of the event in interval j for a patient who entered it, s(f + o) of a latent f that
depends on x and j; the likelihood of a time is that of its patient's yes/no rows, one per interval.
So the machinery is that of `kernels.outcomes.binary`, on the person-period table:

    event at t     a no for each interval before the one that contains t, and a yes for that one
    censored at t  a no for each interval that was survived as a whole: e_j ≤ t

An event at time 0 belongs to the first interval. Whoever is censored at an edge has survived the
interval that ends there; a part of an interval says nothing, so someone censored before e₁ has no
rows. Events after e_J are outside of what is asked: survived, a no for all J intervals. With edges
at all times of events and without features this is Kaplan–Meier's estimate.

    S(e_j) = Π_{i ≤ j} (1 − h_i)

The hazards of one patient share w, so their f are correlated. E[S] and Var[S] are means over points
of N(m, C), the same for everyone: each point is a falling curve, and so is their mean.

**Sensitivity.** A patient has up to J rows: J times that of a yes/no outcome, whatever the outcome.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.errors import PredictionError, TableError, WrongShape
from kernels.outcomes.quadrature import points


@dataclass(frozen=True, eq=False)
class Periods:
    """The person-period table: for each of its rows, the patient's row, the interval, the outcome.

    patient: (N,) indices into the patients' table. interval: (N,) 0 … J − 1. outcome: (N,) 0 or 1.
    """

    patient: Tensor
    interval: Tensor
    outcome: Tensor


@dataclass(frozen=True, eq=False)
class Prediction:
    """Survival S at the edges: its mean under q and its variance, each (rows, J)."""

    mean: Tensor
    variance: Tensor


def periods(times: Tensor, events: Tensor, edges: Tensor) -> Periods:
    """Return the rows of patients with times (n,) ≥ 0 and events (n,), 1 or, censored, 0."""
    ends, t, happened = check_edges(edges), times.detach().double(), events.detach().double()
    if t.ndim != 1 or happened.shape != t.shape:
        raise WrongShape("times and events must be vectors with one value per patient")
    if not bool(((t >= 0) & t.isfinite()).all()):
        raise TableError("a time must be finite and at least 0 in every row")
    if not bool(((happened == 0) | (happened == 1)).all()):
        raise TableError("an event must be 0 or 1 in every row")
    survived, yes = _survived(t, happened, ends)
    entered = survived + yes
    patient = torch.arange(len(t)).repeat_interleave(entered)
    first = (entered.cumsum(0) - entered)[patient]
    interval = torch.arange(len(patient)) - first
    last = yes[patient].bool() & (interval == survived[patient])
    return Periods(patient, interval, last.double())


def predict(mean: Tensor, covariance: Tensor) -> Prediction:
    """Return survival from the latent logits of the J hazards: means (rows, J), offsets included.

    covariance: their covariances, (rows, J, J).
    """
    if covariance.shape != (*mean.shape, mean.shape[-1]):
        raise WrongShape("covariance must have shape (rows, J, J) for means of shape (rows, J)")
    values, vectors = torch.linalg.eigh((covariance + covariance.mT) / 2)
    root = vectors * values.clamp_min(0.0).sqrt().unsqueeze(-2)
    logits = mean.unsqueeze(1) + points(mean.shape[1]) @ root.mT
    curves = torch.nn.functional.logsigmoid(-logits).cumsum(2).exp()
    return Prediction(curves.mean(1), curves.var(1, correction=0))


def log_density(survival: Tensor, times: Tensor, events: Tensor, edges: Tensor) -> Tensor:
    """Return log p of each patient's outcome, (rows,), from mean survival (rows, J).

    It is log[S(e_{j−1}) − S(e_j)] for an event in interval j, and log S(e_j) for the last edge that
    someone censored has survived.
    """
    survived, yes = _survived(times.double(), events.double(), check_edges(edges))
    whole = torch.cat([torch.ones_like(survival[:, :1]), survival, survival[:, -1:]], 1)
    before = whole.gather(1, survived.unsqueeze(1)).squeeze(1)
    after = whole.gather(1, survived.unsqueeze(1) + 1).squeeze(1)
    least = torch.finfo(torch.float64).tiny
    return torch.where(yes.bool(), before - after, before).clamp_min(least).log()


def risk(survival: Tensor, edges: Tensor, horizon: float) -> Tensor:
    """Return 1 − S(horizon), (rows,); between edges S is linear."""
    ends = check_edges(edges)
    if not 0 <= horizon <= float(ends[-1]):
        raise PredictionError(
            f"the horizon must be from 0 to the last edge, {float(ends[-1]):g}, not {horizon:g}: "
            "nothing is known beyond it"
        )
    knots, whole = _from_zero(survival, ends)
    right = max(1, int(torch.searchsorted(knots, torch.tensor(horizon, dtype=torch.float64))))
    share = (horizon - float(knots[right - 1])) / float(knots[right] - knots[right - 1])
    return 1 - whole[:, right - 1] - share * (whole[:, right] - whole[:, right - 1])


def median(survival: Tensor, edges: Tensor) -> Tensor:
    """Return the time at which S is ½, (rows,); infinite if it is above ½ at the last edge."""
    knots, whole = _from_zero(survival, check_edges(edges))
    below = whole <= 0.5
    right = below.double().argmax(1).clamp_min(1)
    left = right - 1
    high, low = (whole.gather(1, at.unsqueeze(1)).squeeze(1) for at in (left, right))
    share = (high - 0.5) / (high - low).clamp_min(torch.finfo(torch.float64).tiny)
    found = knots[left] + share * (knots[right] - knots[left])
    return torch.where(below.any(1), found, math.inf)


def check_edges(edges: Tensor) -> Tensor:
    """Return the edges as float64; refuse them unless they are positive and rise."""
    ends = edges.detach().double()
    if ends.ndim != 1 or len(ends) < 1 or not bool(ends.isfinite().all()):
        raise WrongShape("edges must be a vector of at least one finite number")
    if float(ends[0]) <= 0 or not bool((ends.diff() > 0).all()):
        raise TableError("edges must be positive and in rising order")
    return ends


def _survived(times: Tensor, events: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many intervals were survived as a whole, and whether the next has an event."""
    times = times.contiguous()
    reached = torch.searchsorted(ends, times, right=True)  # how many edges are at or before t
    before = torch.searchsorted(ends, times)  # how many edges are before t
    yes = (events == 1) & (before < len(ends))
    return torch.where(events == 1, before, reached), yes.long()


def _from_zero(survival: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    if survival.ndim != 2 or survival.shape[1] != len(ends):
        raise WrongShape(f"survival must have one column for each of {len(ends)} edges")
    return (
        torch.cat([torch.zeros_like(ends[:1]), ends]),
        torch.cat([torch.ones_like(survival[:, :1]), survival], 1),
    )

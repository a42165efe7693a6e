"""Scores of a time to an event, perhaps censored, from one table of how it ended by risk.

As in `kernels.outcomes.time_to_event`, public edges cut time into J intervals. Each patient ends in
one of 2J + 1 ways: with the event in interval j = 1 … J, or without it after having survived
s = 0 … J intervals as a whole. Patients are counted by this end and by the log odds of the risk
1 − S(horizon) that was predicted. From this one table follow

**Concordance**: of a patient with the event in interval j and one known to be without it at e_j,
the first should have the greater risk (`ranking`).

**Calibration at the horizon**: in groups of equal mass by predicted risk, the mean of that risk and
1 − Kaplan–Meier's estimate in the group.

**The law of censoring** G. Whoever survives s intervals and is then censored counts as censored at
e_s, before the events of the next interval. With R_s patients who reached e_s and c_s censored
there,

    G_j = Π_{s ≤ j} (1 − c_s/R_s),   j = 0 … J − 1

is the probability of being observed in the interval after e_j.

**The integrated Brier score** [Graf99] weighs those who are observed by 1/G:

    BS(e_t) = 1/N·[Σ_{j ≤ t} Σ_{event in j} S(e_t)²/G_{j−1} + Σ_{survived t} (1 − S(e_t))²/G_{t−1}]

G is known only after the sum, so the squares are summed by the interval of the event, (J, J), and
for survivors, (J,), and weighted afterwards. BS(0) = 0, and the score is the trapezoid rule's mean
from 0 to e_J.

**Log loss**: −log[S(e_{j−1}) − S(e_j)] for an event in interval j, −log S(e_s) otherwise, on
average over patients who survived an interval or had the event.

**With noise** three blocks are summed. The table in coarse bins: a patient is in one cell, so it
changes by 1. The squares: of each edge a patient adds at most one number of at most 1, so they
change by √J. Log losses, clipped at 8 nats: by 8.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from kernels.outcomes import time_to_event
from kernels.outcomes.scored.logit_bins import COARSE, MEDIUM, from_coarse
from kernels.outcomes.scored.ranking import concordance
from kernels.outcomes.scored.reliability import Curve, merged
from kernels.outcomes.scored.summed import (
    LOG_LOSS_BOUND,
    RESOLUTION,
    Scored,
    SumBlock,
    check_some,
)
from kernels.reproducible import on_grid
from kernels.tables.targets import TimeToEvent

_CLIPPED = 8.0
_LEAST = 1e-300
_MOST_LOGIT = 40.0


@dataclass(frozen=True, eq=False)
class Predicted:
    """Mean survival at the edges, (n, J), from 1 downwards."""

    survival: Tensor

    def hazard_logits(self) -> Tensor:
        """Return the log odds of the event in each interval for those who enter it, (n, J)."""
        before = torch.cat([torch.ones_like(self.survival[:, :1]), self.survival[:, :-1]], 1)
        events = (before - self.survival).clamp_min(_LEAST)
        logits = events.log() - self.survival.clamp_min(_LEAST).log()
        return logits.clamp(-_MOST_LOGIT, _MOST_LOGIT)

    def risks(self, target: TimeToEvent) -> Tensor:
        """Return the risk of the event until the horizon, (n,)."""
        return time_to_event.risk(self.survival, edges_of(target), target.risk_at)

    def __getitem__(self, rows: Tensor) -> "Predicted":
        return Predicted(self.survival[rows])


@dataclass(frozen=True)
class Quality:
    """Scores of a time to an event.

    events: those up to the last edge. concordance: None if no pair can be compared. brier: BS at
    each edge. curve, ece: risks at the horizon, observed by Kaplan–Meier's estimate. observed: the
    probability of not being censored before each interval.
    """

    rows: float
    events: float
    log_loss: float
    concordance: float | None
    integrated_brier: float
    brier: tuple[float, ...]
    ece: float
    curve: Curve
    observed: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Sums(Scored[TimeToEvent, Predicted]):
    """Sums over patients of a time to an event."""

    STORED_AS: ClassVar[str] = "outcome.time_to_event.sums"

    ends: Tensor
    """(2J + 1, MEDIUM.count) patients with the event in each interval, then without it after
    0 … J intervals, by the log odds of the predicted risk."""
    event_squares: Tensor
    """(J, J) Σ S(e_t)² of patients with the event in interval j ≤ t; 0 below the diagonal."""
    survivor_squares: Tensor
    """(J,) Σ (1 − S(e_t))² of patients known to be without the event at e_t."""
    log_losses: Tensor
    """() Σ log loss, each at most LOG_LOSS_BOUND."""

    @classmethod
    def blocks(cls, target: TimeToEvent) -> tuple[SumBlock, ...]:
        """Return the four blocks."""
        j = len(target.intervals)
        return (
            SumBlock("ends", (2 * j + 1, MEDIUM.count), 1.0, 1.0),
            SumBlock("event_squares", (j, j), 1.0, RESOLUTION),
            SumBlock("survivor_squares", (j,), 1.0, RESOLUTION),
            SumBlock("log_losses", (), LOG_LOSS_BOUND, RESOLUTION),
        )

    @classmethod
    def few_blocks(cls, target: TimeToEvent) -> tuple[SumBlock, ...]:
        """Return the coarse table, the squares of events and survivors, and clipped log losses."""
        j = len(target.intervals)
        return (
            SumBlock("ends", (2 * j + 1, COARSE.count), 1.0, 1.0, 1.0),
            SumBlock("squares", (j + 1, j), 1.0, RESOLUTION, math.sqrt(j)),
            SumBlock("log_losses", (), _CLIPPED, RESOLUTION, _CLIPPED),
        )

    @classmethod
    def of(cls, target: TimeToEvent, outcomes: Tensor, predicted: Predicted) -> "Sums":
        """Return the sums over patients with outcomes (n, 2): times, and 1 for an event."""
        end, logits = _ends(target, outcomes), _risk_logits(target, predicted)
        squares = _squares(target, end, predicted)
        return cls(
            MEDIUM.by_group(logits, end, 2 * len(target.intervals) + 1),
            squares[:-1],
            squares[-1],
            _losses(target, outcomes, predicted).clamp_max(LOG_LOSS_BOUND).sum(),
        )

    @classmethod
    def few(cls, target: TimeToEvent, outcomes: Tensor, predicted: Predicted) -> dict[str, Tensor]:
        """Return the three blocks over patients."""
        end, logits = _ends(target, outcomes), _risk_logits(target, predicted)
        return {
            "ends": COARSE.by_group(logits, end, 2 * len(target.intervals) + 1),
            "squares": _squares(target, end, predicted),
            "log_losses": _losses(target, outcomes, predicted).clamp_max(_CLIPPED).sum(),
        }

    @classmethod
    def from_noisy(cls, target: TimeToEvent, totals: Mapping[str, Tensor]) -> "Sums":
        """Return valid sums from noisy totals: squares are at most as many as their patients."""
        ends = from_coarse(totals["ends"], MEDIUM)
        j, by_end = len(target.intervals), ends.sum(1)
        most = torch.cat([by_end[:j], _reached(by_end)[1:].max().unsqueeze(0)])
        squares = totals["squares"].clamp_min(0.0).minimum(most.unsqueeze(1))
        events = squares[:-1].triu()
        survivors = squares[-1].minimum(_reached(by_end)[1:])
        losses = totals["log_losses"].clamp(0.0, _CLIPPED * float(by_end.sum()))
        return cls(ends, *(on_grid(own, RESOLUTION) for own in (events, survivors, losses)))

    @property
    def row_count(self) -> float:
        """The number of rows, or with noise an estimate of it."""
        return float(self.ends.sum())

    def quality(self, target: TimeToEvent) -> Quality:
        """Return the scores; refuse sums without patients."""
        rows = check_some(self.row_count)
        j = len(target.intervals)
        events, by_end = self.ends[:j], self.ends.sum(1)
        informative = max(rows - float(by_end[j]), 1.0)
        observed = _observed(by_end)
        brier = self._brier(observed, rows)
        curve = self._curve(target)
        knots = torch.tensor([0.0, *target.intervals], dtype=torch.float64)
        whole = torch.cat([torch.zeros(1, dtype=torch.float64), brier])
        return Quality(
            rows,
            float(events.sum()),
            float(self.log_losses) / informative,
            concordance(events, _reached(self.ends)[1:]),
            float(torch.trapezoid(whole, knots) / knots[-1]),
            tuple(brier.tolist()),
            curve.ece(),
            curve,
            tuple(observed.tolist()),
        )

    def _brier(self, observed: Tensor, rows: float) -> Tensor:
        """Return BS at the edges, (J,); nobody is observed where G is 0, nor weighted."""
        weights = torch.where(observed > 0, 1 / observed.clamp_min(_LEAST), 0.0)
        events = (self.event_squares * weights.unsqueeze(1)).sum(0)
        return (events + self.survivor_squares * weights) / rows

    def _curve(self, target: TimeToEvent) -> Curve:
        """Return predicted and observed risks at the horizon, in groups of equal mass."""
        j, rows = len(target.intervals), self.ends.sum(0)
        ends, said, n = merged(rows, self.ends, rows * torch.sigmoid(MEDIUM.centres), rows)
        entered = _reached(ends)[:-1] - ends[j:-1]
        hazards = torch.where(entered > 0, ends[:j] / entered.clamp_min(_LEAST), 0.0)
        survival = (1 - hazards).clamp(0.0, 1.0).cumprod(0).mT
        return Curve.of(said / n, Predicted(survival).risks(target), n)


def edges_of(target: TimeToEvent) -> Tensor:
    """Return the ends of the intervals, (J,)."""
    return torch.tensor(target.intervals, dtype=torch.float64)


def _reached(ends: Tensor) -> Tensor:
    """Return patients who reached e_0 … e_J without the event and observed, (J + 1, …)."""
    j = len(ends) // 2
    none = torch.zeros_like(ends[:1])
    return torch.cat([ends[:j], none]).flip(0).cumsum(0).flip(0) + ends[j:].flip(0).cumsum(0).flip(
        0
    )


def _observed(by_end: Tensor) -> Tensor:
    """Return G_0 … G_{J−1} from the numbers of patients by end, (2J + 1,)."""
    j = len(by_end) // 2
    reached = _reached(by_end)[:-1]
    censored = torch.where(reached > 0, by_end[j:-1] / reached.clamp_min(_LEAST), 0.0)
    return (1 - censored).clamp(0.0, 1.0).cumprod(0)


def _ends(target: TimeToEvent, outcomes: Tensor) -> Tensor:
    """Return the end of each patient, (n,): 0 … J − 1 with the event, J … 2J without."""
    j, n = len(target.intervals), len(outcomes)
    found = time_to_event.periods(outcomes[:, 0], outcomes[:, 1], edges_of(target))
    rows = torch.bincount(found.patient, minlength=n)
    happened = torch.bincount(found.patient[found.outcome == 1], minlength=n)
    return torch.where(happened == 1, rows - 1, rows + j)


def _risk_logits(target: TimeToEvent, predicted: Predicted) -> Tensor:
    return torch.logit(predicted.risks(target).clamp(0.0, 1.0), eps=1e-15)


def _squares(target: TimeToEvent, end: Tensor, predicted: Predicted) -> Tensor:
    """Return squares by the interval of the event, then those of survivors, (J + 1, J)."""
    j, s = len(target.intervals), predicted.survival.clamp(0.0, 1.0)
    edge = torch.arange(j)
    happened = end < j
    # Whoever has the event in interval i is without it at the edges before, also at e_{i−1}.
    known = torch.where(happened, end, end - j).unsqueeze(1) > edge
    survivors = ((1 - s).square() * known).sum(0)
    after = s.square() * (~known & happened.unsqueeze(1))
    events = torch.zeros(j, j, dtype=torch.float64).index_add(0, end[happened], after[happened])
    return torch.cat([events, survivors.unsqueeze(0)])


def _losses(target: TimeToEvent, outcomes: Tensor, predicted: Predicted) -> Tensor:
    edges = edges_of(target)
    return -time_to_event.log_density(predicted.survival, outcomes[:, 0], outcomes[:, 1], edges)

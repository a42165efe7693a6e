"""Recalibration of a time to an event: a rising map of the log odds of its hazards.

A patient is a yes/no outcome for each interval entered (`kernels.outcomes.time_to_event`), whose
predicted log odds are those of the hazard under mean survival, [S(e_{j−1}) − S(e_j)]/S(e_j). Their
histogram by outcome gives the same map as that of a yes/no outcome
(`kernels.outcomes.scored.logit_map`), for all intervals alike, and recalibrated hazards give
survival again. There are no conformal sets (`kernels.outcomes.scored.conformal` says why).

**With noise** the histogram is coarse and has no folds. A patient has up to J rows, all of which
can be in one bin: it changes by at most J.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import logsigmoid

from kernels.outcomes import time_to_event
from kernels.outcomes.scored.logit_bins import COARSE, FINE, from_coarse
from kernels.outcomes.scored.logit_map import LogitMap
from kernels.outcomes.scored.summed import HeldOut, SumBlock, in_folds
from kernels.outcomes.scored.time_to_event import Predicted, edges_of
from kernels.scores.recalibration import FOLDS
from kernels.tables.targets import TimeToEvent


@dataclass(frozen=True, eq=False)
class Held(HeldOut[TimeToEvent, Predicted]):
    """Held-out patients' intervals."""

    STORED_AS: ClassVar[str] = "outcome.time_to_event.held"

    hazards: Tensor
    """(FOLDS, 2, FINE.count) intervals by fold, outcome and log odds of the hazard."""

    @classmethod
    def blocks(cls, target: TimeToEvent) -> tuple[SumBlock, ...]:
        """Return the histogram."""
        most = float(len(target.intervals))
        return (SumBlock("hazards", (FOLDS, 2, FINE.count), most, 1.0),)

    @classmethod
    def few_blocks(cls, target: TimeToEvent) -> tuple[SumBlock, ...]:
        """Return the coarse histogram."""
        most = float(len(target.intervals))
        return (SumBlock("hazards", (2, COARSE.count), most, 1.0, most),)

    @classmethod
    def of(
        cls, target: TimeToEvent, outcomes: Tensor, predicted: Predicted, folds: Tensor
    ) -> "Held":
        """Return the histogram of patients with outcomes (n, 2) and folds (n,)."""
        logits, happened, patient = _intervals(target, outcomes, predicted)
        group = 2 * folds.long()[patient] + happened.long()
        return cls(FINE.by_group(logits, group, 2 * FOLDS).view(FOLDS, 2, -1))

    @classmethod
    def few(cls, target: TimeToEvent, outcomes: Tensor, predicted: Predicted) -> dict[str, Tensor]:
        """Return the coarse histogram over patients."""
        logits, happened, _ = _intervals(target, outcomes, predicted)
        return {"hazards": COARSE.by_group(logits, happened, 2)}


@dataclass(frozen=True, eq=False)
class Calibration:
    """A time's map of the log odds of hazards, with the intervals that it was fitted to."""

    STORED_AS: ClassVar[str] = "outcome.time_to_event.calibration"

    held: Held
    mapped: LogitMap

    @classmethod
    def of(
        cls, target: TimeToEvent, held: Held, *, dispersion: float | None = None
    ) -> "Calibration":
        """Return the recalibration of held-out patients; without any, it changes nothing."""
        return cls(held, LogitMap.of(held.hazards))

    @classmethod
    def from_noisy(
        cls,
        target: TimeToEvent,
        totals: Mapping[str, Tensor],
        noise: Mapping[str, float],
        *,
        dispersion: float | None = None,
    ) -> "Calibration":
        """Return the recalibration of noisy totals, with the deviation of each block's noise."""
        hazards = in_folds(from_coarse(totals["hazards"], FINE))
        return cls(Held(hazards), LogitMap.from_noisy(totals["hazards"], noise=noise["hazards"]))

    def check(self, target: TimeToEvent) -> None:
        """Refuse what cannot be this target's; it may come from untrusted bytes."""
        self.held.check(target)

    def without(self, fold: int) -> "Calibration":
        """Return the recalibration of the other fold, by a map of the same form."""
        held = self.held.without(fold)
        return Calibration(held, self.mapped.again(held.hazards))

    def apply(self, predicted: Predicted) -> Predicted:
        """Return the recalibrated prediction."""
        logits = self.mapped(predicted.hazard_logits())
        return Predicted(logsigmoid(-logits).cumsum(1).exp())

    def covered(self, target: TimeToEvent, outcomes: Tensor, predicted: Predicted) -> None:
        """Return None: there are no conformal sets of censored times."""

    def few_covered(self, target: TimeToEvent, outcomes: Tensor, predicted: Predicted) -> None:
        """Return None: there are no conformal sets of censored times."""


def _intervals(
    target: TimeToEvent, outcomes: Tensor, predicted: Predicted
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the log odds of each interval entered, its outcome, and the patient's row."""
    found = time_to_event.periods(outcomes[:, 0], outcomes[:, 1], edges_of(target))
    logits = predicted.hazard_logits()[found.patient, found.interval]
    return logits, found.outcome, found.patient

"""Predictions of one outcome from rows of features, whatever its kind.

    kind            mean and variance                       further
    binary          P(event) and its variance under q       probabilities of both levels
    classes         P(class) of each class, and variances   probabilities
    count           E[y], and the variance of a new count   the variance of E[y] under q
    time_to_event   the risk by the horizon, and variance   S at the edges, its variance, the median

The latent mean and variance are those of f + o, the logit or the logarithm of the rate, as the
model has them. Recalibration (`kernels.outcomes.scored`) changes means and variances, and not the
latent ones: a variance changes by the square of the slope of the map from the model's probability
to the recalibrated one. Conformal sets, and intervals of counts, contain a new row's outcome with
at least the stated probability.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor

from kernels.errors import NotFitted, PredictionError
from kernels.outcomes import binary, classes, count, time_to_event
from kernels.outcomes.fitted import FittedOutcome
from kernels.outcomes.likelihood import Likelihood
from kernels.outcomes.scored import binary as scored_binary
from kernels.outcomes.scored import classes as scored_classes
from kernels.outcomes.scored import count_law
from kernels.outcomes.scored import time_to_event as scored_times
from kernels.tables.targets import Binary, Classes, Count, Outcome, TimeToEvent


@dataclass(frozen=True, eq=False, repr=False)
class OutcomePrediction:
    """Predictions of n rows for one outcome; the repr shows none.

    mean, variance: (n,), for classes (n, K). latent_mean, latent_variance: (n, L), for a time to an
    event (n, J), those of its intervals' hazards. expectation_variance: of a count, how uncertain
    its expectation is, (n,). survival, survival_variance: of a time to an event, at the edges,
    (n, J). median: (n,), infinite where survival is above ½ at the last edge.
    said: what the model says, not recalibrated, from which sets and intervals follow.
    calibration: the recalibration; None if the program has no such stage.
    """

    target: Outcome
    mean: Tensor
    variance: Tensor
    latent_mean: Tensor
    latent_variance: Tensor
    expectation_variance: Tensor | None = None
    survival: Tensor | None = None
    survival_variance: Tensor | None = None
    median: Tensor | None = None
    said: Any = None
    calibration: Any = None

    def sets(self, level: float) -> Tensor:
        """Return which levels are in each row's set, (n, K) of bool, in the order of the schema."""
        found: Tensor = self._calibrated(Binary, Classes).sets(self.said, level)
        if isinstance(self.target, Binary) and self.target.event == self.target.levels[0]:
            return found.flip(1)
        return found

    def interval(self, level: float) -> tuple[Tensor, Tensor]:
        """Return the least and the greatest count of each row's interval, each (n,)."""
        found: tuple[Tensor, Tensor] = self._calibrated(Count).interval(self.said, level)
        return found

    def _calibrated(self, *kinds: type[Outcome]) -> Any:
        if not isinstance(self.target, kinds):
            raise PredictionError(
                f"the target {self.target.name!r} is of another kind: sets are for yes/no targets "
                "and classes, intervals for counts"
            )
        if self.calibration is None:
            raise NotFitted(
                "the model lacks the result of the stage 'recalibration': sets and intervals of "
                f"{self.target.name!r} need held-out rows"
            )
        return self.calibration

    @property
    def probabilities(self) -> Tensor:
        """P of each level in the order of the schema, (n, K); of a binary target, of both."""
        match self.target:
            case Binary():
                both = torch.stack([1 - self.mean, self.mean], 1)
                return both if self.target.event == self.target.levels[1] else both.flip(1)
            case Classes():
                return self.mean
        raise PredictionError(
            f"{self.target.name!r} is not a yes or no, nor one of several classes: it has no "
            "probabilities of levels"
        )

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the predictions of consecutive rows, at least one piece, as one."""
        if len(parts) == 1:
            return parts[0]
        columns = {
            field.name: torch.cat([getattr(part, field.name) for part in parts])
            for field in fields(cls)
            if isinstance(getattr(parts[0], field.name), Tensor)
        }
        first, said = parts[0].said, [vars(part.said) for part in parts]
        whole = {
            name: torch.cat([own[name] for own in said])
            for name, value in said[0].items()
            if isinstance(value, Tensor)
        }
        return replace(parts[0], **columns, said=replace(first, **whole))  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.mean)

    def __repr__(self) -> str:
        return f"OutcomePrediction({len(self)} rows of {self.target.name})"


def predict_outcome(
    outcome: Outcome,
    fitted: FittedOutcome,
    features: Tensor,
    *,
    exposure: Tensor | None = None,
    calibration: Any = None,
    inducing: int = 0,
) -> OutcomePrediction:
    """Return predictions for rows of features, (n, M), which may be none.

    exposure: (n,), of a count; 1 if it is not given. calibration: the recalibration, if any.
    inducing: how many features are inducing, the first ones.
    """
    found = _of_model(outcome, fitted, features, exposure, inducing)
    return found if calibration is None else _recalibrated(found, calibration)


def _of_model(
    outcome: Outcome,
    fitted: FittedOutcome,
    features: Tensor,
    exposure: Tensor | None,
    inducing: int,
) -> OutcomePrediction:
    """Return what the model says, without its recalibration."""
    match outcome:
        case Binary():
            mean, variance = fitted.layers[0].latent(features, inducing=inducing)
            found = binary.predict(mean, variance, offset=fitted.offsets[0])
            return OutcomePrediction(
                outcome,
                found.mean,
                found.variance,
                (mean + fitted.offsets[0]).unsqueeze(1),
                variance.unsqueeze(1),
                said=scored_binary.Predicted.of(mean, variance, offset=fitted.offsets[0]),
            )
        case Classes():
            mean, variance = classes.latent(fitted.layers, features, inducing=inducing)
            of_classes = classes.predict(mean, variance, offsets=fitted.offsets)
            shift = torch.tensor(fitted.offsets, dtype=torch.float64)
            return OutcomePrediction(
                outcome,
                of_classes.mean,
                of_classes.variance,
                mean + shift,
                variance,
                said=scored_classes.Predicted.of_chances(of_classes.mean),
            )
        case Count():
            mean, variance = fitted.layers[0].latent(features, inducing=inducing)
            of_counts = count.predict(
                mean,
                variance,
                dispersion=fitted.dispersion or 1.0,
                exposure=exposure,
                offset=fitted.offsets[0],
            )
            return OutcomePrediction(
                outcome,
                of_counts.mean,
                of_counts.observation_variance,
                (mean + fitted.offsets[0]).unsqueeze(1),
                variance.unsqueeze(1),
                expectation_variance=of_counts.variance,
                said=count_law.Predicted.of(
                    mean,
                    variance,
                    offset=fitted.offsets[0],
                    exposure=torch.ones_like(mean) if exposure is None else exposure,
                    dispersion=fitted.dispersion or 1.0,
                ),
            )
        case TimeToEvent():
            return _of_times(outcome, fitted, features, inducing)


def _of_times(
    outcome: TimeToEvent, fitted: FittedOutcome, features: Tensor, inducing: int
) -> OutcomePrediction:
    edges = torch.tensor(outcome.intervals, dtype=torch.float64)
    at = Likelihood(outcome, fitted, inducing=inducing)
    survival = at.survival(features)
    risk = time_to_event.risk(survival.mean, edges, outcome.risk_at)
    # Between edges S is linear, and so, nearly, is its deviation.
    deviation = time_to_event.risk(1 - survival.variance.sqrt(), edges, outcome.risk_at)
    mean, variance = at.hazards(features)
    return OutcomePrediction(
        outcome,
        risk,
        deviation.square(),
        mean,
        variance,
        survival=survival.mean,
        survival_variance=survival.variance,
        median=time_to_event.median(survival.mean, edges),
        said=scored_times.Predicted(survival.mean),
    )


def _recalibrated(found: OutcomePrediction, calibration: Any) -> OutcomePrediction:
    """Return a prediction with recalibrated means and variances."""
    after = calibration.apply(found.said)
    match found.target:
        case Binary() | Classes():
            mean = after.chances
            variance = _carried(found.variance, found.said.chances, mean)
            return replace(found, mean=mean, variance=variance, calibration=calibration)
        case Count():
            of_counts = count.predict(after.logs, after.variance, dispersion=after.dispersion)
            return replace(
                found,
                mean=of_counts.mean,
                variance=of_counts.observation_variance,
                expectation_variance=of_counts.variance,
                calibration=calibration,
            )
        case TimeToEvent():
            return _recalibrated_times(found, found.target, after.survival, calibration)


def _recalibrated_times(
    found: OutcomePrediction, outcome: TimeToEvent, survival: Tensor, calibration: Any
) -> OutcomePrediction:
    edges = torch.tensor(outcome.intervals, dtype=torch.float64)
    before = found.said.survival
    own = torch.zeros_like(survival) if found.survival_variance is None else found.survival_variance
    variance = _carried(own, before, survival)
    deviation = time_to_event.risk(1 - variance.sqrt(), edges, outcome.risk_at)
    return replace(
        found,
        mean=time_to_event.risk(survival, edges, outcome.risk_at),
        variance=deviation.square(),
        survival=survival,
        survival_variance=variance,
        median=time_to_event.median(survival, edges),
        calibration=calibration,
    )


def _carried(variance: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """Return variances of probabilities after a map that shifts log odds: its slope squared."""
    least = torch.finfo(torch.float64).tiny
    slope = (after * (1 - after)) / (before * (1 - before)).clamp_min(least)
    return (variance * slope.square()).minimum(after * (1 - after))

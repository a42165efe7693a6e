"""Predictions of one outcome from rows of features, whatever its kind.

    kind            mean and variance                       further
    binary          P(event) and its variance under q       probabilities of both levels
    classes         P(class) of each class, and variances   probabilities
    count           E[y], and the variance of a new count   the variance of E[y] under q
    time_to_event   the risk by the horizon, and variance   S at the edges, its variance, the median

The latent mean and variance are those of f + o, the logit or the logarithm of the rate, as the
model has them. Recalibration (`kernels.outcomes.scored`) changes mean and variance, and not the
latent ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor

from kernels.errors import PredictionError
from kernels.outcomes import binary, classes, count, time_to_event
from kernels.outcomes.fitted import FittedOutcome
from kernels.outcomes.likelihood import Likelihood
from kernels.tables.targets import Binary, Classes, Count, Outcome, TimeToEvent


@dataclass(frozen=True, eq=False, repr=False)
class OutcomePrediction:
    """Predictions of n rows for one outcome; the repr shows none.

    mean, variance: (n,), for classes (n, K). latent_mean, latent_variance: (n, L), for a time to an
    event (n, J), those of its intervals' hazards. expectation_variance: of a count, how uncertain
    its expectation is, (n,). survival, survival_variance: of a time to an event, at the edges,
    (n, J). median: (n,), infinite where survival is above ½ at the last edge.
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
        values = {
            field.name: None
            if getattr(parts[0], field.name) is None
            else torch.cat([getattr(part, field.name) for part in parts])
            for field in fields(cls)
            if field.name != "target"
        }
        return cls(parts[0].target, **values)  # type: ignore[arg-type]

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
) -> OutcomePrediction:
    """Return predictions for rows of features, (n, M), which may be none.

    exposure: (n,), of a count; 1 if it is not given.
    """
    match outcome:
        case Binary():
            mean, variance = fitted.layers[0].latent(features)
            found = binary.predict(mean, variance, offset=fitted.offsets[0])
            return OutcomePrediction(
                outcome,
                found.mean,
                found.variance,
                (mean + fitted.offsets[0]).unsqueeze(1),
                variance.unsqueeze(1),
            )
        case Classes():
            mean, variance = classes.latent(fitted.layers, features)
            of_classes = classes.predict(mean, variance, offsets=fitted.offsets)
            shift = torch.tensor(fitted.offsets, dtype=torch.float64)
            return OutcomePrediction(
                outcome, of_classes.mean, of_classes.variance, mean + shift, variance
            )
        case Count():
            mean, variance = fitted.layers[0].latent(features)
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
            )
        case TimeToEvent():
            return _of_times(outcome, fitted, features)


def _of_times(outcome: TimeToEvent, fitted: FittedOutcome, features: Tensor) -> OutcomePrediction:
    edges = torch.tensor(outcome.intervals, dtype=torch.float64)
    at = Likelihood(outcome, fitted)
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
    )

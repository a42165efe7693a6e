"""One outcome at one q, whatever its kind: what a hospital computes from features and outcomes.

    sums                the weighted statistics of the outcome's latent functions
    slopes              with differential privacy, Σ ∂E[log p]/∂m·φ of each latent function
    dispersion_terms    of a count, Σ E[log p(y | f, r)] for each r of the grid
    feature_gradient    ∂/∂φ of the negative bound's part that depends on the rows
    losses              −log p of each row under q, with which weights are judged

Rows of features are those of patients. A time to an event has a row for each interval that a
patient enters, with the patient's features beside an indicator of the interval,
φ' = (φ, e_j): the logit of the hazard is φᵀw + a_j, so the intervals' own levels are free, and an
effect of φ is the same in all of them, as in a proportional hazards model.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from kernels.outcomes import binary, classes, count, time_to_event
from kernels.outcomes.fitted import FittedOutcome
from kernels.outcomes.logistic import Rule, Trials, feature_gradient, newton, slope
from kernels.outcomes.variational import Layer
from kernels.outcomes.weighted import Grid, Weighted, bounded
from kernels.reproducible import on_grid
from kernels.tables.chunks import chunks
from kernels.tables.targets import Binary, Classes, Count, Outcome, TimeToEvent

PATIENTS_AT_A_TIME = 1024
"""Each becomes a row of features for every interval."""
MOST_LOSS = 100.0


class _Periods(NamedTuple):
    """Patients' intervals: (N, M + J) features, their outcomes, and the patients' rows, (N,)."""

    features: Tensor
    trials: Trials
    patient: Tensor


@dataclass(frozen=True, eq=False)
class Likelihood:
    """An outcome, its q and constants, and the rule that replaces its likelihood by parabolas.

    rule: of all kinds but classes, which have their own. inducing: how many features are inducing,
    the first ones, for predictions and losses.
    """

    outcome: Outcome
    fitted: FittedOutcome
    rule: Rule = newton
    inducing: int = 0

    @property
    def layer(self) -> Layer:
        """The only layer of all kinds but classes."""
        return self.fitted.layers[0]

    def sums(
        self,
        features: Tensor,
        outcomes: Tensor,
        *,
        grid: Grid | None = None,
        clip: float | None = None,
    ) -> tuple[Weighted, ...]:
        """Return the weighted statistics of rows: features (n, M), and the outcome's columns.

        clip: with differential privacy, the largest |κ|. Only that of a class can be larger.
        """
        layers, offsets = self.fitted.layers, self.fitted.offsets
        if grid is not None:
            steps = torch.as_tensor(grid.features, dtype=torch.float64)
            own = steps if steps.ndim == 0 else steps[: features.shape[1]]
            features = on_grid(features.double(), own)
        if isinstance(self.outcome, Classes):
            table = [(features, outcomes[:, 0])]
            return classes.local(table, layers, offsets=offsets, grid=grid, clip=clip)
        wide = self.layer.features
        stream = (
            (phi, self.rule(trials, *self.layer.latent(phi)))
            for phi, trials, _ in self._trials(features, outcomes)
        )
        if clip is not None:
            stream = ((phi, bounded(rows, clip)) for phi, rows in stream)
        return (Weighted.of_chunks(stream, features=wide, grid=grid),)

    def slopes(
        self, features: Tensor, outcomes: Tensor, *, clip: float | None
    ) -> tuple[Tensor, ...]:
        """Return the slopes of rows at q, (M,) or (M + J,) for each latent function.

        clip: the largest norm of what one row of the table adds to them; None: as they are.
        """
        if isinstance(self.outcome, Classes):
            layers = self.fitted.layers
            mean, variance = classes.latent(layers, features)
            shift = torch.tensor(self.fitted.offsets, dtype=torch.float64)
            y = classes.check_classes(outcomes[:, 0], len(layers))
            found = classes.rows_of(y, mean, variance, shift)
            return tuple(
                clipped_sum(
                    (own.pulls - own.weights * mean[:, level])[:, None] * features.double(), clip
                )
                for level, own in enumerate(found)
            )
        total, first = torch.zeros(self.layer.features, dtype=torch.float64), 0
        for phi, trials, patient in self._trials(features, outcomes):
            own = slope(trials, *self.layer.latent(phi))[:, None] * phi.double()
            if isinstance(self.outcome, TimeToEvent):
                count_of = min(PATIENTS_AT_A_TIME, len(features) - first)
                own = own.new_zeros(count_of, own.shape[1]).index_add_(0, patient, own)
                first += count_of
            total += clipped_sum(own, clip)
        return (total,)

    def dispersion_terms(self, features: Tensor, outcomes: Tensor, grid: Grid) -> Tensor:
        """Return the block from which a count's r is chosen, (len(count.GRID),)."""
        features = on_grid(features.double(), torch.as_tensor(grid.features))
        mean, variance = self.layer.latent(features)
        return count.dispersion_terms(
            outcomes[:, 0],
            mean,
            variance,
            exposure=outcomes[:, 1],
            offset=self.fitted.offsets[0],
            step=grid.terms,
        )

    def feature_gradient(self, features: Tensor, outcomes: Tensor) -> Tensor:
        """Return ∂/∂φ, (n, M) in the features' type, with the parabolas held fixed at q."""
        if isinstance(self.outcome, Classes):
            layers = self.fitted.layers
            shift = torch.tensor(self.fitted.offsets, dtype=torch.float64)
            y = classes.check_classes(outcomes[:, 0], len(layers))
            found = classes.rows_of(y, *classes.latent(layers, features), shift)
            gradient = torch.zeros_like(features)
            for layer, rows in zip(layers, found, strict=True):
                gradient += feature_gradient(features, rows, layer)
            return gradient
        pieces, first = [], 0
        for phi, trials, patient in self._trials(features, outcomes):
            rows = self.rule(trials, *self.layer.latent(phi))
            own = feature_gradient(phi, rows, self.layer)[:, : features.shape[1]]
            if isinstance(self.outcome, TimeToEvent):
                count_of = min(PATIENTS_AT_A_TIME, len(features) - first)
                own = own.new_zeros(count_of, own.shape[1]).index_add_(0, patient, own)
                first += count_of
            pieces.append(own.to(features.dtype))
        return torch.cat(pieces) if pieces else torch.zeros_like(features)

    def losses(self, features: Tensor, outcomes: Tensor) -> Tensor:
        """Return −log p of each row, (n,), at most 100: one row must not decide alone."""
        fitted, y = self.fitted, outcomes[:, 0]
        match self.outcome:
            case Binary():
                mean, variance = self.layer.latent(features, inducing=self.inducing)
                found = binary.log_density(y, mean, variance, offset=fitted.offsets[0])
            case Classes():
                latent = classes.latent(fitted.layers, features, inducing=self.inducing)
                found = classes.log_density(y, *latent, offsets=fitted.offsets)
            case Count():
                mean, variance = self.layer.latent(features, inducing=self.inducing)
                found = count.log_density(
                    y,
                    mean,
                    variance,
                    dispersion=fitted.dispersion or 1.0,
                    exposure=outcomes[:, 1],
                    offset=fitted.offsets[0],
                )
            case TimeToEvent():
                edges = torch.tensor(self.outcome.intervals, dtype=torch.float64)
                survival = self.survival(features).mean
                found = time_to_event.log_density(survival, y, outcomes[:, 1], edges)
        return (-found).clamp(max=MOST_LOSS)

    def survival(self, features: Tensor) -> time_to_event.Prediction:
        """Return survival at the edges for rows of features (n, M), of a time to an event."""
        nothing = torch.zeros(0, self.layer.features - features.shape[1], dtype=torch.float64)
        means, variances = [nothing], [nothing]
        for mean, covariance in self._joint(features):
            found = time_to_event.predict(mean, covariance)
            means.append(found.mean)
            variances.append(found.variance)
        return time_to_event.Prediction(torch.cat(means), torch.cat(variances))

    def hazards(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the logits of the intervals' hazards, each (n, J)."""
        nothing = torch.zeros(0, self.layer.features - features.shape[1], dtype=torch.float64)
        means, variances = [nothing], [nothing]
        for mean, covariance in self._joint(features):
            means.append(mean)
            variances.append(covariance.diagonal(dim1=1, dim2=2))
        return torch.cat(means), torch.cat(variances)

    def _joint(self, features: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield means (n, J) and covariances (n, J, J) of the logits of the hazards."""
        for part in chunks(len(features), PATIENTS_AT_A_TIME // 4):
            mean, covariance = self.layer.joint(features[part], inducing=self.inducing)
            yield mean + self.fitted.offsets[0], covariance

    def _trials(self, features: Tensor, outcomes: Tensor) -> Iterator[_Periods]:
        """Yield features with their likelihood; of a time to an event, of patients' intervals."""
        offset, y = self.fitted.offsets[0], outcomes[:, 0]
        match self.outcome:
            case Binary():
                yield _Periods(features, binary.trials(y, offset=offset), _NOBODY)
            case Count():
                trials = count.trials(
                    y,
                    dispersion=self.fitted.dispersion or 1.0,
                    exposure=outcomes[:, 1],
                    offset=offset,
                )
                yield _Periods(features, trials, _NOBODY)
            case TimeToEvent():
                edges = torch.tensor(self.outcome.intervals, dtype=torch.float64)
                for part in chunks(len(features), PATIENTS_AT_A_TIME):
                    found = time_to_event.periods(y[part], outcomes[part, 1], edges)
                    indicators = one_hot(found.interval, len(edges)).to(features.dtype)
                    phi = torch.cat([features[part][found.patient], indicators], 1)
                    trials = binary.trials(found.outcome, offset=offset)
                    yield _Periods(phi, trials, found.patient)


_NOBODY = torch.zeros(0, dtype=torch.int64)


def clipped_sum(parts: Tensor, clip: float | None) -> Tensor:
    """Return the sum of rows' parts (n, M), each shortened to a norm of at most `clip`.

    If a hostile q makes a part infinite or NaN, it is 0: a failure would reveal the row.

    >>> clipped_sum(torch.tensor([[3.0, 4.0], [0.1, 0.0]], dtype=torch.float64), 0.5)
    tensor([0.4000, 0.4000], dtype=torch.float64)
    """
    own = parts.double()
    if clip is not None:
        own = own.masked_fill(~own.isfinite().all(1, keepdim=True), 0.0)
        own = own * (clip / own.norm(dim=1, keepdim=True).clamp_min(clip))
    return own.sum(0)


@dataclass(frozen=True)
class RowBounds:
    """What one row of a table can add to an outcome's sums, at most.

    rows: weighted rows that a row becomes: one for every interval. weight: ω of each.
    pull: |κ| of each. terms: |Σt| of all, generous; an honest row is far
    below it.
    """

    rows: int
    weight: float
    pull: float
    terms: float


def row_bounds(
    outcome: Outcome, fitted: FittedOutcome, *, log_exposure: float, private: bool
) -> RowBounds:
    """Return the bounds of both rules (`kernels.outcomes.logistic`), for this q's constants.

    log_exposure: the largest |log E|. private: κ is that of Pólya–Gamma's rule, half as large
    without an offset; of classes it is clipped, and has no other bound.
    """
    half = 0.5 if private else 1.0
    largest = max(abs(own) for own in fitted.offsets)
    match outcome:
        case Count():
            dispersion = fitted.dispersion or 1.0
            total = outcome.upper + dispersion
            shift = largest + log_exposure + abs(math.log(dispersion))
            pull, terms = total * (half + shift / 4), _MOST_COUNT_TERM * total
            return RowBounds(1, total / 4, pull, terms)
        case TimeToEvent():
            intervals = len(outcome.intervals)
            return RowBounds(intervals, 0.25, half + largest / 4, _MOST_TERM * intervals)
        case Classes():
            return RowBounds(1, 0.25, 1.0 if private else _CLASS_PULL, _MOST_TERM)
        case Binary():
            return RowBounds(1, 0.25, half + largest / 4, _MOST_TERM)


_MOST_TERM = 1e4
_MOST_COUNT_TERM = 100.0
"""For each of the trials that a count is, of which there are many."""
_CLASS_PULL = 1e3
"""|κ_k| of a class is rarely above 1, and grows with the differences of latent means."""

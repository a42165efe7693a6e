"""Many sites' predictions of the same rows made into one, from sums over the sites [PredBayes].

Site c predicts N(μ_c, v_c) at a row, from n_c rows of its own; N(μ_p, v_p) is what is predicted
there without any rows; n_s is how many sites there are, n = Σ n_c. All of this is per row and
target.

    product      1/v = Σ 1/v_c − (n_s − 1)/v_p,  μ/v = Σ μ_c/v_c − (n_s − 1)μ_p/v_p  (3.4, 3.5)
    mixture      μ = Σ n_c μ_c / n,  v = Σ n_c(v_c + μ_c²) / n − μ²                   (4.6, 4.7)
    β            1/v and μ/v interpolated from the mixture's to the product's        (4.9, 4.10)
    generalised  1/v = Σ w_c/v_c / Σ w_c,  μ/v = Σ w_c μ_c/v_c / Σ w_c     [CaoFleet14]
    robust       1/v = Σ w_c/v_c + (1 − Σ w_c)/v_p,  μ/v alike          [Deisenroth15]

with w_c = max(0, ½(log v_p − log v_c)), the nats by which a site's rows have narrowed the prior.

The product is right where sites know different things (theorem 3) and too sure where they know the
same (theorem 2); the mixture conversely (theorems 4, 5). [PredOneRound] eq. 4 adds the prior's
shift where it has to be taken away; [PredBayes] has it right.

Every one of them is a function of nine sums over sites: `Committee`. Nobody needs to see one
site's prediction.
"""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import ClassVar, Self

import torch
from torch import Tensor

from kernels.errors import ImproperProduct, PredictionError, WrongShape
from kernels.scores.gaussians import Gaussian

_ROUNDING = 1e-9
"""A product's precision below this share of Σ 1/v_c is what rounding leaves of nothing."""


class Guard(StrEnum):
    """What is done at rows where sites, and perhaps their product, are less sure than the prior."""

    REFUSE = "refuse"
    """Where it has no positive precision, nothing is predicted at all: the error says how often."""
    PRIOR = "prior"
    """It is never less sure than the prior: where it would be, it has the prior's variance around
    the sites' precision-weighted mean."""


@dataclass(frozen=True, eq=False)
class Committee:
    """Sums over sites at each row and target, (…, T); `+` takes in further sites.

    sites: n_s. rows: n. precision, shift: of 1/v_c and μ_c/v_c. row_mean, row_square: of n_c μ_c
    and n_c(v_c + μ_c²). weight, weighted_precision, weighted_shift: of w_c, w_c/v_c, w_c μ_c/v_c.
    """

    STORED_AS: ClassVar[str] = "committee"

    sites: Tensor
    rows: Tensor
    precision: Tensor
    shift: Tensor
    row_mean: Tensor
    row_square: Tensor
    weight: Tensor
    weighted_precision: Tensor
    weighted_shift: Tensor

    @classmethod
    def alone(cls, prediction: Gaussian, *, rows: int | Tensor, prior: Gaussian) -> Self:
        """Return what one site of so many rows adds."""
        narrowed = prior.variance.log() - prediction.variance.log()
        weight = (narrowed / 2).clamp_min(0.0)
        one = prediction.mean.new_ones(())
        return cls(
            sites=one,
            rows=one * rows,
            precision=prediction.precision,
            shift=prediction.shift,
            row_mean=rows * prediction.mean,
            row_square=rows * (prediction.variance + prediction.mean.square()),
            weight=weight,
            weighted_precision=weight * prediction.precision,
            weighted_shift=weight * prediction.shift,
        )

    @classmethod
    def of(cls, predictions: Gaussian, *, rows: Tensor, prior: Gaussian) -> Self:
        """Add up predictions (n_s, …, T) that are all in one place, of sites with n_c rows each."""
        if rows.shape != predictions.mean.shape[:1] or not len(rows):
            raise WrongShape(
                f"predictions of {tuple(predictions.mean.shape[:1])} sites, and rows of "
                f"{tuple(rows.shape)}"
            )
        counts = rows.to(predictions.mean.dtype)
        apart = counts.reshape(-1, *(1 for _ in predictions.mean.shape[1:]))
        each = cls.alone(predictions, rows=apart, prior=prior)
        sums = {field.name: getattr(each, field.name) for field in fields(cls)}
        sums |= {"sites": torch.ones_like(counts), "rows": counts}
        return cls(**{name: own.sum(0) for name, own in sums.items()})

    def __add__(self, other: Self) -> Self:
        return type(self)(
            *(getattr(self, field.name) + getattr(other, field.name) for field in fields(self))
        )


def product(committee: Committee, prior: Gaussian, *, guard: Guard = Guard.REFUSE) -> Gaussian:
    """Multiply the sites' densities and divide by the prior that each but one has counted again."""
    again = committee.sites - 1
    precision = committee.precision - again * prior.precision
    shift = committee.shift - again * prior.shift
    if guard is Guard.PRIOR:
        unsure = precision < prior.precision
        centre = committee.shift / committee.precision
        return Gaussian.natural(
            torch.where(unsure, prior.precision, precision),
            torch.where(unsure, centre * prior.precision, shift),
        )
    improper = precision <= _ROUNDING * committee.precision
    if count := int(improper.sum()):
        raise ImproperProduct(
            f"at {count} of {improper.numel()} predictions the sites together are less sure than "
            f"the prior that {int(again)} of them counted again: the product has no positive "
            "precision. Take a wider prior, another method, or a guard"
        )
    return Gaussian.natural(precision, shift)


def mixture(committee: Committee) -> Gaussian:
    """Return the moments of the mixture of the sites' densities by their rows."""
    mean = committee.row_mean / committee.rows
    return Gaussian(mean, committee.row_square / committee.rows - mean.square())


def interpolated(product: Gaussian, mixture: Gaussian, beta: Tensor | float) -> Gaussian:
    """Return the density that is the product's to the power β times the mixture's to 1 − β.

    beta: from 0, the mixture, to 1, the product; a number, or one for each target.
    """
    share = torch.as_tensor(beta, dtype=mixture.mean.dtype)
    if not bool(((share >= 0) & (share <= 1)).all()):
        raise PredictionError(f"β is between 0, the mixture, and 1, the product, not {beta}")
    return Gaussian.natural(
        torch.lerp(mixture.precision, product.precision, share),
        torch.lerp(mixture.shift, product.shift, share),
    )


def generalised(committee: Committee, prior: Gaussian) -> Gaussian:
    """Return the generalised product of experts, its weights w_c made to add up to 1.

    Where no site has narrowed the prior, that is the prior.
    """
    nobody = committee.weight <= 0
    total = torch.where(nobody, 1.0, committee.weight)
    return Gaussian.natural(
        torch.where(nobody, prior.precision, committee.weighted_precision / total),
        torch.where(nobody, prior.shift, committee.weighted_shift / total),
    )


def robust(committee: Committee, prior: Gaussian) -> Gaussian:
    """Return the robust Bayesian committee machine.

    Its precision is 1/v_p + Σ w_c(1/v_c − 1/v_p), never below the prior's: only sites that have
    narrowed the prior have a weight.
    """
    rest = 1 - committee.weight
    return Gaussian.natural(
        committee.weighted_precision + rest * prior.precision,
        committee.weighted_shift + rest * prior.shift,
    )

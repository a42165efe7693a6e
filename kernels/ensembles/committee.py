"""Predictions of many sites for the same rows combined into one, from sums over sites [PredBayes].

Site c predicts N(μ_c, v_c) at a row, from n_c rows of its own; N(μ_p, v_p) is the prior, the
prediction without any rows; n_s is the number of sites, n = Σ n_c. All of this is per row and
target.

    product      1/v = Σ 1/v_c − (n_s − 1)/v_p,  μ/v = Σ μ_c/v_c − (n_s − 1)μ_p/v_p  (3.4, 3.5)
    mixture      μ = Σ n_c μ_c / n,  v = Σ n_c(v_c + μ_c²) / n − μ²                   (4.6, 4.7)
    β            1/v and μ/v interpolated from the mixture's to the product's        (4.9, 4.10)
    generalised  1/v = Σ w_c/v_c / Σ w_c,  μ/v = Σ w_c μ_c/v_c / Σ w_c     [CaoFleet14]
    robust       1/v = Σ w_c/v_c + (1 − Σ w_c)/v_p,  μ/v likewise       [Deisenroth15]

with w_c = max(0, ½(log v_p − log v_c)), the nats by which a site's rows have narrowed the prior.

The product is right if sites know different things (theorem 3) and overconfident if they know the
same (theorem 2); the mixture conversely (theorems 4, 5). [PredOneRound] eq. 4 adds the prior's
shift, which must be subtracted; [PredBayes] has it right.

Each of them is a function of nine sums over sites (`Committee`), so no party needs to see the
prediction of one site.
"""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import ClassVar, Self

import torch
from torch import Tensor

from kernels.errors import ImproperProduct, PredictionError, WrongShape
from kernels.scores.gaussians import Gaussian

_ROUNDING = 1e-9
"""A product's precision below this share of Σ 1/v_c is 0 up to rounding."""


class Guard(StrEnum):
    """The handling of rows where the product of the sites is less certain than the prior."""

    REFUSE = "refuse"
    """If its precision is not positive at any row, nothing is predicted: the error counts them."""
    PRIOR = "prior"
    """It is never less certain than the prior: where it would be, it has the prior's variance
    around the sites' precision-weighted mean."""


@dataclass(frozen=True, eq=False)
class Committee:
    """Sums over sites at each row and target, (…, T); `+` adds further sites.

    sites: n_s. rows: n. precision, shift: Σ 1/v_c and Σ μ_c/v_c. row_mean, row_square: Σ n_c μ_c
    and Σ n_c(v_c + μ_c²). weight, weighted_precision, weighted_shift: Σ w_c, Σ w_c/v_c and
    Σ w_c μ_c/v_c.
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
        """Return the terms of one site with `rows` rows."""
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
        """Return the sums of given predictions (n_s, …, T) of sites with n_c rows each."""
        if rows.shape != predictions.mean.shape[:1] or not len(rows):
            raise WrongShape(
                "rows must have one number for each of at least one site: predictions are of "
                f"{tuple(predictions.mean.shape[:1])} sites, and rows has shape {tuple(rows.shape)}"
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
    """Multiply the sites' densities, and divide by the prior n_s − 1 times: each site counts it."""
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
            f"the product has no positive precision at {count} of {improper.numel()} predictions: "
            f"the sites together are less certain than the prior, which they count {int(again)} "
            "times too often. Use a wider prior, another method, or guard='prior'"
        )
    return Gaussian.natural(precision, shift)


def mixture(committee: Committee) -> Gaussian:
    """Return the moments of the mixture of the sites' densities, weighted by their rows."""
    mean = committee.row_mean / committee.rows
    return Gaussian(mean, committee.row_square / committee.rows - mean.square())


def interpolated(product: Gaussian, mixture: Gaussian, beta: Tensor | float) -> Gaussian:
    """Return the product's density to the power β times the mixture's to the power 1 − β.

    beta: from 0, the mixture, to 1, the product; a number, or one for each target.
    """
    share = torch.as_tensor(beta, dtype=mixture.mean.dtype)
    if not bool(((share >= 0) & (share <= 1)).all()):
        raise PredictionError(f"beta must be from 0 (the mixture) to 1 (the product), not {beta}")
    return Gaussian.natural(
        torch.lerp(mixture.precision, product.precision, share),
        torch.lerp(mixture.shift, product.shift, share),
    )


def generalised(committee: Committee, prior: Gaussian) -> Gaussian:
    """Return the generalised product of experts, with its weights w_c scaled to sum to 1.

    If no site has narrowed the prior, it is the prior.
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
    narrowed the prior have a positive weight.
    """
    rest = 1 - committee.weight
    return Gaussian.natural(
        committee.weighted_precision + rest * prior.precision,
        committee.weighted_shift + rest * prior.shift,
    )

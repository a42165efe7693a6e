"""The linear layer from statistics with known noise: the posterior takes the noise into account.

The released statistics are S̃ = S + N, b̃ = b + e and ỹ = yᵀy + f, with independent Gaussian noise:
e of deviation s_b, f of deviation s_y, and N symmetric, of deviation s on the diagonal and s/√2 off
it. With b = Sw + Φᵀε,

    b̃ | w  ~  N(Sw, σ²S + s_b²I),      and with S = S̃ − N, of N w ~ N(0, s²/2·(‖w‖²I + wwᵀ)):
    b̃ | w  ~  N(S̃w, σ²S̃ + (s_b² + s²‖w‖²/2)I + s²/2·wwᵀ).

A ridge regression on S̃ and b̃ ignores that the noise grows with w: it treats noise as data, and its
variances are the smaller the more noise there is. For a given w in the covariance, the posterior is
Gaussian. It is iterated, with w's second moment, E wwᵀ = w̄w̄ᵀ + V, in place of wwᵀ. In the
eigenbasis of S̃ the covariance is a diagonal plus the rank-one w̄w̄ᵀ (only V's diagonal is used).

**σ and λ** are found by marginal likelihood. With w ~ N(0, λ²I) integrated out, b̃_i in the
eigenbasis is normal with variance λ²Λ_i² + σ²Λ_i + v, v = s_b² + λ²s²(M + 1)/2. The part bᵀS⁻¹b of
yᵀy is in the span of the features, and the rest is σ²χ² with n − M degrees of freedom, so that ỹ
given b̃ has

    mean        (n − M)σ² + Σ E[b_i² | b̃_i]/Λ_i
    variance    2(n − M)σ⁴ + Σ Var[b_i² | b̃_i]/Λ_i² + s_y²      (taken as normal)

where b_i | b̃_i ~ N(g b̃_i, g v), g = (λ²Λ_i² + σ²Λ_i)/(λ²Λ_i² + σ²Λ_i + v). If ỹ is mostly noise,
the likelihood shows only that σ is small enough, and its maximum would be σ = 0: overconfidence
from lack of information. So σ² is the posterior mean under a flat prior, and log λ the posterior
mean under the prior of `kernels.layer.refit`, both by quadrature.

`kernels.rounds.shared.sufficient` explains how a privacy budget is best divided among S, b and yᵀy.

[Bernstein19] sample what is integrated here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.errors import EmptyTable, StatisticsError
from kernels.layer.posterior import SCALE_BITS, Hyperparameters, Posterior
from kernels.layer.refit import RefitOptions
from kernels.layer.statistics import Noise, Statistics
from kernels.reproducible import number_to_bits

_GRID = 33
_FINE_GRID = 513
_ZOOMS = 3
_DEPTH = 12.0
"""The quadrature leaves out hyperparameters whose log density is further below the best."""
_ITERATIONS = 50


@dataclass(frozen=True, eq=False)
class _Noisy:
    """Statistics in the eigenbasis of S: Λ (M,), Q (M, M), Qᵀb̃ (M, T)."""

    eigenvalues: Tensor
    eigenvectors: Tensor
    cross: Tensor
    target_squares: Tensor
    count: int
    noise: Noise

    @classmethod
    def of(cls, statistics: Statistics) -> "_Noisy":
        if statistics.noise is None:
            raise StatisticsError(
                "these statistics have no noise: use kernels.layer.posterior for their posterior"
            )
        values, vectors = torch.linalg.eigh((statistics.scatter + statistics.scatter.mT) / 2)
        return cls(
            values.clamp_min(0.0),
            vectors,
            vectors.mT @ statistics.cross,
            statistics.target_squares,
            statistics.count,
            statistics.noise,
        )


def posterior(statistics: Statistics, hyperparameters: Hyperparameters) -> Posterior:
    """Return the posterior over w of each target; it is the prior if there is only noise."""
    noisy = _Noisy.of(statistics)
    each = [
        _posterior_of(noisy, target, float(noise), float(prior))
        for target, (noise, prior) in enumerate(
            zip(hyperparameters.noise_variance, hyperparameters.prior_variance, strict=True)
        )
    ]
    evidence = _log_evidences(noisy, hyperparameters)
    weights, bases, variances = zip(*each, strict=True)
    return Posterior(
        torch.stack(weights, 1),
        torch.stack(bases),
        torch.stack(variances, 1),
        hyperparameters,
        evidence,
    )


def log_evidence(statistics: Statistics, hyperparameters: Hyperparameters) -> Tensor:
    """Return log p(b̃, ỹ | σ, λ) of each target, (T,)."""
    return _log_evidences(_Noisy.of(statistics), hyperparameters)


def _log_evidences(noisy: _Noisy, hyperparameters: Hyperparameters) -> Tensor:
    scales = zip(hyperparameters.noise_variance, hyperparameters.prior_variance, strict=True)
    each = [
        _log_evidence(noisy, target, noise[None], prior[None])[0]
        for target, (noise, prior) in enumerate(scales)
    ]
    return torch.stack(each)


def _posterior_of(
    noisy: _Noisy, target: int, noise_variance: float, prior_variance: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return w̄ (M,), and eigenvectors (M, M) and eigenvalues (M,) of w's covariance."""
    eigenvalues, cross = noisy.eigenvalues, noisy.cross[:, target]
    half = noisy.noise.scatter**2 / 2
    own = noise_variance * eigenvalues + noisy.noise.cross**2
    weights = torch.zeros_like(eigenvalues)
    variances = torch.full_like(eigenvalues, prior_variance)
    covariance = variances.diag()
    for _ in range(_ITERATIONS):
        diagonal = own + half * (weights @ weights + variances.sum() + variances)
        diagonal = diagonal.clamp_min(torch.finfo(torch.float64).tiny)
        # Precision: I/λ² + Λ(D + h w̄w̄ᵀ)⁻¹Λ, (D + h w̄w̄ᵀ)⁻¹ = D⁻¹ − h D⁻¹w̄w̄ᵀD⁻¹/(1 + h w̄ᵀD⁻¹w̄).
        scaled = eigenvalues / diagonal
        along = scaled * weights
        less = half / (1 + half * (weights / diagonal) @ weights)
        precision = (eigenvalues * scaled + 1 / prior_variance).diag() - less * along.outer(along)
        covariance = torch.linalg.inv(precision)
        covariance = (covariance + covariance.mT) / 2
        pull = scaled * cross - less * along * ((weights / diagonal) @ cross)
        moved = covariance @ pull
        settled = torch.allclose(moved, weights, rtol=1e-10, atol=1e-12)
        weights, variances = moved, covariance.diagonal()
        if settled:
            break
    values, vectors = torch.linalg.eigh(covariance)
    basis = noisy.eigenvectors
    return basis @ weights, basis @ vectors, values.clamp_min(0.0)


def refit(statistics: Statistics, options: RefitOptions | None = None) -> Hyperparameters:
    """Return σ² and λ² of each target."""
    options = options or RefitOptions()
    if statistics.count == 0:
        raise EmptyTable("the statistics have no rows: fitting σ and λ needs at least one")
    noisy = _Noisy.of(statistics)
    found = [_mean_of(noisy, target, options) for target in range(statistics.targets)]
    noise, prior = torch.tensor(found, dtype=torch.float64).mT.contiguous()
    return Hyperparameters(noise, prior).rounded()


def refit_prior(parts: Sequence[Statistics], options: RefitOptions | None = None) -> float:
    """Return λ² that several layers with σ = 1 share: exp E[log λ²] given their b̃.

    For weighted statistics (`kernels.outcomes`), which have no yᵀy.
    """
    options = options or RefitOptions()
    least, most = (math.log(end) for end in options.prior_bounds)
    log_prior = torch.linspace(least, most, _FINE_GRID, dtype=torch.float64)
    prior, sigma = (2 * log_prior).exp(), torch.ones(1, 1, dtype=torch.float64)
    standardised = (log_prior - options.log_prior_mean) / options.log_prior_scale
    density = -standardised.square() / 2
    for own in parts:
        noisy = _Noisy.of(own)
        positive = noisy.eigenvalues > 0
        values, cross = noisy.eigenvalues[positive], noisy.cross[positive, 0]
        signal, added = _variances(noisy, values, sigma, prior[:, None])
        total = signal + added
        density = density - 0.5 * (total.log() + cross**2 / total).sum(1)
    mass = (density - density.max()).exp()
    mean = float((mass * log_prior).sum() / mass.sum())
    return number_to_bits(math.exp(2 * mean), SCALE_BITS)


def _mean_of(noisy: _Noisy, target: int, options: RefitOptions) -> tuple[float, float]:
    """Return E[σ²] and exp E[log λ²], on a grid that is narrowed to where the density is."""
    ranges = [options.noise_bounds, options.prior_bounds]
    ends = [(math.log(least), math.log(most)) for least, most in ranges]
    for _ in range(_ZOOMS):
        axes = [torch.linspace(*end, _GRID, dtype=torch.float64) for end in ends]
        log_noise, log_prior = torch.meshgrid(*axes, indexing="ij")
        standardised = (log_prior - options.log_prior_mean) / options.log_prior_scale
        density = _log_evidence(
            noisy, target, (2 * log_noise).exp().flatten(), (2 * log_prior).exp().flatten()
        ).view_as(log_noise)
        # dσ² = 2σ² d log σ makes the prior flat in σ².
        density = density - standardised.square() / 2 + 2 * log_noise
        density = density - density.max()
        near = density > -_DEPTH
        ends = [_around(axis, near.any(dim=1 - which)) for which, axis in enumerate(axes)]
    mass = density.exp() / density.exp().sum()
    noise = float((mass * (2 * log_noise).exp()).sum())
    return noise, math.exp(2 * float((mass * log_prior).sum()))


def _around(axis: Tensor, near: Tensor) -> tuple[float, float]:
    """Return the ends of the part of an axis that is near the best, plus one step on each side."""
    inside = near.nonzero().flatten()
    first, last = int(inside[0]), int(inside[-1])
    return float(axis[max(first - 1, 0)]), float(axis[min(last + 1, len(axis) - 1)])


def _log_evidence(noisy: _Noisy, target: int, noise: Tensor, prior: Tensor) -> Tensor:
    """Return log p(b̃, ỹ | σ, λ) for pairs of σ² and λ², each (k,)."""
    own = noisy.eigenvalues > 0
    values, cross = noisy.eigenvalues[own], noisy.cross[own, target]
    sigma, lambda_ = noise[:, None], prior[:, None]
    signal, added = _variances(noisy, values, sigma, lambda_)
    total = signal + added
    first = -0.5 * (torch.log(2 * math.pi * total) + cross**2 / total).sum(1)
    share = signal / total
    mean, variance = share * cross, share * added
    explained = ((mean**2 + variance) / values).sum(1)
    spread = ((2 * variance**2 + 4 * mean**2 * variance) / values**2).sum(1)
    freedom = max(noisy.count - len(values), 1)
    expected = freedom * noise + explained
    doubt = 2 * freedom * noise**2 + spread + noisy.noise.target_squares**2
    gap = noisy.target_squares[target] - expected
    return first - 0.5 * (torch.log(2 * math.pi * doubt) + gap**2 / doubt)


def _variances(
    noisy: _Noisy, values: Tensor, sigma: Tensor, lambda_: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the variances of b_i and of its noise, for pairs of σ² and λ², each (k, 1)."""
    features = len(noisy.eigenvalues)
    signal = lambda_ * values**2 + sigma * values
    return signal, noisy.noise.cross**2 + lambda_ * noisy.noise.scatter**2 * (features + 1) / 2

"""Small tables, and dense references that know nothing of the package's algebra."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.functional import logsigmoid

from kernels.outcomes import binary, count, logistic, time_to_event
from kernels.outcomes.likelihood import Likelihood
from kernels.outcomes.logistic import Rule, Trials
from kernels.outcomes.newton import Search, advanced
from kernels.outcomes.newton import rule as rule_of
from kernels.outcomes.quadrature import points
from kernels.outcomes.variational import Layer, updated
from kernels.tables.targets import Binary, Classes, Count, TimeToEvent


def features(rows: int, columns: int = 6, *, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    phi = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    return torch.cat([phi / columns**0.5, torch.ones(rows, 1, dtype=torch.float64)], 1)


def chances(rows: int, *, seed: int = 1) -> Tensor:
    return torch.rand(rows, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def yes_no(phi: Tensor, *, shift: float = 0.0, seed: int = 1) -> Tensor:
    slopes = torch.linspace(-2, 2, phi.shape[1], dtype=torch.float64)
    return (chances(len(phi), seed=seed) < torch.sigmoid(phi @ slopes + shift)).double()


def by_polya_gamma(phi: Tensor, rows: Trials, *, sums: int, prior: float | None = None) -> Layer:
    layer = Layer.prior(phi.shape[1], prior_variance=prior or 1.0)
    for _ in range(sums):
        total = logistic.local([(phi, rows)], layer)
        layer = updated(layer, total, fixed_prior=prior is not None)
    return layer


def by_newton(phi: Tensor, rows: Trials, *, sums: int, prior: float | None = None) -> Search:
    layer = Layer.prior(phi.shape[1])
    if prior is not None:  # the first sum is made at λ = 1 nevertheless: a wide q is a bad start
        layer = Layer(logistic.local([(phi, rows)], layer, rule=logistic.newton), prior)
    search = Search((layer,))
    for _ in range(sums):
        total = logistic.local([(phi, rows)], search.layers[0], rule=rule_of(search))
        search = advanced(search, [total], fixed_prior=prior is not None)
    return search


def dense_polya_gamma(rows: Trials, mean: Tensor, variance: Tensor) -> Tensor:
    """E of the tightest bound: a·g − B·g/2 − B·log 2cosh(c/2), c² = E[g²], by autograd."""
    logits = mean + rows.offset
    c = (logits.square() + variance).sqrt()
    curve = c / 2 - logsigmoid(c)
    return ((rows.successes - rows.trials / 2) * logits - rows.trials * curve + rows.constant).sum()


def dense_expectation(rows: Trials, mean: Tensor, variance: Tensor) -> Tensor:
    """Σ E[log p(y | f)] by the trapezoid rule with far more nodes than the package's."""
    nodes = torch.linspace(-9, 9, 801, dtype=torch.float64)
    weights = (-nodes.square() / 2).exp()
    points = (mean + rows.offset)[:, None] + variance.sqrt()[:, None] * nodes
    curve = -logsigmoid(-points) @ (weights / weights.sum())
    logits = mean + rows.offset
    return (rows.successes * logits - rows.trials * curve + rows.constant).sum()


Expectation = Callable[[Trials, Tensor, Tensor], Tensor]
EXPECTATIONS: dict[Rule, Expectation] = {
    logistic.polya_gamma: dense_polya_gamma,
    logistic.newton: dense_expectation,
}


def dense_bound(
    phi: Tensor, rows: Trials, rule: Rule, mean: Tensor, root: Tensor, prior: float
) -> Tensor:
    """The bound at q = N(mean, root·rootᵀ) and λ² = prior, differentiable in all tensors."""
    variance = (phi @ root).square().sum(1)
    fit = EXPECTATIONS[rule](rows, phi @ mean, variance)
    trace = root.square().sum() + mean.square().sum()
    determinant = 2 * torch.linalg.slogdet(root / prior**0.5)[1]
    return fit - 0.5 * (trace / prior - len(mean) - determinant)


def dense_optimum(phi: Tensor, rows: Trials, rule: Rule, prior: float) -> float:
    """Maximise the bound over the mean and a triangular root by L-BFGS, from the prior."""
    side = phi.shape[1]
    places = torch.tril_indices(side, side, -1)
    start = np.zeros(2 * side + places.shape[1])
    start[side : 2 * side] = np.log(prior) / 2

    def negative(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        flat = torch.tensor(point, requires_grad=True)
        root = flat[side : 2 * side].exp().diag().index_put(tuple(places), flat[2 * side :])
        value = -dense_bound(phi, rows, rule, flat[:side], root, prior)
        return float(value.detach()), torch.autograd.grad(value, flat)[0].numpy()

    options = {"ftol": 0.0, "gtol": 1e-7, "maxiter": 2000, "maxcor": 40}
    return -float(minimize(negative, start, jac=True, method="L-BFGS-B", options=options).fun)


def dense_fit(at: Likelihood, features: Tensor, columns: Tensor) -> Tensor:
    """Σt of an outcome's rows at q, differentiable in the features (n, M), whatever its kind."""
    layers, offsets = at.fitted.layers, at.fitted.offsets
    if isinstance(at.outcome, Classes):
        each = [_dense_latent(layer, features) for layer in layers]
        mean, variance = (torch.stack([own[part] for own in each], 1) for part in (0, 1))
        centre = (mean + torch.tensor(offsets, dtype=torch.float64)).unsqueeze(1)
        spread = variance.sqrt().unsqueeze(1) * points(len(layers), 256)
        logs = (centre + spread).log_softmax(2).mean(1)
        return logs.gather(1, columns[:, :1].long()).sum()
    match at.outcome:
        case Binary():
            trials = binary.trials(columns[:, 0], offset=offsets[0])
        case Count():
            trials = count.trials(
                columns[:, 0],
                dispersion=at.fitted.dispersion or 1.0,
                exposure=columns[:, 1],
                offset=offsets[0],
            )
        case TimeToEvent():
            edges = torch.tensor(at.outcome.intervals, dtype=torch.float64)
            found = time_to_event.periods(columns[:, 0], columns[:, 1], edges)
            indicators = torch.eye(len(edges), dtype=torch.float64)[found.interval]
            features = torch.cat([features[found.patient], indicators], 1)
            trials = binary.trials(found.outcome, offset=offsets[0])
    return EXPECTATIONS[at.rule](trials, *_dense_latent(layers[0], features))


def _dense_latent(layer: Layer, features: Tensor) -> tuple[Tensor, Tensor]:
    phi = features if layer.stretching is None else features * layer.stretching
    return phi @ layer.mean, ((phi @ layer.covariance) * phi).sum(1)


def assert_close(left: Tensor, right: Tensor, *, rtol: float = 1e-9, atol: float = 1e-11) -> None:
    """As torch.testing's, whose import takes longer than all these tests."""
    assert left.shape == right.shape
    assert torch.allclose(left, right, rtol=rtol, atol=atol), float((left - right).abs().max())

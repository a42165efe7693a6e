"""K classes: the dense optimum, probabilities that add up, and a softmax's log loss."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.functional import one_hot

from kernels.errors import TableError, WrongShape
from kernels.features.spec import KernelSpec
from kernels.features.urk import URK
from kernels.outcomes import binary, classes
from kernels.outcomes.newton import Search, advanced
from kernels.outcomes.quadrature import points
from kernels.outcomes.variational import Layer
from kernels.outcomes.weighted import Grid, Weighted
from tests.kernels.features.specs import EVERY_SPEC
from tests.kernels.outcomes import tables

PHI = tables.features(100, 4)
SIDE = PHI.shape[1]


def outcomes(phi: Tensor = PHI, levels: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(4)
    slopes = torch.randn(phi.shape[1], levels, generator=generator, dtype=torch.float64)
    noise = -(-tables.chances(len(phi) * levels).log()).log().reshape(len(phi), levels)
    return (2 * phi @ slopes + noise).argmax(1).double()


def search_of(
    phi: Tensor, y: Tensor, levels: int, *, sums: int, prior: float | None = None
) -> tuple[Search, list[float]]:
    layer = Layer.prior(phi.shape[1], prior_variance=prior or 1.0)
    search, bounds = Search((layer,) * levels, stride=classes.STRIDE), []
    for _ in range(sums):
        totals = classes.local([(phi, y)], search.layers)
        search = advanced(search, totals, fixed_prior=prior is not None)
        bounds.append(search.bound or math.nan)
    return search, bounds


def fitted(phi: Tensor, y: Tensor, levels: int, sums: int = 12) -> tuple[Layer, ...]:
    kept = search_of(phi, y, levels, sums=sums)[0].kept
    assert kept is not None
    return kept


def dense_bound(phi: Tensor, y: Tensor, means: Tensor, roots: Tensor, prior: float) -> Tensor:
    """Means (K, M) and roots (K, M, M) of q: the bound on the package's lattice, by autograd."""
    m, v = phi @ means.mT, (phi @ roots).square().sum(2).mT
    logs = (m.unsqueeze(1) + v.sqrt().unsqueeze(1) * points(len(means), 256)).log_softmax(2)
    fit = (logs.mean(1) * one_hot(y.long(), len(means))).sum()
    sizes = (roots.square().sum() + means.square().sum()) / prior
    determinants = 2 * torch.linalg.slogdet(roots / prior**0.5)[1].sum()
    return fit - 0.5 * (sizes - means.numel() - determinants)


def dense_optimum(phi: Tensor, y: Tensor, levels: int, prior: float) -> float:
    side = phi.shape[1]
    row, column = torch.tril_indices(side, side, -1)
    start = np.zeros((levels, 2 * side + len(row)))
    start[:, side : 2 * side] = np.log(prior) / 2

    def negative(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        flat = torch.tensor(point.reshape(levels, -1), requires_grad=True)
        lower = torch.zeros(levels, side, side, dtype=torch.float64)
        each = torch.arange(levels)[:, None]
        roots = flat[:, side : 2 * side].exp().diag_embed()
        roots = roots + lower.index_put((each, row, column), flat[:, 2 * side :])
        value = -dense_bound(phi, y, flat[:, :side], roots, prior)
        return float(value.detach()), torch.autograd.grad(value, flat)[0].numpy().ravel()

    options = {"ftol": 0.0, "gtol": 1e-6, "maxiter": 500, "maxcor": 40}
    found = minimize(negative, start.ravel(), jac=True, method="L-BFGS-B", options=options)
    return -float(found.fun)


def test_the_search_ends_at_the_optimum_of_the_dense_bound_and_never_falls() -> None:
    y = outcomes()
    _, bounds = search_of(PHI, y, 3, sums=20, prior=2.0)
    assert all(later >= sooner for sooner, later in itertools.pairwise(bounds))
    assert bounds[-1] == pytest.approx(dense_optimum(PHI, y, 3, 2.0), rel=1e-8)
    assert bounds[9] == pytest.approx(bounds[-1], abs=1e-3)  # ten sums are nearly there


def test_the_bound_is_below_the_evidence_of_the_softmax_and_near_it() -> None:
    phi, y = PHI[:25, :1], outcomes()[:25]
    w = torch.linspace(-8, 8, 49, dtype=torch.float64)
    step, prior = float(w[1] - w[0]), 2.0
    weights = torch.cartesian_prod(w, w, w)
    logits = phi @ weights.mT.reshape(3, 1, -1)  # (3, rows, points)
    chosen = logits.gather(0, y.long()[None, :, None].expand(1, -1, logits.shape[2]))[0]
    logs = (chosen - logits.logsumexp(0)).sum(0) - weights.square().sum(1) / (2 * prior)
    constant = 3 * math.log(step) - 1.5 * math.log(2 * math.pi * prior)
    evidence = float(torch.logsumexp(logs, 0)) + constant
    bound = search_of(phi, y, 3, sums=25, prior=prior)[1][-1]
    assert evidence - 0.5 < bound < evidence


@pytest.mark.parametrize("spec", EVERY_SPEC.values(), ids=EVERY_SPEC)
def test_the_sum_of_clients_gradients_is_autograd_through_the_pooled_bound(
    spec: KernelSpec,
) -> None:
    kernel, offsets = URK(spec), [0.3, -0.2, 0.0]
    x = torch.randn(30, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    y, phi = (tables.chances(30) * 3).floor(), kernel.features(x).detach()
    first = (Layer.prior(phi.shape[1], prior_variance=0.05),) * 3
    totals = classes.local([(phi, y)], first, offsets=offsets)
    layers = tuple(Layer(total, 0.05) for total in totals)
    roots = torch.stack([torch.linalg.cholesky(layer.covariance) for layer in layers])
    means = torch.stack([layer.mean for layer in layers])
    # An offset of a class is that of a feature which is always 1, with a known weight.
    m = kernel.features(x) @ means.mT + torch.tensor(offsets, dtype=torch.float64)
    v = (kernel.features(x) @ roots).square().sum(2).mT
    logs = (m.unsqueeze(1) + v.sqrt().unsqueeze(1) * points(3, 256)).log_softmax(2)
    value = -(logs.mean(1) * one_hot(y.long(), 3)).sum()
    gradient = torch.autograd.grad(value, kernel.weights)[0]
    federated = [
        classes.client_gradient(kernel, x[part], y[part], layers, offsets=offsets, chunk_rows=7)
        for part in (slice(0, 11), slice(11, 12), slice(12, 30))
    ]
    assert (torch.stack(federated).sum(0) - gradient).norm() <= 1e-9 * gradient.norm()


@given(cuts=st.lists(st.integers(0, 100), max_size=4))
@settings(max_examples=10, deadline=None)
def test_sums_of_any_division_are_the_pooled_ones_bit_for_bit_on_a_grid(cuts: list[int]) -> None:
    y, grid = outcomes(), Grid(features=2.0**-15)
    layers = (Layer.prior(SIDE),) * 3
    pooled = classes.local([(PHI, y)], layers, grid=grid)
    totals = [Weighted.zero(SIDE)] * 3
    for first, last in itertools.pairwise([0, *sorted(cuts), 100]):
        part = slice(first, last)
        own = classes.local([(PHI[part], y[part])], layers, grid=grid)
        totals = [one + other for one, other in zip(totals, own, strict=True)]
    for one, other in zip(totals, pooled, strict=True):
        assert torch.equal(one.scatter, other.scatter)
        assert torch.equal(one.cross, other.cross)
        assert (one.terms, one.count) == (other.terms, other.count)


def test_on_new_rows_the_log_loss_is_that_of_a_dense_softmax() -> None:
    phi = tables.features(2600)
    y, old, new = outcomes(phi), slice(0, 600), slice(600, 2600)
    layers = fitted(phi[old], y[old], 3)
    ours = -float(classes.log_density(y[new], *classes.latent(layers, phi[new])).mean())
    # Multinomial logistic regression with the fitted prior variance as its ridge.
    ridge, weights = layers[0].prior_variance, torch.zeros(7, 3, dtype=torch.float64)
    hot = one_hot(y.long(), 3).double()
    gram = phi[old].mT @ phi[old] / 2 + torch.eye(7, dtype=torch.float64) / ridge
    for _ in range(500):
        slope = phi[old].mT @ (hot[old] - (phi[old] @ weights).softmax(1)) - weights / ridge
        weights = weights + torch.linalg.solve(gram, slope)
    theirs = -float(((phi[new] @ weights).log_softmax(1) * hot[new]).sum(1).mean())
    assert ours == pytest.approx(theirs, rel=0.01)


@given(
    seed=st.integers(0, 1000), levels=st.integers(2, 6), scale=st.sampled_from([0.1, 3.0, 100.0])
)
@settings(max_examples=15, deadline=None)
def test_probabilities_add_up_and_do_not_change_if_all_logits_shift(
    seed: int, levels: int, scale: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    mean = scale * torch.randn(5, levels, generator=generator, dtype=torch.float64)
    variance = scale * torch.rand(5, levels, generator=generator, dtype=torch.float64)
    found = classes.predict(mean, variance)
    assert found.mean.sum(1).tolist() == pytest.approx([1.0] * 5)
    assert ((found.variance >= 0) & (found.variance <= 0.25)).all()
    shifted = classes.predict(mean + 7, variance, offsets=[2.0] * levels)
    tables.assert_close(shifted.mean, found.mean)
    y = torch.arange(5) % levels
    density = classes.log_density(y, mean, variance).exp()
    tables.assert_close(density, found.mean.gather(1, y[:, None])[:, 0], rtol=1e-6)
    rows = classes.rows_of(y, mean, variance, torch.zeros(levels, dtype=torch.float64))
    assert all(((own.weights >= 0) & (own.weights <= 0.25)).all() for own in rows)


def test_mean_and_variance_are_those_of_draws() -> None:
    generator = torch.Generator().manual_seed(0)
    mean = torch.tensor([[0.5, -0.5, -1.0]], dtype=torch.float64)
    variance = torch.tensor([[0.5, 1.0, 0.2]], dtype=torch.float64)
    noise = torch.randn(200_000, 3, generator=generator, dtype=torch.float64)
    drawn = (mean + variance.sqrt() * noise).softmax(1)
    found = classes.predict(mean, variance)
    tables.assert_close(found.mean[0], drawn.mean(0), rtol=0.01, atol=0.0)
    tables.assert_close(found.variance[0], drawn.var(0), rtol=0.05, atol=0.0)


def test_two_classes_predict_as_a_yes_no_outcome() -> None:
    y = tables.yes_no(PHI)
    one = tables.by_newton(PHI, binary.trials(y), sums=12).kept
    assert one is not None
    p = classes.predict(*classes.latent(fitted(PHI, y, 2), PHI)).mean[:, 1]
    assert float((p - binary.predict(*one[0].latent(PHI)).mean).abs().max()) < 0.05


@pytest.mark.parametrize("kind", ["nobody has a class", "all alike", "separable"])
def test_answers_are_finite(kind: str) -> None:
    y = {
        "nobody has a class": outcomes(),
        "all alike": torch.zeros(100, dtype=torch.float64),
        "separable": (PHI[:, 0] * 3).round().clamp(-1, 1) + 1,
    }[kind]
    layers = fitted(PHI, y, 4)
    found = classes.predict(*classes.latent(layers, PHI))
    assert found.mean.isfinite().all()
    assert (found.mean[:, 3] < 0.2).all()
    never = torch.full((100,), 3.0)
    assert classes.log_density(never, *classes.latent(layers, PHI)).isfinite().all()


def test_an_empty_table_adds_nothing() -> None:
    layers = (Layer.prior(SIDE),) * 3
    for empty in (classes.local([], layers), classes.local([(PHI[:0], PHI[:0, 0])], layers)):
        assert [own.count for own in empty] == [0, 0, 0]
        assert not any(own.scatter.any() or own.cross.any() or own.terms for own in empty)


def test_impossible_classes_are_refused() -> None:
    for wrong in ([0.0, 3.0], [-1.0], [0.5], [math.nan]):
        with pytest.raises(TableError):
            classes.check_classes(torch.tensor(wrong), 3)
    with pytest.raises(TableError):
        classes.check_classes(torch.zeros(2), 1)
    layers = (Layer.prior(SIDE),) * 3
    with pytest.raises(WrongShape):
        classes.local([(PHI, outcomes())], layers, offsets=[0.0, 0.0])
    with pytest.raises(WrongShape):
        classes.client_gradient(URK(EVERY_SPEC["rbf"]), torch.zeros(2, 3), outcomes(), layers)

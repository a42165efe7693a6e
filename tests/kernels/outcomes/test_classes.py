"""K classes: K yes/no outcomes that are the dense optimum, and probabilities that add up."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.errors import TableError, WrongShape
from kernels.outcomes import binary, classes, logistic
from kernels.outcomes.variational import Layer
from tests.kernels.outcomes import tables

PHI = tables.features(120)


def outcomes(phi: Tensor = PHI, levels: int = 3) -> Tensor:
    slopes = torch.randn(
        phi.shape[1], levels, generator=torch.Generator().manual_seed(4), dtype=torch.float64
    )
    noise = -(-tables.chances(len(phi) * levels).log()).log().reshape(len(phi), levels)
    return (2 * phi @ slopes + noise).argmax(1).double()


def latent(layers: list[Layer], phi: Tensor) -> tuple[Tensor, Tensor]:
    each = [layer.latent(phi) for layer in layers]
    return torch.stack([own[0] for own in each], 1), torch.stack([own[1] for own in each], 1)


def fitted(phi: Tensor, y: Tensor, levels: int) -> list[Layer]:
    searches = [tables.by_newton(phi, rows, sums=12) for rows in classes.trials(y, classes=levels)]
    return [search.kept for search in searches if search.kept is not None]


def test_every_class_is_at_the_optimum_of_the_dense_bound() -> None:
    for rows in classes.trials(outcomes(), classes=3):
        search = tables.by_newton(PHI, rows, sums=14, prior=2.0)
        dense = tables.dense_optimum(PHI, rows, logistic.newton, 2.0)
        assert search.bound == pytest.approx(dense, rel=1e-8)


def test_the_bounds_together_are_below_the_evidence_of_the_softmax() -> None:
    phi, y = PHI[:25, :1], outcomes()[:25]
    w = torch.linspace(-8, 8, 49, dtype=torch.float64)
    step, prior = float(w[1] - w[0]), 2.0
    weights = torch.cartesian_prod(w, w, w)
    logits = phi @ weights.mT.reshape(3, 1, -1)  # (3, rows, points)
    chosen = logits.gather(0, y.long()[None, :, None].expand(1, -1, logits.shape[2]))[0]
    logs = (chosen - logits.logsumexp(0)).sum(0) - weights.square().sum(1) / (2 * prior)
    constant = 3 * math.log(step) - 1.5 * math.log(2 * math.pi * prior)
    evidence = float(torch.logsumexp(logs, 0)) + constant
    searches = [
        tables.by_newton(phi, rows, sums=10, prior=prior) for rows in classes.trials(y, classes=3)
    ]
    assert sum(search.bound or 0.0 for search in searches) < evidence


def test_on_new_rows_the_log_loss_is_within_a_tenth_of_a_dense_softmax() -> None:
    phi = tables.features(2600)
    y, old, new = outcomes(phi), slice(0, 600), slice(600, 2600)
    layers = fitted(phi[old], y[old], 3)
    ours = -float(classes.log_density(y[new], *latent(layers, phi[new])).mean())
    # Multinomial logistic regression, with the mean of the fitted prior variances as its ridge.
    ridge = sum(layer.prior_variance for layer in layers) / 3
    weights = torch.zeros(7, 3, dtype=torch.float64)
    hot = torch.nn.functional.one_hot(y.long(), 3).double()
    gram = phi[old].mT @ phi[old] / 2 + torch.eye(7, dtype=torch.float64) / ridge
    for _ in range(500):
        slope = phi[old].mT @ (hot[old] - (phi[old] @ weights).softmax(1)) - weights / ridge
        weights = weights + torch.linalg.solve(gram, slope)
    theirs = -float(((phi[new] @ weights).log_softmax(1) * hot[new]).sum(1).mean())
    assert ours < 1.1 * theirs


def test_boehnings_bound_would_need_many_more_sums() -> None:
    # Its steps from S once and sums of Φᵀ(Y − P): how many until the mode is as near as ours?
    y = outcomes()
    hot = torch.nn.functional.one_hot(y.long(), 3).double()
    curvature = torch.linalg.inv(PHI.mT @ PHI / 2 + torch.eye(7, dtype=torch.float64) / 4)
    gains, weights, value = [], torch.zeros(7, 3, dtype=torch.float64), -math.inf
    for _ in range(400):
        logits = PHI @ weights
        before, value = (
            value,
            float((logits.log_softmax(1) * hot).sum()) - float(weights.square().sum() / 8),
        )
        gains.append(value - before)
        weights = weights + curvature @ (PHI.mT @ (hot - logits.softmax(1)) - weights / 4)
    boehning = next(sums for sums, gain in enumerate(gains) if gain < 1e-6)
    rows, sums = classes.trials(y, classes=3)[0], 4
    while (tables.by_newton(PHI, rows, sums=sums, prior=4.0).gain or 1.0) > 1e-6:
        sums += 1
    assert boehning > 5 * sums


@given(
    seed=st.integers(0, 1000), levels=st.integers(2, 6), scale=st.sampled_from([0.1, 3.0, 100.0])
)
@settings(max_examples=30, deadline=None)
def test_probabilities_add_up_and_follow_their_classes_when_these_are_renamed(
    seed: int, levels: int, scale: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    mean = scale * torch.randn(5, levels, generator=generator, dtype=torch.float64)
    variance = scale * torch.rand(5, levels, generator=generator, dtype=torch.float64)
    offsets = torch.randn(levels, generator=generator, dtype=torch.float64).tolist()
    found = classes.predict(mean, variance, offsets=offsets)
    assert found.mean.sum(1).tolist() == pytest.approx([1.0] * 5)
    assert ((found.variance >= 0) & (found.variance <= 0.25)).all()
    order = torch.randperm(levels, generator=generator)
    renamed = classes.predict(
        mean[:, order], variance[:, order], offsets=[offsets[own] for own in order.tolist()]
    )
    tables.assert_close(renamed.mean, found.mean[:, order])
    tables.assert_close(renamed.variance, found.variance[:, order])


def test_the_variance_is_that_of_draws() -> None:
    generator = torch.Generator().manual_seed(0)
    mean = torch.tensor([[0.5, -0.5, -1.0]], dtype=torch.float64)
    variance = torch.tensor([[0.05, 0.1, 0.02]], dtype=torch.float64)
    noise = torch.randn(200_000, 3, generator=generator, dtype=torch.float64)
    chances = (mean + variance.sqrt() * noise).sigmoid()
    drawn = chances / chances.sum(1, keepdim=True)
    found = classes.predict(mean, variance)
    tables.assert_close(found.mean[0], drawn.mean(0), rtol=0.02, atol=0.0)
    tables.assert_close(found.variance[0], drawn.var(0), rtol=0.05, atol=0.0)


def test_two_classes_are_a_yes_no_outcome() -> None:
    y = tables.yes_no(PHI)
    both = fitted(PHI, y, 2)
    one = tables.by_newton(PHI, binary.trials(y), sums=12).kept
    assert one is not None
    p = classes.predict(*latent(both, PHI)).mean[:, 1]
    tables.assert_close(p, binary.predict(*one.latent(PHI)).mean, rtol=1e-6)


def test_a_class_that_nobody_has_is_improbable_and_finite() -> None:
    layers = fitted(PHI, outcomes(), 4)
    found = classes.predict(*latent(layers, PHI))
    assert found.mean.isfinite().all()
    assert (found.mean[:, 3] < 0.1).all()
    assert classes.log_density(torch.full((120,), 3.0), *latent(layers, PHI)).isfinite().all()


def test_impossible_classes_are_refused() -> None:
    for wrong in ([0.0, 3.0], [-1.0], [0.5], [math.nan]):
        with pytest.raises(TableError):
            classes.trials(torch.tensor(wrong), classes=3)
    with pytest.raises(TableError):
        classes.trials(torch.zeros(2), classes=1)
    with pytest.raises(WrongShape):
        classes.trials(torch.zeros(2), classes=3, offsets=[0.0, 0.0])

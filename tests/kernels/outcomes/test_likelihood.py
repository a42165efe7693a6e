"""One outcome at one q, whatever its kind: gradients, losses, survival and what bounds a row."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.features.urk import URK
from kernels.outcomes import classes, count
from kernels.outcomes.fitted import FittedOutcome, latent_functions, layer_features
from kernels.outcomes.likelihood import MOST_LOSS, Likelihood, clipped_sum, row_bounds
from kernels.outcomes.logistic import Rule, newton, polya_gamma
from kernels.outcomes.predictions import predict_outcome
from kernels.outcomes.variational import Layer, updated_together
from kernels.outcomes.weighted import Weighted
from kernels.tables.outcome_cells import EXPOSURES
from kernels.tables.targets import Binary, Classes, Count, Outcome, TimeToEvent
from tests.kernels.features.specs import EVERY_SPEC
from tests.kernels.outcomes import tables

OUTCOMES: dict[str, Outcome] = {
    "binary": Binary("readmitted", ("yes", "no"), event="yes"),
    "classes": Classes("diagnosis", ("stroke", "sepsis", "other")),
    "count": Count("visits", "visits", upper=50),
    "time_to_event": TimeToEvent("days", "d", event="died", edges=(1.0, 2.0, 5.0)),
}
ROWS = 40
X = tables.features(ROWS, 3)[:, :3]
each_outcome = pytest.mark.parametrize("kind", OUTCOMES)


def columns(kind: str, rows: int = ROWS) -> Tensor:
    chance, other = tables.chances(rows, seed=3), tables.chances(rows, seed=4)
    match kind:
        case "binary":
            return (chance < 0.3).double().unsqueeze(1)
        case "classes":
            return (3 * chance).floor().unsqueeze(1)
        case "count":
            return torch.stack([(-6 * chance.log()).floor(), 0.5 + other], 1)
    return torch.stack([6 * chance, (other < 0.6).double()], 1)


def fitted(kind: str, phi: Tensor, *, rule: Rule = polya_gamma, linear: int = 0) -> Likelihood:
    """Return an outcome after two sums; linear: how many of the last features are stretched."""
    outcome, offsets = OUTCOMES[kind], (0.4, -0.2, 0.1)
    part = (phi.shape[1] - linear, phi.shape[1])
    prior = Layer.prior(layer_features(outcome, phi.shape[1]), stretched=part)
    functions = latent_functions(outcome)
    own = FittedOutcome((prior,) * functions, offsets[:functions], 2.5 if kind == "count" else None)
    for _ in range(2):
        sums = Likelihood(outcome, own).sums(phi, columns(kind))
        layers = updated_together(own.layers, sums, share=0.6, choose_ratio=True)
        own = replace(own, layers=layers)
    return Likelihood(outcome, own, rule)


@each_outcome
@pytest.mark.parametrize("rule", [polya_gamma, newton])
def test_the_gradient_of_features_is_that_of_the_dense_bound(kind: str, rule: Rule) -> None:
    phi = tables.features(ROWS, 4).requires_grad_()
    at = fitted(kind, phi.detach(), rule=rule, linear=2)
    (expected,) = torch.autograd.grad(-tables.dense_fit(at, phi, columns(kind)), phi)
    found = at.feature_gradient(phi.detach(), columns(kind))
    tables.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_of_every_architecture_the_gradient_of_weights_is_autograds() -> None:
    for index, spec in enumerate(EVERY_SPEC.values()):
        kind, kernel = [*OUTCOMES][index % len(OUTCOMES)], URK(spec)
        phi, pullback = kernel.features_and_pullback(X)
        at = fitted(kind, phi, linear=spec.linear_features if spec.main_features else 0)
        value = -tables.dense_fit(at, kernel.features(X), columns(kind))
        (expected,) = torch.autograd.grad(value, kernel.weights, allow_unused=True)
        found = pullback(at.feature_gradient(phi, columns(kind)))
        if expected is None:  # no weights
            assert not found.any()
            continue
        scale = float(expected.abs().max())
        tables.assert_close(found, expected, rtol=1e-9, atol=1e-9 * max(1.0, scale))


@each_outcome
def test_the_terms_of_the_sums_are_the_dense_expectations(kind: str) -> None:
    phi = tables.features(ROWS, 4)
    for rule in (polya_gamma, newton):
        at = fitted(kind, phi, rule=rule, linear=2)
        found = math.fsum(own.terms for own in at.sums(phi, columns(kind)))
        assert found == pytest.approx(float(tables.dense_fit(at, phi, columns(kind))), rel=1e-9)


@each_outcome
def test_sums_and_gradients_of_parts_are_those_of_the_whole(kind: str) -> None:
    phi, own = tables.features(ROWS, 4), columns(kind)
    at = fitted(kind, phi)
    pieces = [at.sums(phi[part], own[part]) for part in (slice(0, 7), slice(7, None), slice(0, 0))]
    for whole, *parts in zip(at.sums(phi, own), *pieces, strict=True):
        added = sum(parts, start=Weighted.zero(whole.features))
        tables.assert_close(added.scatter, whole.scatter)
        tables.assert_close(added.cross, whole.cross)
        assert added.count == whole.count
    gradients = [at.feature_gradient(phi[part], own[part]) for part in (slice(0, 7), slice(7, 40))]
    tables.assert_close(torch.cat(gradients), at.feature_gradient(phi, own))
    assert at.feature_gradient(phi[:0], own[:0]).shape == (0, 5)
    assert at.losses(phi[:0], own[:0]).shape == (0,)


def test_losses_are_those_of_what_is_predicted() -> None:
    phi = tables.features(ROWS, 4)
    for kind in ("binary", "classes"):
        at, y = fitted(kind, phi), columns(kind)[:, 0]
        chances = predict_outcome(at.outcome, at.fitted, phi).probabilities
        if kind == "binary":
            chances = chances.flip(1)  # "yes" is the first level, and the event
        expected = -chances.gather(1, y.long().unsqueeze(1))[:, 0].log()
        tables.assert_close(at.losses(phi, columns(kind)), expected)


def test_the_probabilities_of_all_counts_add_up_to_one() -> None:
    phi = tables.features(ROWS, 4)[:1]
    at = fitted("count", tables.features(ROWS, 4))
    y = torch.arange(3000, dtype=torch.float64)
    every = torch.stack([y, torch.full_like(y, 0.7)], 1)
    latent = at.layer.latent(phi.expand(len(y), -1))
    logs = count.log_density(
        y, *latent, dispersion=2.5, exposure=every[:, 1], offset=at.fitted.offsets[0]
    )
    assert float(logs.exp().sum()) == pytest.approx(1.0, abs=1e-6)
    tables.assert_close(at.losses(phi.expand(len(y), -1), every), (-logs).clamp(max=MOST_LOSS))


def test_the_probabilities_of_all_ends_of_a_patient_add_up_to_one() -> None:
    phi = tables.features(ROWS, 4)
    at = fitted("time_to_event", phi)
    ends = torch.tensor([[0.5, 1.0], [1.5, 1.0], [4.0, 1.0], [5.0, 0.0]], dtype=torch.float64)
    for row in phi[:5]:
        losses = at.losses(row.expand(4, -1), ends)
        assert float((-losses).exp().sum()) == pytest.approx(1.0, abs=1e-9)


def test_no_row_loses_more_than_the_most() -> None:
    phi = tables.features(ROWS, 4)
    at = fitted("binary", phi)
    layer = replace(at.layer, sums=replace(at.layer.sums, cross=at.layer.sums.cross * 1e5))
    far = replace(at, fitted=replace(at.fitted, layers=(layer,)))
    losses = far.losses(phi, columns("binary"))
    assert float(losses.max()) == MOST_LOSS
    assert bool((losses >= 0).all())


@given(seed=st.integers(0, 1000), size=st.floats(0, 30))
@settings(max_examples=15, deadline=None)
def test_survival_falls_and_has_a_risk_between_its_edges(seed: int, size: float) -> None:
    outcome, layer = OUTCOMES["time_to_event"], wild(8, seed=seed, size=size)
    phi = tables.features(6, 4, seed=seed)
    found = predict_outcome(outcome, FittedOutcome((layer,), (-1.0,)), phi)
    assert found.survival is not None
    assert found.survival_variance is not None
    whole = torch.cat([torch.ones(6, 1, dtype=torch.float64), found.survival], 1)
    assert bool((whole.diff(dim=1) <= 1e-12).all())
    assert bool((found.survival >= 0).all())
    tables.assert_close(found.mean, 1 - found.survival[:, -1])
    tables.assert_close(found.variance, found.survival_variance[:, -1])


def wild(features: int, *, seed: int, size: float) -> Layer:
    """Return some q: its mean about as large as `size`, its covariance of any scale."""
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(features, features, generator=generator, dtype=torch.float64)
    mean = torch.randn(features, generator=generator, dtype=torch.float64)
    scatter = root @ root.mT
    cross = size * (scatter + torch.eye(features, dtype=torch.float64)) @ (mean / mean.norm())
    return Layer(Weighted(scatter, cross, 0.0, 10), 1.0)


@each_outcome
@given(
    seed=st.integers(0, 1000),
    size=st.floats(0, 40),
    share=st.floats(0, 1),
    exposure=st.sampled_from(EXPOSURES),
    private=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_no_row_adds_more_than_its_bounds(
    kind: str, seed: int, size: float, share: float, exposure: float, private: bool
) -> None:
    outcome = OUTCOMES[kind]
    own = {
        "binary": [round(share)],
        "classes": [min(2, int(3 * share))],
        "count": [round(50 * share), exposure],
        "time_to_event": [7 * share, seed % 2],
    }
    cells = torch.tensor([own[kind]], dtype=torch.float64)
    functions = latent_functions(outcome)
    offsets = tuple(3.0 * (-1) ** place for place in range(functions))
    layers = tuple(
        wild(layer_features(outcome, 1), seed=seed + place, size=size) for place in range(functions)
    )
    at = FittedOutcome(layers, offsets, 0.3 if kind == "count" else None)
    bounds = row_bounds(outcome, at, log_exposure=math.log(EXPOSURES[1]), private=private)
    one = torch.ones(1, 1, dtype=torch.float64)
    for rule in [polya_gamma] if private else [polya_gamma, newton]:
        sums = Likelihood(outcome, at, rule).sums(one, cells, clip=1.0 if private else None)
        if private and kind != "classes":
            # Their bound is their own: clipping to it changes nothing.
            free = Likelihood(outcome, at, rule).sums(one, cells)
            sums = Likelihood(outcome, at, rule).sums(one, cells, clip=bounds.pull)
            assert torch.equal(free[0].cross, sums[0].cross)
        for each in sums:
            assert each.count <= bounds.rows
            assert float(each.scatter[0, 0]) <= bounds.rows * bounds.weight * (1 + 1e-12)
            assert float(each.cross[0].abs()) <= bounds.rows * bounds.pull * (1 + 1e-12)
            if isinstance(outcome, TimeToEvent):
                assert float(each.scatter.diagonal()[1:].max()) <= bounds.weight
                assert float(each.cross[1:].abs().max()) <= bounds.pull
        assert abs(math.fsum(each.terms for each in sums)) <= bounds.terms


def test_a_q_that_overflows_has_rows_of_zero_with_privacy() -> None:
    phi = tables.features(ROWS, 4)
    for kind in OUTCOMES:
        at = fitted(kind, phi)
        layers = tuple(
            replace(layer, sums=replace(layer.sums, cross=torch.full_like(layer.sums.cross, 1e300)))
            for layer in at.fitted.layers
        )
        far = replace(at, fitted=replace(at.fitted, layers=layers))
        for each in far.sums(1e10 * phi, columns(kind), clip=1.0):
            assert bool(each.cross.isfinite().all())
            assert each.terms == 0.0


def test_the_mean_of_classes_is_taken_out_of_their_pulls_alone() -> None:
    phi = tables.features(ROWS, 4)
    at = fitted("classes", phi)
    latent = classes.latent(at.fitted.layers, phi)
    shift = torch.tensor(at.fitted.offsets, dtype=torch.float64)
    own = classes.rows_of(columns("classes")[:, 0], *latent, shift)
    for rows, summed in zip(own, at.sums(phi, columns("classes")), strict=True):
        tables.assert_close(summed.cross, (rows.pulls - rows.weights * latent[0].mean(1)) @ phi)
        assert summed.terms == pytest.approx(float(rows.terms.sum()))


@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 1e100])
def test_a_clipped_row_adds_at_most_the_clip_and_short_rows_are_left(size: float) -> None:
    part = torch.tensor([[3.0, -4.0]], dtype=torch.float64) * size
    found = clipped_sum(part, 0.6)
    torch.testing.assert_close(found, part[0] * min(1.0, 0.12 / size if size else 1.0))
    assert float(found.norm()) <= 0.6 * (1 + 1e-12)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_whose_slope_fails_adds_nothing(bad: float) -> None:
    parts = torch.tensor([[bad, 1.0], [0.1, 0.2]], dtype=torch.float64)
    assert clipped_sum(parts, 0.6).tolist() == [0.1, 0.2]

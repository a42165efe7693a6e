"""Yes/no outcomes: phase 2 is the pooled variational optimum, and answers are always finite."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.outcomes import binary, logistic
from kernels.outcomes.variational import Layer, log_prior, updated
from kernels.outcomes.weighted import Weighted
from tests.kernels.outcomes import tables

PHI = tables.features(150)
ROWS = binary.trials(tables.yes_no(PHI))


def test_phase_2_of_five_hospitals_is_the_pooled_optimum_of_the_bound() -> None:
    layer, parts = Layer.prior(7, prior_variance=1.5), torch.arange(150).tensor_split(5)
    for _ in range(60):
        total = Weighted.zero(7)
        for part in parts:
            rows = slice(int(part[0]), int(part[-1]) + 1)
            total = total + logistic.local([(PHI[rows], ROWS[rows])], layer)
        layer = updated(layer, total, fixed_prior=True)
    total = logistic.local([(PHI, ROWS)], layer)
    dense = tables.dense_optimum(PHI, ROWS, logistic.polya_gamma, 1.5)
    assert layer.bound(total) == pytest.approx(dense, rel=1e-8)


@given(shift=st.floats(-4, 4), seed=st.integers(0, 99))
@settings(max_examples=10, deadline=None)
def test_the_bound_never_falls_also_when_the_prior_is_refitted(shift: float, seed: int) -> None:
    phi = tables.features(60, seed=seed)
    rows = binary.trials(tables.yes_no(phi, shift=shift, seed=seed + 1))
    layer, bounds = Layer.prior(7), []
    for _ in range(12):
        total = logistic.local([(phi, rows)], layer)
        bounds.append(layer.bound(total) + log_prior(layer.prior_variance))
        layer = updated(layer, total)
    # λ is rounded to 16 bits.
    assert all(later >= sooner - 1e-7 for sooner, later in itertools.pairwise(bounds))


def test_both_bounds_are_below_the_evidence_and_newtons_is_the_closer() -> None:
    phi, y = PHI[:40, :1], tables.yes_no(PHI)[:40]
    rows = binary.trials(y)
    w = torch.linspace(-12, 12, 4001, dtype=torch.float64)
    logs = (phi * (2 * y - 1)[:, None] * w).sigmoid().log().sum(0) - w.square() / 4
    evidence = float(torch.logsumexp(logs, 0)) + math.log(24 / 4000) - math.log(4 * math.pi) / 2
    layer = tables.by_polya_gamma(phi, rows, sums=40, prior=2.0)
    bound = layer.bound(logistic.local([(phi, rows)], layer))
    closer = tables.by_newton(phi, rows, sums=12, prior=2.0).bound
    assert closer is not None
    assert bound < closer < evidence
    assert closer == pytest.approx(evidence, abs=0.01)


@pytest.mark.parametrize("rule", ["polya_gamma", "newton"])
@pytest.mark.parametrize("kind", ["separable", "all alike", "one row"])
def test_answers_are_finite(rule: str, kind: str) -> None:
    phi = PHI[:1] if kind == "one row" else PHI
    y = (phi[:, 0] > 0).double() if kind == "separable" else torch.ones(len(phi))
    rows = binary.trials(y)
    if rule == "newton":
        search = tables.by_newton(phi, rows, sums=15)
        assert search.kept is not None
        layer = search.kept[0]
    else:
        layer = tables.by_polya_gamma(phi, rows, sums=15)
    prediction = binary.predict(*layer.latent(phi))
    assert prediction.mean.isfinite().all()
    assert ((prediction.mean > 0) & (prediction.mean < 1)).all()
    assert ((prediction.mean > 0.5) == (y > 0.5)).double().mean() > 0.95
    assert binary.log_density(y, *layer.latent(phi)).isfinite().all()


@given(mean=st.floats(-40, 40), variance=st.floats(0, 100), offset=st.floats(-3, 3))
@settings(max_examples=30, deadline=None)
def test_a_prediction_mirrors_when_yes_becomes_no(
    mean: float, variance: float, offset: float
) -> None:
    m, v = (torch.tensor([own], dtype=torch.float64) for own in (mean, variance))
    there = binary.predict(m, v, offset=offset)
    back = binary.predict(-m, v, offset=-offset)
    assert float(there.mean + back.mean) == pytest.approx(1.0, abs=1e-12)
    assert float(there.variance) == pytest.approx(float(back.variance), abs=1e-12)
    assert 0 <= float(there.variance) <= 0.25
    densities = [
        float(binary.log_density(torch.tensor([own]), m, v, offset=offset).exp())
        for own in (0.0, 1.0)
    ]
    assert sum(densities) == pytest.approx(1.0, abs=1e-12)
    assert densities[1] == pytest.approx(float(there.mean), rel=1e-9)


def test_the_offset_is_finite_for_any_counts() -> None:
    assert binary.base_offset(events=3, rows=6) == 0
    assert binary.base_offset(events=0, rows=0) == 0
    assert binary.base_offset(events=-2.5, rows=10) == pytest.approx(math.log(0.5 / 10.5))
    assert binary.base_offset(events=40, rows=10) == pytest.approx(math.log(10.5 / 0.5))


def test_an_offset_is_a_feature_whose_weight_is_known() -> None:
    # f + o with o known equals f with y's log odds shifted: same q from both ways of writing it.
    y = tables.yes_no(PHI, shift=-2.0)
    mean, variance = PHI @ torch.ones(7, dtype=torch.float64), PHI.square().sum(1)
    inside = logistic.newton(binary.trials(y), mean - 2, variance)
    outside = logistic.newton(binary.trials(y, offset=-2.0), mean, variance)
    tables.assert_close(outside.weights, inside.weights)
    tables.assert_close(outside.pulls, inside.pulls + 2 * inside.weights)

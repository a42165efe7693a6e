"""Parabolas and gradients of the likelihood of logits."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.errors import NotFinite, TableError, WrongShape
from kernels.features.spec import KernelSpec
from kernels.features.urk import URK
from kernels.outcomes import binary, count, logistic
from kernels.outcomes.logistic import Trials, client_gradient
from kernels.outcomes.variational import Layer
from tests.kernels.features.specs import EVERY_SPEC
from tests.kernels.outcomes import tables

RULES = [logistic.polya_gamma, logistic.newton]
every_spec = pytest.mark.parametrize("spec", EVERY_SPEC.values(), ids=EVERY_SPEC)
every_rule = pytest.mark.parametrize("rule", RULES)


def trials_of(kind: str, rows: int) -> Trials:
    if kind == "binary":
        return binary.trials((tables.chances(rows) < 0.4).double(), offset=-0.4)
    return count.trials((tables.chances(rows) * 9).floor(), dispersion=1.5, offset=0.5)


@every_spec
@every_rule
@pytest.mark.parametrize("kind", ["binary", "count"])
def test_the_sum_of_clients_gradients_is_autograd_through_the_pooled_bound(
    spec: KernelSpec, rule: logistic.Rule, kind: str
) -> None:
    kernel, rows = URK(spec), trials_of(kind, 30)
    x = torch.randn(30, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    phi = kernel.features(x).detach()
    layer = tables.by_polya_gamma(phi, rows, sums=2, prior=0.1)
    root = torch.linalg.cholesky(layer.covariance)
    value = -tables.dense_bound(kernel.features(x), rows, rule, layer.mean, root, 0.1)
    gradient = torch.autograd.grad(value, kernel.weights)[0]
    parts = [slice(0, 11), slice(11, 12), slice(12, 30)]
    federated = [
        client_gradient(kernel, x[part], rows[part], layer, rule=rule, chunk_rows=7)
        for part in parts
    ]
    assert (torch.stack(federated).sum(0) - gradient).norm() <= 1e-9 * gradient.norm()


@every_spec
def test_with_the_weights_of_the_sums_it_is_the_gradient_of_the_collapsed_bound(
    spec: KernelSpec,
) -> None:
    # ½bᵀA⁻¹b − ½log|λ²A| + Σt at fixed c: q is optimal for it, so only Φ is differentiated.
    kernel, outcomes = URK(spec), trials_of("binary", 30)
    x = torch.randn(30, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    phi = kernel.features(x)
    rows = logistic.polya_gamma(outcomes, *Layer.prior(phi.shape[1]).latent(phi))
    total = logistic.local([(phi, outcomes)], Layer.prior(phi.shape[1]))
    scatter, cross = phi.mT @ (rows.weights[:, None] * phi), phi.mT @ rows.pulls
    precision = scatter + torch.eye(len(cross), dtype=torch.float64) / 0.7
    bound = cross @ torch.linalg.solve(precision, cross) - torch.logdet(0.7 * precision)
    expected = torch.autograd.grad(-bound / 2, kernel.weights)[0]
    _, pullback = kernel.features_and_pullback(x)
    found = pullback(logistic.feature_gradient(phi, rows, Layer(total, 0.7)))
    assert (found - expected).norm() <= 1e-9 * expected.norm()


number = st.floats(-30, 30)


@every_rule
@given(mean=number, offset=st.floats(-5, 5), variance=st.floats(0, 50), event=st.booleans())
@settings(max_examples=30, deadline=None)
def test_no_row_moves_a_sum_by_more_than_its_sensitivity(
    rule: logistic.Rule, mean: float, offset: float, variance: float, event: bool
) -> None:
    m, v = (torch.tensor([own], dtype=torch.float64) for own in (mean, variance))
    rows = rule(binary.trials(torch.tensor([float(event)]), offset=offset), m, v)
    least = 0.5 if rule is logistic.polya_gamma else 1.0
    assert 0 <= float(rows.weights) <= 0.25 * (1 + 1e-12)
    assert abs(float(rows.pulls)) <= (least + abs(offset) / 4) * (1 + 1e-9) + 1e-12


@given(mean=number, variance=st.floats(1e-6, 50), at=number, event=st.booleans())
@settings(max_examples=30, deadline=None)
def test_the_polya_gamma_parabola_is_nowhere_above_the_likelihood(
    mean: float, variance: float, at: float, event: bool
) -> None:
    m, v, f = (torch.tensor([own], dtype=torch.float64) for own in (mean, variance, at))
    outcome = binary.trials(torch.tensor([float(event)]), offset=0.3)
    rows = logistic.polya_gamma(outcome, m, v)
    constant = rows.terms - rows.pulls * m + rows.weights * (m.square() + v) / 2
    parabola = rows.pulls * f - rows.weights * f.square() / 2 + constant
    exact = logistic.expected_log_density(outcome, f, torch.zeros_like(f))
    assert float(parabola) <= float(exact) + 1e-9


def test_the_weight_is_smooth_at_zero() -> None:
    c = torch.tensor([0.0, 1e-9, 9.99e-4, 1.001e-3, 1e-2], dtype=torch.float64)
    zero = torch.zeros_like(c)
    rows = logistic.polya_gamma(binary.trials(zero), zero, c.square())
    series = 0.25 - c**2 / 48 + c**4 / 480
    tables.assert_close(rows.weights, series, rtol=1e-13, atol=0)


@every_rule
def test_of_nearly_certain_rows_everything_is_finite(rule: logistic.Rule) -> None:
    m = torch.tensor([-1e3, 1e3, -1e3, 1e3], dtype=torch.float64)
    y = torch.tensor([0.0, 0.0, 1.0, 1.0])
    for variance in (0.0, 1.0, 1e6):
        rows = rule(binary.trials(y), m, torch.full_like(m, variance))
        for own in (rows.weights, rows.pulls, rows.terms):
            assert own.isfinite().all()


def test_outcomes_of_another_kind_are_refused_without_their_values() -> None:
    with pytest.raises(TableError) as refused:
        binary.trials(torch.tensor([0.0, 1.0, 731.25]))
    assert "731" not in str(refused.value)
    good = torch.zeros(3, dtype=torch.float64)
    with pytest.raises(WrongShape):
        Trials(good, good, good[:2], good)
    with pytest.raises(NotFinite):
        Trials(good, good + 1, good * torch.nan, good)
    kernel = URK(EVERY_SPEC["rbf"])
    with pytest.raises(WrongShape):
        client_gradient(kernel, torch.zeros(2, 3), binary.trials(good), Layer.prior(20))

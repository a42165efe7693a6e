"""Time to an event: Kaplan–Meier without features, a binomial GLM with them, stated rules."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.errors import PredictionError, TableError, WrongShape
from kernels.outcomes import binary, time_to_event
from tests.kernels.outcomes import tables

EDGES = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)


def table_of(time: float, event: int) -> list[tuple[int, int]]:
    rows = time_to_event.periods(torch.tensor([time]), torch.tensor([event]), EDGES)
    return list(zip(rows.interval.tolist(), rows.outcome.int().tolist(), strict=True))


@pytest.mark.parametrize(
    ("time", "event", "expected"),
    [
        (0.0, 1, [(0, 1)]),  # an event at time 0 is in the first interval
        (1.0, 1, [(0, 1)]),  # an interval contains the edge that ends it
        (1.5, 1, [(0, 0), (1, 1)]),
        (4.0, 1, [(0, 0), (1, 0), (2, 1)]),
        (9.0, 1, [(0, 0), (1, 0), (2, 0)]),  # after the last edge: survived
        (0.0, 0, []),
        (0.7, 0, []),  # a part of an interval says nothing
        (1.0, 0, [(0, 0)]),  # censored at an edge: the interval was survived
        (3.9, 0, [(0, 0), (1, 0)]),
        (4.0, 0, [(0, 0), (1, 0), (2, 0)]),
        (9.0, 0, [(0, 0), (1, 0), (2, 0)]),
    ],
)
def test_the_rows_of_a_patient(time: float, event: int, expected: list[tuple[int, int]]) -> None:
    assert table_of(time, event) == expected


def cohort(rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Features, times and events, with times on a coarse scale, so that there are ties."""
    phi = tables.features(rows, 2)[:, :2]
    rate = (2 * phi[:, 0] - phi[:, 1] - 1.5).exp()
    time = -tables.chances(rows, seed=3).log() / rate
    censored = -5 * tables.chances(rows, seed=4).log()
    observed = (torch.minimum(time, censored) * 4).ceil() / 4
    return phi, observed, (time <= censored).double()


def test_without_features_it_is_kaplan_meier() -> None:
    from lifelines import KaplanMeierFitter

    _, times, events = cohort(300)
    edges = times[(events == 1) & (times <= 3)].unique()
    rows = time_to_event.periods(times, events, edges)
    phi = torch.nn.functional.one_hot(rows.interval, len(edges)).double()
    search = tables.by_newton(phi, binary.trials(rows.outcome), sums=30, prior=1e8)
    assert search.kept is not None
    each = torch.eye(len(edges), dtype=torch.float64)
    hazards = binary.predict(*search.kept[0].latent(each)).mean
    theirs = KaplanMeierFitter().fit(times.numpy(), events.numpy())
    expected = theirs.survival_function_at_times(edges.numpy()).to_numpy()
    assert (1 - hazards).cumprod(0).numpy() == pytest.approx(expected, abs=1e-5)
    curve = time_to_event.predict(*search.kept[0].joint(phi.new_zeros(1, 0)))
    assert curve.mean[0].numpy() == pytest.approx(expected, abs=2e-3)
    # Greenwood's variance.
    at_risk = torch.bincount(rows.interval).double()
    deaths = torch.bincount(rows.interval, weights=rows.outcome)
    greenwood = curve.mean[0] ** 2 * (deaths / (at_risk * (at_risk - deaths))).cumsum(0)
    assert curve.variance[0].numpy() == pytest.approx(greenwood.numpy(), rel=0.15)


def test_with_features_it_is_a_binomial_glm_on_the_person_period_table() -> None:
    from statsmodels.genmod.families import Binomial
    from statsmodels.genmod.generalized_linear_model import GLM

    x, times, events = cohort(1500)
    edges = torch.tensor([0.5, 1.0, 1.5, 2.5, 4.0], dtype=torch.float64)
    rows = time_to_event.periods(times, events, edges)
    interval = torch.nn.functional.one_hot(rows.interval, 5).double()
    phi = torch.cat([x[rows.patient], interval], 1)
    theirs = GLM(rows.outcome.numpy(), phi.numpy(), family=Binomial()).fit()
    kept = tables.by_newton(phi, binary.trials(rows.outcome), sums=14, prior=1e6).kept
    assert kept is not None
    layer = kept[0]
    assert np.abs((layer.mean.numpy() - theirs.params) / theirs.bse).max() < 0.1
    assert layer.covariance.diagonal().sqrt().numpy() == pytest.approx(theirs.bse, rel=0.03)
    found = binary.predict(*layer.latent(phi)).mean
    assert found.numpy() == pytest.approx(theirs.predict(), abs=2e-3)


@given(seed=st.integers(0, 500), spread=st.floats(0, 4), intervals=st.integers(1, 12))
@settings(max_examples=25, deadline=None)
def test_survival_falls_from_one_and_its_parts_add_up(
    seed: int, spread: float, intervals: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(4, intervals, generator=generator, dtype=torch.float64) - 1
    root = spread * torch.randn(4, intervals, 3, generator=generator, dtype=torch.float64)
    found = time_to_event.predict(mean, root @ root.mT)
    whole = torch.cat([torch.ones(4, 1, dtype=torch.float64), found.mean], 1)
    assert ((whole.diff(dim=1) <= 0) & (found.mean > 0)).all()
    assert ((found.variance >= 0) & (found.variance <= 0.25)).all()
    edges = torch.arange(1, intervals + 1, dtype=torch.float64)
    densities = [
        time_to_event.log_density(found.mean, edge.expand(4), torch.ones(4), edges).exp()
        for edge in edges
    ]
    end = time_to_event.log_density(found.mean, edges[-1:].expand(4), torch.zeros(4), edges).exp()
    tables.assert_close(torch.stack(densities).sum(0) + end, torch.ones(4, dtype=torch.float64))


def test_mean_and_variance_are_those_of_draws() -> None:
    generator = torch.Generator().manual_seed(0)
    mean = torch.tensor([[-2.0, -1.0, -1.5]], dtype=torch.float64)
    root = torch.tensor([[0.6, 0.0], [0.4, 0.3], [0.2, 0.5]], dtype=torch.float64)
    noise = torch.randn(200_000, 2, generator=generator, dtype=torch.float64)
    drawn = torch.sigmoid(-(mean + noise @ root.mT)).cumprod(1)
    found = time_to_event.predict(mean, (root @ root.mT).unsqueeze(0))
    tables.assert_close(found.mean[0], drawn.mean(0), rtol=0.005, atol=0.0)
    tables.assert_close(found.variance[0], drawn.var(0), rtol=0.03, atol=0.0)


SURVIVAL = torch.tensor([[0.9, 0.6, 0.2], [0.9, 0.8, 0.7], [0.1, 0.05, 0.0]]).double()


def test_median_and_risk_are_read_from_the_curve() -> None:
    found = time_to_event.median(SURVIVAL, EDGES).tolist()
    assert found == pytest.approx([2.5, math.inf, 5 / 9])
    assert time_to_event.risk(SURVIVAL, EDGES, 2.0).tolist() == pytest.approx([0.4, 0.2, 0.95])
    assert time_to_event.risk(SURVIVAL, EDGES, 3.0).tolist() == pytest.approx([0.6, 0.25, 0.975])
    assert time_to_event.risk(SURVIVAL, EDGES, 0.0).tolist() == pytest.approx([0.0, 0.0, 0.0])
    assert time_to_event.risk(SURVIVAL, EDGES, 0.5).tolist() == pytest.approx([0.05, 0.05, 0.45])
    with pytest.raises(PredictionError, match="last edge"):
        time_to_event.risk(SURVIVAL, EDGES, 4.5)


def test_the_density_of_what_was_observed() -> None:
    times = torch.tensor([0.0, 1.5, 9.0, 0.5, 2.0, 9.0])
    events = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    survival = SURVIVAL[:1].expand(6, 3)
    found = time_to_event.log_density(survival, times, events, EDGES).exp().tolist()
    assert found == pytest.approx([0.1, 0.3, 0.2, 1.0, 0.6, 0.2])


def test_nobody_at_risk_is_an_empty_table() -> None:
    rows = time_to_event.periods(torch.tensor([0.0, 0.3]), torch.zeros(2), EDGES)
    assert len(rows.patient) == len(rows.interval) == len(rows.outcome) == 0
    none = time_to_event.periods(torch.zeros(0), torch.zeros(0), EDGES)
    assert len(none.outcome) == 0


def test_impossible_times_are_refused() -> None:
    one = torch.ones(1)
    for wrong in (-1.0, math.nan, math.inf):
        with pytest.raises(TableError):
            time_to_event.periods(wrong * one, one, EDGES)
    with pytest.raises(TableError):
        time_to_event.periods(one, 2 * one, EDGES)
    with pytest.raises(WrongShape):
        time_to_event.periods(one, torch.ones(2), EDGES)
    for edges in ([0.0, 1.0], [1.0, 1.0], [2.0, 1.0]):
        with pytest.raises(TableError):
            time_to_event.check_edges(torch.tensor(edges))
    with pytest.raises(WrongShape):
        time_to_event.check_edges(torch.zeros(0))
    with pytest.raises(WrongShape):
        time_to_event.predict(torch.zeros(1, 2), torch.zeros(1, 3, 3))
    with pytest.raises(WrongShape):
        time_to_event.median(SURVIVAL[:, :2], EDGES)

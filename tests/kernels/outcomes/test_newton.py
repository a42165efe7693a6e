"""Guarded Newton steps: the kept bound never falls, few sums suffice where events are rare."""

import pytest

from kernels.outcomes import binary, logistic
from kernels.outcomes.newton import Search, advanced
from kernels.outcomes.variational import Layer
from tests.kernels.outcomes import tables


@pytest.mark.parametrize("shift", [0.0, -3.0])
def test_it_is_the_pooled_variational_optimum(shift: float) -> None:
    phi = tables.features(150)
    rows = binary.trials(tables.yes_no(phi, shift=shift))
    search = tables.by_newton(phi, rows, sums=16, prior=1.5)
    dense = tables.dense_optimum(phi, rows, logistic.newton, 1.5)
    assert search.bound == pytest.approx(dense, rel=1e-8)


def test_rare_events_need_few_sums() -> None:
    phi = tables.features(2000)
    y = tables.yes_no(phi, shift=-7.0)
    assert 10 <= y.sum() <= 60
    rows = binary.trials(y, offset=binary.base_offset(events=float(y.sum()), rows=2000))
    best = tables.by_newton(phi, rows, sums=16).bound
    soon = tables.by_newton(phi, rows, sums=8).bound
    assert best is not None
    assert soon == pytest.approx(best, abs=0.01)


def test_a_step_that_goes_too_far_is_shortened() -> None:
    # Rare events, from a wide prior and without the first sum's bound: full steps overshoot.
    phi = tables.features(2000)
    y = tables.yes_no(phi, shift=-7.0)
    rows = binary.trials(y, offset=binary.base_offset(events=float(y.sum()), rows=2000))
    search, shares, bounds = Search((Layer.prior(7, prior_variance=25.0),)), [], []
    for _ in range(20):
        total = logistic.local([(phi, rows)], search.layers[0], rule=logistic.newton)
        search = advanced(search, [total])
        shares.append(search.share)
        bounds.append(search.bound)
    assert min(shares) < 1
    assert bounds == sorted(bounds)
    assert search.gain == pytest.approx(0.0, abs=1e-3)

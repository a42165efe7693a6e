"""Noisy counts become the nearest histogram."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from kernels.noisy.counts import repaired

noisy = st.lists(st.floats(-50, 200), min_size=1, max_size=12)


@given(noisy)
def test_what_comes_out_is_a_histogram_of_as_many_rows(counts: list[float]) -> None:
    found = repaired(torch.tensor(counts, dtype=torch.float64))
    assert bool((found >= 0).all())
    torch.testing.assert_close(float(found.sum()), max(sum(counts), 1.0), rtol=1e-9, atol=1e-9)


@given(noisy)
@settings(max_examples=30, deadline=None)
def test_no_other_histogram_is_nearer(counts: list[float]) -> None:
    given_counts = torch.tensor(counts, dtype=torch.float64)
    found = repaired(given_counts)
    distance = float((found - given_counts).square().sum())
    total, start = float(found.sum()), np.full(len(counts), float(found.sum()) / len(counts))
    other = minimize(
        lambda x: float(((x - given_counts.numpy()) ** 2).sum()),
        start,
        bounds=[(0, None)] * len(counts),
        constraints={"type": "eq", "fun": lambda x: x.sum() - total},
        method="SLSQP",
    )
    assert distance <= other.fun * (1 + 1e-6) + 1e-6


def test_a_histogram_stays_as_it_is_and_rows_are_repaired_apart() -> None:
    counts = torch.tensor([[3.0, 0.0, 5.0], [-2.0, 8.0, 1.0]], dtype=torch.float64)
    assert torch.equal(repaired(counts)[0], counts[0])
    torch.testing.assert_close(repaired(counts)[1].sum(), counts[1].sum())

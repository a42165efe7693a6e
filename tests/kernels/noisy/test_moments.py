"""A standardiser from noisy moments: from the sums if they are informative, else from bounds."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.errors import UnboundedColumns
from kernels.noisy.moments import from_bounds, from_noisy
from kernels.tables.moments import Moments
from kernels.tables.records import Records
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.standardiser import Standardiser
from kernels.tables.targets import Target

SCHEMA = Schema(
    (
        Numeric("age", "a", 0, 120),
        Numeric("crp", "mg/l", 0, 500, may_be_missing=True),
        Categorical("ward", ("A", "B", "C")),
    ),
    (Target("stay", "d", 0, 90),),
)
NAMES = [field.name for field in fields(Moments)]


def moments_of(rows: int, *, seed: int = 0) -> Moments:
    random = np.random.default_rng(seed)
    crp = random.exponential(40, rows).clip(0, 500)
    crp[random.random(rows) < 0.2] = np.nan
    table = {
        "age": random.normal(60, 12, rows).clip(0, 120),
        "crp": crp,
        "ward": random.choice(["A", "B", "C"], rows, p=[0.6, 0.3, 0.1]),
        "stay": random.exponential(6, rows).clip(0, 90),
    }
    return Moments.of(Records.for_training(SCHEMA, table))


def noised(moments: Moments, deviation: float, seed: int) -> Moments:
    random = torch.Generator().manual_seed(seed)
    drawn = {
        name: getattr(moments, name)
        + deviation * torch.randn(getattr(moments, name).shape, generator=random).double()
        for name in NAMES
    }
    return replace(moments, **drawn)


def test_without_noise_it_is_the_standardiser_of_the_moments() -> None:
    moments = moments_of(5000)
    exact = Standardiser.of(SCHEMA, moments)
    found = from_noisy(SCHEMA, moments, dict.fromkeys(NAMES, 1e-9))
    for one, other in zip(
        (*found.numeric, *found.targets), (*exact.numeric, *exact.targets), strict=True
    ):
        assert one.mean == pytest.approx(other.mean, rel=1e-6)
        assert one.scale == pytest.approx(other.scale, rel=1e-6)
    assert found.categorical[0].shares == pytest.approx(exact.categorical[0].shares)


def test_little_noise_changes_little() -> None:
    moments = moments_of(5000)
    exact = Standardiser.of(SCHEMA, moments)
    for seed in range(20):
        found = from_noisy(SCHEMA, noised(moments, 10.0, seed), dict.fromkeys(NAMES, 10.0))
        for one, other in zip(found.numeric, exact.numeric, strict=True):
            assert one.mean == pytest.approx(other.mean, abs=0.1 * other.scale)
            assert one.scale == pytest.approx(other.scale, rel=0.15)


def test_much_noise_leaves_the_bounds() -> None:
    guess = from_bounds(SCHEMA)
    for seed in range(20):
        found = from_noisy(SCHEMA, noised(moments_of(100), 1e6, seed), dict.fromkeys(NAMES, 1e6))
        for one, other in zip(
            (*found.numeric, *found.targets), (*guess.numeric, *guess.targets), strict=True
        ):
            assert abs(one.mean - other.mean) < 1.1 * other.scale
            assert other.scale / 2 < one.scale < 2 * other.scale


@given(st.integers(1, 40), st.floats(1e-6, 1e9), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_every_noise_gives_a_valid_standardiser(rows: int, deviation: float, seed: int) -> None:
    noisy = noised(moments_of(rows, seed=seed % 50), deviation, seed)
    found = from_noisy(SCHEMA, noisy, dict.fromkeys(NAMES, deviation))
    found.check(SCHEMA)
    for scale, column in zip(found.numeric, SCHEMA.numeric, strict=True):
        assert column.lower is not None
        assert column.upper is not None
        assert column.lower - 1e-9 <= scale.mean <= column.upper + 1e-9
        assert 0 < scale.scale <= (column.upper - column.lower) / 2 * (1 + 1e-9)
    assert math.fsum(found.categorical[0].shares) == pytest.approx(1.0)


def test_a_column_without_both_bounds_is_refused() -> None:
    schema = Schema((Numeric("age", "a", lower=0),), (Target("stay", "d", 0, 9),))
    with pytest.raises(UnboundedColumns, match="'age'"):
        from_bounds(schema)

"""The census of outcomes: sums over rows, from which every outcome has a finite offset."""

import math
from dataclasses import fields
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import storage
from kernels.errors import StateError
from kernels.outcomes.census import Census
from kernels.tables.made_up import made_up_rows
from kernels.tables.records import Records
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Binary, Classes, Count, Target, TimeToEvent

SCHEMA = Schema(
    (Numeric("age", "a", 0, 120),),
    (
        Count("visits", "visits", upper=50, exposure="years"),
        Binary("readmitted", ("yes", "no"), event="yes"),
        Target("stay", "d", 0, 60),
        TimeToEvent("days", "d", event="died", edges=(10.0, 20.0)),
        Classes("diagnosis", ("a", "b", "c")),
        Count("falls", "falls"),
    ),
)
TABLE: dict[str, Any] = {
    "age": [61, 47, 80, 33, 50],
    "visits": [0, 3, 50, 1, 2],
    "years": [1.0, 0.5, 2.0, 1.0, 1 / 3],
    "readmitted": ["no", "yes", "yes", "no", "no"],
    "stay": [1, 2, 3, 4, 5],
    "days": [5, 5, 15, 20, 30],
    "died": [0, 1, 1, 0, 1],
    "diagnosis": ["c", "a", "a", "c", "c"],
    "falls": [0, 0, 1, 0, 2],
}
WHOLE = Records.for_training(SCHEMA, TABLE)


def _same(one: Census, other: Census) -> bool:
    return all(torch.equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(Census))


def test_a_census_counts_rows_of_levels_patients_of_intervals_and_sums() -> None:
    census = Census.of(WHOLE)
    visits, readmitted, days, diagnosis, falls = census.of_levels(SCHEMA)
    assert (len(visits), len(falls)) == (0, 0)
    assert readmitted.tolist() == [3, 2]
    # Censored at 5: nothing is known. Censored at 20 and an event at 30: both intervals survived.
    assert days.tolist() == [4, 3, 1, 1]
    assert diagnosis.tolist() == [2, 0, 3]
    assert census.counts.tolist() == [56, 3]
    assert census.exposures.tolist() == [pytest.approx(4 + 5 / 6, abs=2**-12), 5]
    assert census.sites.tolist() == [1, 1, 1, 0, 1]


@settings(max_examples=30, deadline=None)
@given(
    exposures=st.lists(st.floats(2**-12, 1e4), min_size=5, max_size=5),
    first=st.integers(0, 5),
    order=st.permutations(range(5)),
)
def test_rows_divided_in_any_way_add_up_to_the_same_bits(
    exposures: list[float], first: int, order: list[int]
) -> None:
    table = {**TABLE, "years": exposures}
    whole = Census.of(Records.for_training(SCHEMA, table))
    added = Census.zero(SCHEMA)
    for rows in (order[:first], order[first:]):
        if rows:
            own = {name: [cells[row] for row in rows] for name, cells in table.items()}
            added += Census.of(Records.for_training(SCHEMA, own))
    for name in ("levels", "counts", "exposures"):
        assert torch.equal(getattr(added, name), getattr(whole, name))
    assert bool((added.sites >= whole.sites).all())


def test_no_rows_are_counted_as_zero() -> None:
    assert _same(Census.of(Records.none(SCHEMA)), Census.zero(SCHEMA))


def test_offsets_are_logits_of_shares_and_logarithms_of_rates() -> None:
    visits, readmitted, days, diagnosis, _ = Census.of(WHOLE).offsets(SCHEMA)
    assert visits == (pytest.approx(math.log(56.5 / (5 + 1 / 3)), abs=1e-3),)
    assert readmitted == (pytest.approx(math.log(2.5 / 3.5), abs=1e-3),)
    assert days == (pytest.approx(math.log(2.5 / 5.5), abs=1e-3),)
    assert sum(diagnosis) == pytest.approx(0.0, abs=1e-3)
    assert diagnosis[2] - diagnosis[0] == pytest.approx(math.log(3.5 / 2.5), abs=1e-3)


def test_without_rows_every_offset_is_zero() -> None:
    offsets = Census.zero(SCHEMA).offsets(SCHEMA)
    assert [len(own) for own in offsets] == [1, 1, 1, 3, 1]
    assert {each for own in offsets for each in own} == {0.0}


@given(data=st.data())
def test_any_census_even_a_noisy_one_has_finite_offsets(data: st.DataObject) -> None:
    numbers = st.one_of(st.just(0.0), st.floats(0, 1e12))
    zero = Census.zero(SCHEMA)
    parts = {
        f.name: data.draw(
            st.lists(
                numbers, min_size=len(getattr(zero, f.name)), max_size=len(getattr(zero, f.name))
            )
        )
        for f in fields(Census)
    }
    census = Census(**{name: torch.tensor(own, dtype=torch.float64) for name, own in parts.items()})
    census.check(SCHEMA)
    assert all(math.isfinite(each) for own in census.offsets(SCHEMA) for each in own)


def test_a_census_survives_storage_and_one_of_another_schema_is_refused() -> None:
    census = Census.of(made_up_rows(SCHEMA, 40))
    again = storage.decode(storage.encode(census), {Census.STORED_AS: Census})
    assert _same(again, census)
    other = Schema(SCHEMA.features, SCHEMA.targets[:3])
    with pytest.raises(StateError, match=r"census\.levels"):
        census.check(other)
    negative = Census(census.levels - 1e6, census.counts, census.exposures, census.sites)
    with pytest.raises(StateError, match="negative"):
        negative.check(SCHEMA)

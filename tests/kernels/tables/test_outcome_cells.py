"""Cells of outcomes: each kind read as numbers, or refused with what is wrong."""

import datetime
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.errors import (
    InfiniteValue,
    MissingColumn,
    MissingTarget,
    NotALabel,
    NotNumeric,
    OutOfBounds,
    TableError,
    TableRefused,
    UnknownLevel,
    WrongOutcome,
)
from kernels.tables.outcome_cells import EXPOSURES, label_columns, positions
from kernels.tables.problems import RowByRow
from kernels.tables.records import Records, read_in_pieces
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Binary, Classes, Count, Outcome, Target, TimeToEvent

READMITTED = Binary("readmitted", ("yes", "no"), event="yes")
DIAGNOSIS = Classes("diagnosis", ("1", "2", "3"))
VISITS = Count("visits", "visits", upper=50, exposure="years")
DEATH = TimeToEvent("days", "d", event="died", horizon=90)
SCHEMA = Schema(
    (Numeric("age", "a", 0, 120),), (READMITTED, DIAGNOSIS, Target("stay", "d"), VISITS, DEATH)
)
TABLE: dict[str, Any] = {
    "age": [61, 47, 80, 33],
    "readmitted": ["no", "yes", "yes", "no"],
    "diagnosis": [1, "3", 2.0, "1"],
    "stay": [1.0, 2.0, 3.0, 4.0],
    "visits": [0, 3, 50, 1],
    "years": [1.0, 0.5, 2.0, 1.0],
    "days": [0, 12.5, 90, 400],
    "died": [0, 1, 0, "1"],
}


def _read(changes: dict[str, Any], schema: Schema = SCHEMA) -> Any:
    records = Records.for_training(schema, {**TABLE, **changes})
    assert records.outcomes is not None
    return records.outcomes


def _problem(**changes: Any) -> TableError:
    with pytest.raises(TableRefused) as raised:
        Records.for_training(SCHEMA, {**TABLE, **changes})
    (problem,) = raised.value.problems
    return problem


def _left(**changes: Any) -> tuple[list[list[float]], RowByRow]:
    """Return the outcomes of the rows that are left, as with differential privacy."""
    problems = RowByRow()
    (records,) = read_in_pieces(SCHEMA, [{**TABLE, **changes}], problems=problems)
    assert records.outcomes is not None
    return records.outcomes.tolist(), problems


def test_outcomes_are_read_as_numbers_in_the_order_of_the_schema() -> None:
    assert _read({}).tolist() == [
        [0, 0, 0, 1.0, 0, 0],
        [1, 2, 3, 0.5, 12.5, 1],
        [1, 1, 50, 2.0, 90, 0],
        [0, 0, 1, 1.0, 400, 1],
    ]
    assert positions(SCHEMA.outcomes) == (slice(0, 1), slice(1, 2), slice(2, 4), slice(4, 6))


def test_the_event_is_one_wherever_it_is_among_the_levels() -> None:
    for levels in (("yes", "no"), ("no", "yes")):
        for event in levels:
            target = Binary("readmitted", levels, event)
            read = _read({}, Schema(SCHEMA.features, (target,)))[:, 0]
            assert read.tolist() == [float(cell == event) for cell in TABLE["readmitted"]]


def test_booleans_are_labels_and_a_count_without_exposure_has_one_of_one() -> None:
    schema = Schema(
        SCHEMA.features,
        (Binary("readmitted", ("false", "true"), "true"), replace(VISITS, exposure=None)),
    )
    assert _read({"readmitted": [True, False, True, True]}, schema).tolist() == [
        [1, 0, 1],
        [0, 3, 1],
        [1, 50, 1],
        [1, 1, 1],
    ]


def test_each_outcome_says_which_of_its_columns_are_labels() -> None:
    found = [label_columns(outcome) for outcome in SCHEMA.outcomes]
    assert found == [("readmitted",), ("diagnosis",), (), ("died",)]


@pytest.mark.parametrize(
    ("column", "cell", "kind", "says"),
    [
        ("readmitted", None, MissingTarget, "are missing"),
        ("readmitted", "", MissingTarget, "are missing"),
        ("readmitted", "Yes", UnknownLevel, "none of the levels 'yes', 'no'"),
        ("readmitted", 0.5, UnknownLevel, "none of the levels"),
        ("readmitted", b"yes", NotALabel, "neither text nor numbers"),
        ("diagnosis", 4, UnknownLevel, "none of the levels '1', '2', '3'"),
        ("diagnosis", math.nan, MissingTarget, "are missing"),
        ("visits", None, MissingTarget, "are missing"),
        ("visits", "3", NotNumeric, "are not numbers"),
        ("visits", math.inf, InfiniteValue, "are infinite"),
        ("visits", 1.5, WrongOutcome, "are not counts"),
        ("visits", -1, WrongOutcome, "are not counts"),
        ("visits", 10**12, WrongOutcome, "are not counts"),
        ("visits", 51, OutOfBounds, "above 50 visits"),
        ("visits", 10**6, OutOfBounds, "above 50 visits"),
        ("years", 0, WrongOutcome, "nothing is counted without exposure"),
        ("years", -1, WrongOutcome, "are not exposures"),
        ("years", None, MissingTarget, "are missing"),
        ("years", 1e9, WrongOutcome, "are not exposures"),
        ("days", -0.5, WrongOutcome, "below 0"),
        ("days", None, MissingTarget, "are missing"),
        ("days", math.inf, InfiniteValue, "are infinite"),
        ("died", None, MissingTarget, "are missing"),
        ("died", 2, UnknownLevel, "none of the levels '0', '1'"),
        ("died", "SECRET", UnknownLevel, "none of the levels"),
    ],
)
def test_a_bad_cell_is_refused_by_name_and_with_noise_its_row_is_left_out(
    column: str, cell: object, kind: type[TableError], says: str
) -> None:
    cells = [*TABLE[column]]
    cells[1] = cell
    problem = _problem(**{column: cells})
    assert type(problem) is kind
    assert f"column {column!r}: 1 of 4 cells" in str(problem)
    assert "(row 1, counted from 0)" in str(problem)
    assert says in str(problem)
    assert "SECRET" not in str(problem)
    whole = _read({}).tolist()
    left, problems = _left(**{column: cells})
    if kind is OutOfBounds:
        assert left[1] == [*whole[1][:2], 50, *whole[1][3:]]
        assert (problems.clipped, problems.left_out) == (1, 0)
    else:
        assert left == [whole[0], *whole[2:]]
        counts = problems.clipped, problems.left_out, problems.without_target
        assert counts == ((0, 0, 1) if kind is MissingTarget else (0, 1, 0))


def test_dates_as_times_are_refused_with_what_to_do() -> None:
    dates = np.array([datetime.date(2024, 2, 29)] * 4, "datetime64[D]")
    problem = _problem(days=dates)
    assert type(problem) is NotNumeric
    assert "days since admission" in str(problem)


def test_a_large_count_is_read_if_the_schema_allows_it() -> None:
    schema = Schema(SCHEMA.features, (Count("visits", "visits", upper=2_000_000),))
    assert _read({"visits": [0, 3, 10**6, 1]}, schema)[2, 0] == 10**6


def test_an_upper_bound_that_is_no_count_is_rounded_down_where_it_clips() -> None:
    schema = Schema(SCHEMA.features, (Count("visits", "visits", upper=2.5),))
    (records,) = read_in_pieces(schema, [TABLE], problems=RowByRow())
    assert records.outcomes is not None
    assert records.outcomes[:, 0].tolist() == [0, 2, 2, 1]


def test_a_time_of_zero_without_an_event_is_no_problem() -> None:
    assert _read({"days": [0, 0, 0, 0], "died": [0, 0, 1, 1]}).shape == (4, 6)


def test_every_column_of_an_outcome_must_be_there() -> None:
    for name in ("readmitted", "diagnosis", "visits", "years", "days", "died"):
        table = {column: cells for column, cells in TABLE.items() if column != name}
        with pytest.raises(TableRefused) as raised:
            Records.for_training(SCHEMA, table)
        assert [type(problem) for problem in raised.value.problems] == [MissingColumn]


def test_prediction_reads_no_outcome() -> None:
    assert Records.for_prediction(SCHEMA, {"age": [61]}).outcomes is None


_CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10**8),
    st.floats(),
    st.sampled_from(["yes", "no", "0", "1", "2", "", " "]),
)


@given(
    outcome=st.sampled_from(SCHEMA.outcomes),
    rows=st.lists(st.tuples(_CELLS, _CELLS), min_size=1, max_size=8),
)
def test_with_noise_any_cells_are_read_and_each_row_by_itself(
    outcome: Outcome, rows: list[tuple[object, object]]
) -> None:
    schema = Schema(SCHEMA.features, (outcome,))

    def read(own: list[tuple[object, object]]) -> list[list[float]]:
        columns = {name: [row[place] for row in own] for place, name in enumerate(outcome.columns)}
        (records,) = read_in_pieces(
            schema, [{"age": [1] * len(own), **columns}], problems=RowByRow()
        )
        assert records.outcomes is not None
        return records.outcomes.tolist()

    found = read(rows)
    assert found == [left for row in rows for left in read([row])]
    for numbers in found:
        match outcome:
            case Binary():
                assert numbers[0] in (0, 1)
            case Classes():
                assert numbers[0] in range(len(outcome.levels))
            case Count():
                assert numbers[0] in range(int(outcome.upper) + 1)
                assert EXPOSURES[0] <= numbers[1] <= EXPOSURES[1]
            case TimeToEvent():
                assert 0 <= numbers[0] < math.inf
                assert numbers[1] in (0, 1)

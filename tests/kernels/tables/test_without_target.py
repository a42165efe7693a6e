"""Rows without a target: left out and counted by a hospital, with noise and without."""

from typing import Any

import pytest

from kernels.errors import EmptyTable, TableRefused
from kernels.rounds.site.site import Part, Site
from kernels.tables.problems import LeavingOut, RowByRow
from kernels.tables.records import read_in_pieces
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Target
from tests.dealing import DEALING

SCHEMA = Schema((Numeric("age", "a", 0, 120),), (Target("stay", "d", 0, 30), Target("cost", "EUR")))
ROWS = 40
TABLE: dict[str, list[Any]] = {
    "age": [float(20 + row) for row in range(ROWS)],
    "stay": [None if row % 10 == 3 else float(row % 9) for row in range(ROWS)],
    "cost": [None if row % 20 == 3 or row == 5 else 2.0 * row for row in range(ROWS)],
}
WHOLE = [row for row in range(ROWS) if TABLE["stay"][row] is not None and row != 5]


def _site(table: dict[str, list[Any]], *, rows_in_memory: int | None = None, **more: Any) -> Site:
    pieces = [{n: c[first : first + 7] for n, c in table.items()} for first in range(0, ROWS, 7)]
    return Site.of_stream(
        SCHEMA, pieces, held_out=0.3, dealing=DEALING, rows_in_memory=rows_in_memory, **more
    )


def _rows(site: Site) -> list[list[list[float]]]:
    return [
        [row for piece in site.parts[part].in_pieces(3) for row in piece.numeric.tolist()]
        for part in (Part.TRAINING, Part.STOPPING, Part.CALIBRATION)
    ]


@pytest.mark.parametrize("rows_in_memory", [None, 5])
@pytest.mark.parametrize("noise", [False, True])
def test_the_site_is_that_of_the_rows_with_all_targets(
    rows_in_memory: int | None, noise: bool
) -> None:
    own = {name: [cells[row] for row in WHOLE] for name, cells in TABLE.items()}
    expected = _site(own)
    problems = RowByRow() if noise else None
    site = _site(TABLE, rows_in_memory=rows_in_memory, row_by_row=problems)
    assert site.digest == expected.digest
    assert _rows(site) == _rows(expected) == _rows(site)
    assert (site.without_target, expected.without_target) == (5, 0)
    if problems is not None:
        assert (problems.without_target, problems.left_out, problems.clipped) == (5, 0, 0)


def test_with_noise_a_row_that_is_bad_otherwise_is_counted_once() -> None:
    problems = RowByRow()
    table = {**TABLE, "age": [None, *TABLE["age"][1:3], "old", *TABLE["age"][4:]]}
    list(read_in_pieces(SCHEMA, [table], problems=problems))
    assert (problems.left_out, problems.without_target) == (2, 4)


def test_other_cells_of_a_row_without_a_target_are_checked_all_the_same() -> None:
    ages = [200.0 if row == 3 else age for row, age in enumerate(TABLE["age"])]
    with pytest.raises(TableRefused, match=r"1 of 40 cells are not within \[0, 120\] a \(row 3"):
        _site({**TABLE, "age": ages})


def test_a_table_without_any_target_is_refused_and_with_noise_has_no_rows() -> None:
    table = {**TABLE, "stay": [None] * ROWS}
    with pytest.raises(TableRefused, match="a target is missing in each of 40 rows") as raised:
        _site(table)
    assert type(raised.value.problems[0]) is EmptyTable
    site = _site(table, row_by_row=RowByRow())
    assert (site.count(Part.TRAINING), site.without_target) == (0, ROWS)


def test_rows_are_counted_on_after_a_problem_and_with_columns_of_another_length() -> None:
    problems = LeavingOut()
    pieces = [{**TABLE, "age": [None] * ROWS}, TABLE, {**TABLE, "cost": [None]}, TABLE]
    with pytest.raises(TableRefused):
        list(read_in_pieces(SCHEMA, pieces, problems=problems))
    assert problems.without_target >= 3 * 5

"""Missing codes of columns: checked, kept in JSON, and read as missing cells everywhere."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernels.errors import MissingValue, SchemaError, SchemaRefused, TableRefused, WrongCodes
from kernels.tables.few_rows import FewRows
from kernels.tables.problems import LeavingOut
from kernels.tables.records import Records, read_in_pieces
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.standardiser import Scale, Shares, Standardiser
from kernels.tables.targets import AnyTarget, Binary, Classes, Count, Target, TimeToEvent

CHOL = Numeric("chol", "mg/dl", 50, 700, may_be_missing=True, missing_codes=(0.0, -9.0, "?"))
WARD = Categorical("ward", ("1", "2"), "2", may_be_missing=True, missing_codes=("9", "unknown"))
STAY = Target("stay", "d", 0, 90, missing_codes=(-1.0,))
OUTCOMES = (
    Binary("dead", ("no", "yes"), "yes", missing_codes=("9",)),
    Classes("stage", ("1", "2", "3"), missing_codes=("x",)),
    Count("visits", "visits", 50, "years", missing_codes=(99.0,), exposure_missing_codes=(0.0,)),
    TimeToEvent("t", "d", "died", horizon=9, missing_codes=(-1.0,), event_missing_codes=("8",)),
)
SCHEMA = Schema((CHOL, WARD), (STAY, *OUTCOMES))
ROW: dict[str, Any] = {
    "chol": 200,
    "ward": "1",
    "stay": 3.0,
    "dead": "no",
    "stage": 2,
    "visits": 1,
    "years": 2.0,
    "t": 5.0,
    "died": 1,
}
OF_TARGETS = {
    "stay": -1,
    "dead": 9,
    "stage": "x",
    "visits": 99.0,
    "years": 0,
    "t": -1.0,
    "died": 8.0,
}


def _refused(*columns: Numeric | Categorical | AnyTarget) -> list[type[SchemaError]]:
    targets = [own for own in columns if not isinstance(own, Numeric | Categorical)]
    features = [own for own in columns if isinstance(own, Numeric | Categorical)]
    with pytest.raises(SchemaRefused) as raised:
        Schema(tuple(features) or (Numeric("age", "a"),), tuple(targets) or (Target("y", "1"),))
    return [type(problem) for problem in raised.value.problems]


def test_codes_survive_json_and_change_the_digest() -> None:
    again = Schema.from_json(SCHEMA.to_json())
    assert again == SCHEMA
    assert again.to_json() == SCHEMA.to_json()
    whole = replace(SCHEMA, features=(replace(CHOL, missing_codes=(0, -9, "?")), WARD))
    assert whole.to_json() == SCHEMA.to_json()
    assert replace(SCHEMA, features=(replace(CHOL, missing_codes=()), WARD)).to_json() != (
        SCHEMA.to_json()
    )


def test_codes_may_be_omitted_in_json() -> None:
    plain = json.loads(Schema((Numeric("age", "a"),), (Target("y", "1"),)).to_json())
    del plain["features"][0]["missing_codes"], plain["targets"][0]["missing_codes"]
    assert Schema.from_json(json.dumps(plain)).missing_codes == {}


def test_every_column_with_codes_is_listed_as_its_cells_are_read() -> None:
    ward = replace(WARD, missing_codes=("9.0",))
    assert replace(SCHEMA, features=(CHOL, ward)).missing_codes == {
        "chol": (0.0, -9.0, "?"),
        "ward": ("9",),
        **{
            name: (str(code) if name in ("dead", "stage") else float(code),)
            for name, code in OF_TARGETS.items()
            if name != "died"
        },
        "died": ("8",),
    }


@pytest.mark.parametrize(
    "column",
    [
        replace(CHOL, missing_codes=(50,)),
        replace(CHOL, missing_codes=(100, 0)),
        replace(CHOL, upper=None, missing_codes=(9999,)),
        replace(CHOL, missing_codes=(0, -0.0)),
        replace(CHOL, missing_codes=("0",)),
        replace(CHOL, missing_codes=(" ?",)),
        replace(CHOL, missing_codes=(math.nan,)),
        replace(CHOL, missing_codes=(True,)),
        replace(CHOL, missing_codes=[0]),  # type: ignore[arg-type]
        replace(CHOL, missing_codes=tuple(range(-21, 0))),
        replace(WARD, missing_codes=("2",)),
        replace(WARD, missing_codes=("2.0",)),
        replace(WARD, missing_codes=("9", "9.0")),
        replace(WARD, missing_codes=(9,)),  # type: ignore[arg-type]
        replace(WARD, missing_codes=("",)),
        replace(STAY, missing_codes=(0,)),
        replace(OUTCOMES[0], missing_codes=("yes",)),
        replace(OUTCOMES[1], missing_codes=("1",)),
        replace(OUTCOMES[2], missing_codes=(3,)),
        replace(OUTCOMES[2], exposure=None),
        replace(OUTCOMES[3], missing_codes=(0,)),
        replace(OUTCOMES[3], event_missing_codes=("1",)),
    ],
    ids=str,
)
def test_a_code_that_is_a_possible_value_or_no_code_is_refused(column: Any) -> None:
    assert _refused(column) == [WrongCodes]


def test_codes_need_a_column_whose_cells_may_be_missing() -> None:
    with pytest.raises(SchemaRefused, match="missing_codes need may_be_missing"):
        Schema((replace(CHOL, may_be_missing=False),), (STAY,))


def test_without_any_bound_a_column_says_of_no_number_that_it_is_possible() -> None:
    Schema((replace(CHOL, lower=None, upper=None),), (STAY,))


@pytest.mark.parametrize("levels", [("1", "1.0"), ("true", "True"), ("NaN", "b")])
def test_levels_that_are_read_alike_are_refused(levels: tuple[str, ...]) -> None:
    with pytest.raises(SchemaRefused, match="read as"):
        Schema((Categorical("ward", levels),), (STAY,))


CODED: list[tuple[str, list[Any]]] = [
    ("chol", [0, -9.0, "?", " ? ", None]),
    ("chol", [*np.array([0, -9, 0, 0, 0])]),
    ("ward", ["9", 9, 9.0, "unknown", "9.0"]),
]


@pytest.mark.parametrize(("name", "cells"), CODED)
def test_coded_cells_are_missing_in_training_and_in_prediction(name: str, cells: list[Any]) -> None:
    table = {column: [cell] * len(cells) for column, cell in ROW.items()} | {name: cells}
    for records in (Records.for_training(SCHEMA, table), Records.for_prediction(SCHEMA, table)):
        missing = records.missing[:, 0] if name == "chol" else records.levels[:, 0] == -1
        assert missing.all()
        assert not records.outside.any()


def test_few_rows_are_read_as_many_are() -> None:
    standardiser = Standardiser(
        (Scale("chol", 200, 50),), (Shares("ward", (0.5, 0.5)),), (Scale("stay", 3, 2),)
    )
    schema = replace(SCHEMA, targets=(STAY,))
    table = {"chol": [0, "?", 250.0], "ward": ["9.0", "unknown", 1.0]}
    read = FewRows(schema, standardiser).read(table)
    assert read is not None
    expected = standardiser.apply(Records.for_prediction(schema, table)).features
    assert read.features.tolist() == expected.tolist()


def test_a_coded_cell_is_refused_where_cells_must_not_be_missing() -> None:
    table = {name: [cell] for name, cell in ROW.items()}
    with pytest.raises(TableRefused) as raised:
        Records.for_prediction(SCHEMA, {**table, "years": [0]})
    assert isinstance(raised.value.problems[0], MissingValue)


@pytest.mark.parametrize("name", OF_TARGETS)
@pytest.mark.parametrize("coded", [True, False])
def test_a_row_without_any_one_of_its_targets_is_left_out_and_counted(
    name: str, coded: bool
) -> None:
    cells = [ROW[name], OF_TARGETS[name] if coded else None, ROW[name]]
    table = {column: [cell] * 3 for column, cell in ROW.items()} | {name: cells, "chol": [1, 2, 3]}
    schema = replace(SCHEMA, features=(replace(CHOL, lower=None, upper=None), WARD))
    for pieces in (
        [table],
        [{own: c[row : row + 1] for own, c in table.items()} for row in (0, 1, 2)],
    ):
        problems = LeavingOut()
        read = Records.concatenate([*read_in_pieces(schema, pieces, problems=problems)])
        assert read.numeric[:, 0].tolist() == [1, 3]
        assert problems.without_target == 1
    with pytest.raises(TableRefused, match="1 of 3 cells are missing"):
        Records.for_training(schema, table)

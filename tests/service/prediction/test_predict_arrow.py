"""Arrow requests and answers: exactly the numbers of JSON, and no stream that expands."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from httpx import Response
from hypothesis import given
from hypothesis import strategies as st

from service.errors import ArrowRefused, TableTooLong
from service.prediction.arrow_stream import ARROW, read_table
from tests.kernels.rounds import artifacts
from tests.service.coordinator import Coordinator
from tests.service.prediction.test_predict import COLUMNS
from tests.service.stored import add_caller, add_model

TABLE = pa.table(COLUMNS)


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    settings = {"most_membership_auc": 0.65, "max_predict_rows": 50}
    with Coordinator(tmp_path_factory.mktemp("data"), **settings) as coordinator:
        yield coordinator


@pytest.fixture(scope="module")
def model(coordinator: Coordinator) -> str:
    return add_model(coordinator)


def octets(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def ask(
    coordinator: Coordinator, content: bytes, query: str, token: str | None = None, **headers: str
) -> Response:
    bearer = {"Authorization": f"Bearer {token or coordinator.token}", "Content-Type": ARROW}
    return coordinator.request(
        "POST", f"/predict?{query}", headers={**bearer, **headers}, content=content
    )


def received(response: Response) -> pa.Table:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == ARROW
    return pa.ipc.open_stream(response.content).read_all()


def flat(answer: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the JSON answer as the columns that the Arrow answer must have."""
    columns: dict[str, list[Any]] = {}
    for target in answer["targets"]:
        for name in ("mean", "variance", "latent_variance", "noise_variance"):
            if target[name] is not None:
                columns[f"{target['name']}.{name}"] = target[name]
        for each in target["intervals"] or ():
            for end, sign in (("lower", -1), ("upper", 1)):
                ends = [sign * np.inf if value is None else value for value in each[end]]
                columns[f"{target['name']}.{end}.{each['level']:g}"] = ends
    return columns | {"extrapolates": answer["extrapolates"]}


def test_arrow_says_what_json_says(coordinator: Coordinator, model: str) -> None:
    levels = [0.5, 0.9, 0.9999999]
    json = coordinator.admin(
        "POST", "/predict", {"model": model, "columns": COLUMNS, "intervals": levels}
    ).json()
    query = f"model={model}&" + "&".join(f"intervals={level}" for level in levels)
    table = received(ask(coordinator, octets(TABLE), query))
    assert table.to_pydict() == flat(json)
    assert table.schema.metadata == {
        b"model": model.encode(),
        b"method": b"fedbnr",
        b"variance_of": b"row",
    }
    assert table.schema.field("cost.mean").metadata == {b"unit": b"EUR"}
    assert len(table) == 3


def test_the_answer_has_the_form_that_is_asked_for(coordinator: Coordinator, model: str) -> None:
    body = {"model": model, "columns": COLUMNS}
    json = coordinator.admin("POST", "/predict", body).json()
    query = f"model={model}"
    assert ask(coordinator, octets(TABLE), query, Accept="application/json").json() == json
    bearer = {"Authorization": f"Bearer {coordinator.token}", "Accept": ARROW}
    other = coordinator.request("POST", "/predict", headers=bearer, json=body)
    assert received(other).to_pydict() == flat(json)


@pytest.mark.parametrize(
    "table",
    [
        TABLE.cast(pa.schema([("age", "float64"), ("lactate", "float64"), ("ward", "large_utf8")])),
        TABLE.set_column(2, "ward", TABLE["ward"].dictionary_encode()),
        TABLE.append_column("else", pa.array([1, 2, 3], pa.timestamp("s"))),
        pa.concat_tables(
            [
                part.set_column(2, "ward", part["ward"].dictionary_encode())
                for part in (TABLE.slice(0, 1), TABLE.slice(1))
            ]
        ),
    ],
)
def test_a_table_may_be_written_in_several_ways(
    coordinator: Coordinator, model: str, table: pa.Table
) -> None:
    expected = received(ask(coordinator, octets(TABLE), f"model={model}"))
    assert received(ask(coordinator, octets(table), f"model={model}")) == expected


def test_a_caller_of_a_small_model_gets_average_variances(coordinator: Coordinator) -> None:
    small = add_model(coordinator, artifacts.artifact(clients=3, rows=30))
    token = add_caller(coordinator, small)
    table = received(ask(coordinator, octets(TABLE), f"model={small}&intervals=0.9", token))
    assert len(set(table["stay.variance"].to_pylist())) == 1
    widths = [
        round(upper - lower, 9)
        for lower, upper in zip(
            table["stay.lower.0.9"].to_pylist(), table["stay.upper.0.9"].to_pylist(), strict=True
        )
    ]
    assert len(set(widths)) == 1
    assert table.schema.metadata[b"variance_of"] == b"average"
    assert table.schema.metadata[b"withheld"] == b"prediction.variance_withheld"


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (TABLE.drop(["age"]), "table.missing_column"),
        (TABLE.set_column(0, "age", pa.array(["SECRET", "SECRET", "SECRET"])), "table.not_numeric"),
        (
            TABLE.set_column(0, "age", pa.array(["SECRET"] * 3).dictionary_encode()),
            "table.not_numeric",
        ),
        (TABLE.set_column(0, "age", pa.array([b"1", b"2", b"3"])), "table.not_numeric"),
        (TABLE.set_column(0, "age", pa.array([1, 2, 3], pa.timestamp("s"))), "table.not_numeric"),
        (TABLE.set_column(2, "ward", pa.array(["SECRET"] * 3)), "table.unknown_level"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_without_a_value(
    coordinator: Coordinator, model: str, table: pa.Table, says: str
) -> None:
    response = ask(coordinator, octets(table), f"model={model}")
    assert (response.status_code, response.json()["code"]) == (422, "table.refused")
    assert any(each["code"].startswith(says) for each in response.json()["problems"])
    assert "SECRET" not in response.text


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("where", ["ward", "age"])
def test_a_compressed_stream_is_refused_before_it_is_decompressed(
    coordinator: Coordinator, model: str, codec: str, where: str
) -> None:
    table = TABLE.select([where])
    if where == "ward":  # its dictionary is a separate message
        table = table.set_column(0, "ward", table["ward"].dictionary_encode())
    response = ask(coordinator, octets(table, compression=codec), f"model={model}")
    assert (response.status_code, response.json()["code"]) == (422, "arrow.refused")
    assert "compressed" in response.json()["detail"]


def test_a_long_table_is_refused_before_its_cells_are_read(
    coordinator: Coordinator, model: str
) -> None:
    many = pa.table({"age": pa.nulls(10**9), "lactate": pa.nulls(10**9), "ward": pa.nulls(10**9)})
    response = ask(coordinator, octets(many), f"model={model}")
    assert (response.status_code, response.json()["code"]) == (413, "table.too_long")


@pytest.mark.parametrize(
    ("query", "content"),
    [
        ("", octets(TABLE)),
        ("model=x&model=x", octets(TABLE)),
        ("model=x&intervals=1", octets(TABLE)),
        ("model=x&intervals=nan", octets(TABLE)),
        ("model=x&intervals=most", octets(TABLE)),
        ("model=x&interval_kind=bayes", octets(TABLE)),
        ("model=x&interval=0.9", octets(TABLE)),
        ("model=MODEL", octets(TABLE.append_column("age", TABLE["age"]))),
    ],
)
def test_what_is_no_request_is_refused(
    coordinator: Coordinator, model: str, query: str, content: bytes
) -> None:
    response = ask(coordinator, content, query.replace("MODEL", model))
    assert (response.status_code, response.json()["code"]) == (422, "request.fields")


@pytest.mark.parametrize("content", [b"", b"{}", octets(TABLE)[:-100]])
def test_what_is_no_stream_is_refused(coordinator: Coordinator, model: str, content: bytes) -> None:
    response = ask(coordinator, content, f"model={model}")
    assert (response.status_code, response.json()["code"]) == (422, "arrow.refused")


def test_a_stranger_is_not_answered(coordinator: Coordinator, model: str) -> None:
    assert ask(coordinator, octets(TABLE), f"model={model}", "nonsense").status_code == 401
    other = add_caller(coordinator, "another")
    assert ask(coordinator, octets(TABLE), f"model={model}", other).status_code == 404


@given(st.integers(0, len(octets(TABLE)) - 1), st.integers(0, 255))
def test_a_damaged_stream_is_read_or_refused_and_nothing_else(position: int, octet: int) -> None:
    damaged = bytearray(octets(TABLE))
    damaged[position] = octet
    with suppress(ArrowRefused, TableTooLong):
        read_table(bytes(damaged), most_rows=50)

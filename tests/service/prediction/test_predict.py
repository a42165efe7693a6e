"""`POST /predict`: exactly the model's numbers, and every refusal."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernels.model.average_variance import with_average_variance
from kernels.model.exposure import membership_auc
from kernels.model.prediction import INTERVAL_KINDS, predict
from service.prediction.json_answers import PredictResponse
from tests.kernels.rounds import artifacts
from tests.service.coordinator import Coordinator
from tests.service.stored import add_caller, add_model

COLUMNS: dict[str, list[Any]] = {
    "age": [61.3, 47, 130.5],
    "lactate": [1.7, None, 0.1],
    "ward": ["medical", "surgical", "medical"],
}
RECORDS = [dict(zip(COLUMNS, cells, strict=True)) for cells in zip(*COLUMNS.values(), strict=True)]


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    settings = {
        "most_membership_auc": 0.65,
        "max_predict_rows": 50,
        "max_predict_body": 100_000,
    }
    with Coordinator(tmp_path_factory.mktemp("data"), **settings) as coordinator:
        yield coordinator


@pytest.fixture(scope="module")
def model(coordinator: Coordinator) -> str:
    return add_model(coordinator)


@pytest.fixture(scope="module")
def token(coordinator: Coordinator, model: str) -> str:
    return add_caller(coordinator, model)


def refused(coordinator: Coordinator, token: str, body: object, status: int, code: str) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = coordinator.bearer(token, "POST", "/predict", content=content)
    assert response.headers["content-type"] == "application/problem+json"
    assert (response.status_code, response.json()["code"]) == (status, code), response.text
    return response.json()


@pytest.mark.parametrize("table", [{"columns": COLUMNS}, {"records": RECORDS}])
@pytest.mark.parametrize("kind", INTERVAL_KINDS)
def test_an_answer_is_the_kernels_to_the_last_bit(
    coordinator: Coordinator, model: str, token: str, table: dict[str, Any], kind: str
) -> None:
    levels = [0.5, 0.9, 0.9999]
    body = {"model": model, **table, "intervals": levels, "interval_kind": kind}
    response = coordinator.bearer(token, "POST", "/predict", body)
    assert response.status_code == 200, response.text
    answer = response.json()
    expected = predict(artifacts.artifact().model, COLUMNS)
    assert answer["model"] == model
    assert answer["rows"] == 3
    assert answer["extrapolates"] == [False, False, True]
    assert answer["withheld"] is None
    assert [(each["name"], each["unit"]) for each in answer["targets"]] == [
        ("stay", "d"),
        ("cost", "EUR"),
    ]
    for i, target in enumerate(answer["targets"]):
        assert target["mean"] == expected.mean[:, i].tolist()
        assert target["variance_of"] == "row"
        assert target["variance"] == expected.variance[:, i].tolist()
        assert target["latent_variance"] == expected.latent_variance[:, i].tolist()
        assert target["noise_variance"] == [float(expected.noise_variance[i])] * 3
        assert [each["level"] for each in target["intervals"]] == levels
        for level, interval in zip(levels, target["intervals"], strict=True):
            lower, upper = expected.interval(level, kind)
            ends = [*lower[:, i].tolist(), *upper[:, i].tolist()]
            shown = [*interval["lower"], *interval["upper"]]
            assert interval["kind"] == kind
            assert [None if abs(end) == float("inf") else end for end in ends] == shown


def test_the_answer_is_what_the_contract_says(
    coordinator: Coordinator, model: str, token: str
) -> None:
    body = {"model": model, "records": RECORDS, "intervals": [0.9]}
    response = coordinator.bearer(token, "POST", "/predict", body)
    answer = PredictResponse.model_validate_json(response.content, strict=True)
    assert answer.model_dump() == response.json()


def test_a_conformal_interval_without_an_end_is_null_not_infinity(
    coordinator: Coordinator, model: str, token: str
) -> None:
    body = {"model": model, "records": RECORDS, "intervals": [0.9999999]}
    body["interval_kind"] = "conformal"
    (stay, _) = coordinator.bearer(token, "POST", "/predict", body).json()["targets"]
    assert stay["intervals"][0]["upper"] == [None] * 3


def test_without_intervals_there_are_none(coordinator: Coordinator, model: str, token: str) -> None:
    body = {"model": model, "records": RECORDS}
    answer = coordinator.bearer(token, "POST", "/predict", body).json()
    assert [target["intervals"] for target in answer["targets"]] == [[], []]


def test_columns_that_the_model_does_not_know_are_ignored(
    coordinator: Coordinator, model: str, token: str
) -> None:
    plain = coordinator.bearer(token, "POST", "/predict", {"model": model, "records": RECORDS})
    wider = [{**record, "stay": 4.0, "ward 2": {"a": []}} for record in RECORDS]
    other = coordinator.bearer(token, "POST", "/predict", {"model": model, "records": wider})
    assert plain.json() == other.json()


def test_every_problem_of_a_table_is_named_at_once_without_a_value(
    coordinator: Coordinator, model: str, token: str
) -> None:
    columns = {"age": ["SECRET61", None, 47], "ward": ["SECRETward", "medical"]}
    for_columns = refused(
        coordinator, token, {"model": model, "columns": columns}, 422, "table.refused"
    )
    codes = {each["code"] for each in for_columns["problems"]}
    assert codes == {
        "table.missing_column",
        "table.wrong_length",
        "table.not_numeric",
        "table.missing_value",
        "table.unknown_level",
    }
    assert "SECRET" not in json.dumps(for_columns)
    assert {"'age'", "'lactate'", "'ward'"} <= set(for_columns["detail"].replace(":", "").split())


def test_records_that_lack_a_column_are_named_beside_all_else(
    coordinator: Coordinator, model: str, token: str
) -> None:
    records = [{"age": 61, "ward": "SECRETward"}, {"age": True, "lactate": 1.0}, {"ward": None}]
    problem = refused(
        coordinator, token, {"model": model, "records": records}, 422, "table.refused"
    )
    found = [(each["code"], each["what"].split("'")[1]) for each in problem["problems"]]
    assert sorted(found) == [
        ("table.missing_column", "age"),
        ("table.missing_column", "lactate"),
        ("table.missing_column", "ward"),
        ("table.not_numeric", "age"),
        ("table.unknown_level", "ward"),
    ]
    assert "SECRET" not in json.dumps(problem)


@pytest.mark.parametrize("record", [None, 7, "text", [1, 2, 3], []])
def test_a_record_that_is_no_object_is_refused(
    coordinator: Coordinator, model: str, token: str, record: object
) -> None:
    body = {"model": model, "records": [*RECORDS, record]}
    problem = refused(coordinator, token, body, 422, "table.refused")
    assert "1 of 4 records (counted from 0: 3) are not JSON objects" in problem["detail"]


@pytest.mark.parametrize(
    ("table", "code"),
    [
        ({"records": []}, "table.empty"),
        ({"columns": {}}, "table.refused"),
        ({"columns": {name: [] for name in COLUMNS}}, "table.refused"),
        ({"columns": {**COLUMNS, "age": 61}}, "table.refused"),
        ({"columns": {**COLUMNS, "age": [[61], [47], [80]]}}, "table.refused"),
        ({"columns": {**COLUMNS, "age": [1e999, 1, 1]}}, "table.refused"),
        ({}, "request.fields"),
        ({"records": RECORDS, "columns": COLUMNS}, "request.fields"),
        ({"records": None, "columns": None}, "request.fields"),
        ({"records": {"age": [1]}}, "request.fields"),
        ({"columns": [1]}, "request.fields"),
        ({"records": RECORDS, "interval": [0.9]}, "request.fields"),
        ({"records": RECORDS, "intervals": 0.9}, "request.fields"),
        ({"records": RECORDS, "intervals": [1.0]}, "request.fields"),
        ({"records": RECORDS, "intervals": [0]}, "request.fields"),
        ({"records": RECORDS, "intervals": ["0.9"]}, "request.fields"),
        ({"records": RECORDS, "intervals": [True]}, "request.fields"),
        ({"records": RECORDS, "intervals": [0.5] * 21}, "request.fields"),
        ({"records": RECORDS, "interval_kind": "bayes"}, "request.fields"),
        ({"records": RECORDS, "model": 7}, "request.fields"),
        ({"records": RECORDS, "model": None}, "request.fields"),
        ({"records": RECORDS, "\ud800": 1}, "request.fields"),
        ({"records": RECORDS, "model": "\ud800"}, "request.fields"),
    ],
)
def test_what_is_no_request_is_refused(
    coordinator: Coordinator, model: str, token: str, table: dict[str, Any], code: str
) -> None:
    body = json.dumps({"model": model, **table}).replace("Infinity", "1e999").encode()
    refused(coordinator, token, body, 422, code)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "7",
        '{"model": "MODEL", "columns": {"age": [NaN], "lactate": [1], "ward": ["medical"]}}',
        '{"model": "MODEL", "columns": {"age": [-Infinity], "lactate": [1], "ward": ["medical"]}}',
        '{"model": "MODEL", "model": "MODEL", "records": []}',
        '{"model": "MODEL", "records": [{"age": 1, "age": 2, "lactate": 1, "ward": "medical"}]}',
        '{"model": "MODEL", "records": ' + "[" * 30_000 + "]" * 30_000 + "}",
        '{"model": "MODEL", "columns": {"age": [' + "9" * 5000 + "]}}",
    ],
)
def test_a_body_that_is_not_strict_json_is_refused(
    coordinator: Coordinator, model: str, token: str, text: str
) -> None:
    refused(coordinator, token, text.replace("MODEL", model).encode(), 422, "request.fields")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "latin-1"])
def test_a_body_is_utf8(coordinator: Coordinator, model: str, token: str, encoding: str) -> None:
    text = json.dumps({"model": model, "records": RECORDS, "é": 1}, ensure_ascii=False)
    refused(coordinator, token, text.encode(encoding), 422, "request.fields")


def test_a_long_table_is_refused_before_its_cells_are_read(
    coordinator: Coordinator, model: str, token: str
) -> None:
    for table in ({"records": [None] * 51}, {"columns": {"age": [1], "other": ["x"] * 51}}):
        refused(coordinator, token, {"model": model, **table}, 413, "table.too_long")


def test_a_large_body_is_refused_before_it_is_parsed(
    coordinator: Coordinator, model: str, token: str
) -> None:
    refused(coordinator, token, b"{" * 100_001, 413, "request.too_large")


def test_a_large_body_that_hides_its_length_is_refused(
    coordinator: Coordinator, token: str
) -> None:
    async def endless() -> Any:
        while True:
            yield b" " * 10_000

    headers = {"Authorization": f"Bearer {token}"}
    response = coordinator.request("POST", "/predict", headers=headers, content=endless())
    assert response.json()["code"] == "request.too_large"


def test_a_body_is_not_read_for_a_stranger(coordinator: Coordinator) -> None:
    async def never() -> Any:
        raise AssertionError("the body was read")
        yield b""

    for header in ({}, {"Authorization": "Bearer nonsense"}):
        response = coordinator.request("POST", "/predict", headers=header, content=never())
        assert response.status_code == 401


@pytest.mark.parametrize("name", ["", "nobody", "0" * 64, "../x", "a" * 1000, "é", "'; --"])
def test_a_model_that_is_not_there(coordinator: Coordinator, token: str, name: str) -> None:
    refused(coordinator, token, {"model": name, "records": RECORDS}, 404, "not_found")


def test_an_interval_needs_a_recalibration(tmp_path: Path) -> None:
    with Coordinator(tmp_path) as coordinator:
        model = add_model(coordinator, artifacts.artifact(artifacts.PLAIN))
        body = {"model": model, "records": RECORDS, "intervals": [0.9]}
        refused(coordinator, coordinator.token, body, 422, "model.not_fitted")
        gaussian = {**body, "interval_kind": "gaussian"}
        assert coordinator.admin("POST", "/predict", gaussian).status_code == 200


def test_a_caller_of_a_small_model_gets_average_variances_and_is_told_why(tmp_path: Path) -> None:
    with Coordinator(tmp_path) as coordinator:
        model = add_model(coordinator)
        token = add_caller(coordinator, model)
        body = {"model": model, "records": RECORDS, "intervals": [0.9]}
        full = coordinator.admin("POST", "/predict", body).json()
        answer = coordinator.bearer(token, "POST", "/predict", body).json()
        assert PredictResponse.model_validate(answer).model_dump() == answer
        assert answer["withheld"]["code"] == "prediction.variance_withheld"
        for said in ("most_membership_auc", '"trusted": true', "averages over patients"):
            assert said in answer["withheld"]["detail"]
        served = artifacts.artifact().model
        averages = with_average_variance(served, predict(served, COLUMNS))
        lower, upper = averages.interval(0.9)
        for i, (known, shown) in enumerate(zip(full["targets"], answer["targets"], strict=True)):
            assert (known["variance_of"], shown["variance_of"]) == ("row", "average")
            assert shown["mean"] == known["mean"]
            for name in ("variance", "latent_variance"):
                assert len(set(shown[name])) == 1 < len(set(known[name]))
            assert shown["variance"] == averages.variance[:, i].tolist()
            assert shown["noise_variance"] == known["noise_variance"]
            (interval,) = shown["intervals"]
            assert interval["lower"] == lower[:, i].tolist()
            assert interval["upper"] == upper[:, i].tolist()
        artifact = coordinator.bearer(token, "GET", f"/models/{model}/artifact")
        assert artifact.status_code == 403
        assert artifact.json()["code"] == "prediction.variance_withheld"


def test_the_limit_for_variances_of_rows_is_the_estimated_attack(tmp_path: Path) -> None:
    auc = membership_auc(artifacts.artifact().model)
    for less, of in ((0.0, "row"), (1e-6, "average")):
        with Coordinator(tmp_path / of, most_membership_auc=auc - less) as coordinator:
            model = add_model(coordinator)
            token = add_caller(coordinator, model)
            body = {"model": model, "records": RECORDS}
            answer = coordinator.bearer(token, "POST", "/predict", body).json()
            assert {target["variance_of"] for target in answer["targets"]} == {of}
            found = coordinator.bearer(token, "GET", f"/models/{model}/artifact")
            assert found.status_code == (200 if of == "row" else 403)


def test_a_trusted_caller_gets_what_an_admin_gets(tmp_path: Path) -> None:
    with Coordinator(tmp_path, most_membership_auc=0.5) as coordinator:
        model = add_model(coordinator)
        tokens = {}
        for trusted in (True, False):
            new = {"name": "ward", "models": [model], "trusted": trusted}
            made = coordinator.admin("POST", "/callers", new).json()
            assert made["trusted"] is trusted
            tokens[trusted] = made["token"]
        listed = coordinator.admin("GET", "/callers").json()
        assert sorted(each["trusted"] for each in listed) == [False, True]
        body = {"model": model, "records": RECORDS, "intervals": [0.9]}
        full = coordinator.admin("POST", "/predict", body).json()
        assert coordinator.bearer(tokens[True], "POST", "/predict", body).json() == full
        assert coordinator.bearer(tokens[False], "POST", "/predict", body).json() != full
        for trusted, status in ((True, 200), (False, 403)):
            path = f"/models/{model}/artifact"
            assert coordinator.bearer(tokens[trusted], "GET", path).status_code == status


def test_a_caller_that_asks_too_much_waits_and_others_do_not(tmp_path: Path) -> None:
    with Coordinator(tmp_path, caller_rows_per_minute=60) as coordinator:
        model = add_model(coordinator)
        first, second = add_caller(coordinator, model), add_caller(coordinator, model)
        row = {"model": model, "records": RECORDS[:1]}
        many = {"model": model, "records": RECORDS[:1] * 58}

        def ask(token: str, body: object) -> Any:
            return coordinator.bearer(token, "POST", "/predict", body)

        assert ask(first, many).status_code == 200
        assert ask(first, row).status_code == 200
        assert ask(first, b"nonsense".decode()).status_code == 422  # is also charged as a row
        response = ask(first, row)
        assert (response.status_code, response.json()["code"]) == (429, "rate.exceeded")
        assert response.headers["retry-after"] == "1"
        assert ask(second, row).status_code == 200
        for _ in range(70):
            assert coordinator.admin("POST", "/predict", row).status_code == 200
        coordinator.clock.now += 1
        assert ask(first, row).status_code == 200
        coordinator.clock.now -= 100  # setting the clock back refills nothing
        assert ask(first, row).status_code == 429
        coordinator.clock.now += 3600
        assert ask(first, many).status_code == 200

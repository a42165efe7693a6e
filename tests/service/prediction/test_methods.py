"""`method`: all formats of `/predict` and the SDK agree; every promise holds for each method."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import update

from client_sdk.model.model import GlobalModel
from service.database import tables
from service.prediction.json_answers import PredictResponse
from tests.kernels.rounds import artifacts
from tests.kernels.rounds.artifacts import WITH_STUDENTS
from tests.service.coordinator import Coordinator
from tests.service.prediction.test_predict import COLUMNS
from tests.service.prediction.test_predict_arrow import TABLE, ask, flat, octets, received
from tests.service.prediction.test_predict_v2 import INPUTS
from tests.service.stored import add_caller, add_model

ARTIFACT = artifacts.artifact(artifacts.STUDENTS)
STUDENTS = WITH_STUDENTS[1:]


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    settings = {"least_rows_for_variance": 100, "max_predict_rows": 50}
    with Coordinator(tmp_path_factory.mktemp("data"), **settings) as coordinator:
        yield coordinator


@pytest.fixture(scope="module")
def model(coordinator: Coordinator) -> str:
    return add_model(coordinator, ARTIFACT)


def answered(coordinator: Coordinator, model: str, **more: Any) -> dict[str, Any]:
    body = {"model": model, "columns": COLUMNS, **more}
    response = coordinator.admin("POST", "/predict", body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


@pytest.mark.parametrize("method", WITH_STUDENTS)
def test_the_coordinator_and_the_model_at_a_hospital_agree_on_the_same_rows(
    coordinator: Coordinator, model: str, method: str
) -> None:
    answer = answered(coordinator, model, method=method, intervals=[0.9])
    assert PredictResponse.model_validate(answer).model_dump() == answer
    assert (answer["model"], answer["method"], answer["rows"]) == (model, method, 3)
    assert answer["extrapolates"] == [False, False, True]
    data = coordinator.admin("GET", f"/models/{model}/artifact").content
    card = coordinator.admin("GET", f"/models/{model}").json()
    local = GlobalModel.from_artifact(data, card, expected_id=model).predict(COLUMNS, method=method)
    lower, upper = (local.intervals(0.9).lower, local.intervals(0.9).upper)
    for i, target in enumerate(answer["targets"]):
        np.testing.assert_allclose(target["mean"], local.mean[:, i], rtol=1e-12)
        np.testing.assert_allclose(target["variance"], local.variance[:, i], rtol=1e-12)
        (interval,) = target["intervals"]
        assert interval["kind"] == ("student_t" if method == "fedbnr" else "gaussian")
        np.testing.assert_allclose(interval["lower"], lower[:, i], rtol=1e-12)
        np.testing.assert_allclose(interval["upper"], upper[:, i], rtol=1e-12)
        parts = {"latent_variance", "noise_variance"}
        assert {name for name in parts if target[name] is None} == (
            set() if method == "fedbnr" else parts
        )


@pytest.mark.parametrize("method", WITH_STUDENTS)
def test_arrow_and_inference_say_what_json_says(
    coordinator: Coordinator, model: str, method: str
) -> None:
    answer = answered(coordinator, model, method=method, intervals=[0.5])
    query = f"model={model}&method={method}&intervals=0.5"
    table = received(ask(coordinator, octets(TABLE), query))
    assert table.to_pydict() == flat(answer)
    assert table.schema.metadata[b"method"] == method.encode()
    sent = {"inputs": INPUTS, "parameters": {"method": method}}
    inferred = coordinator.admin("POST", f"/v2/models/{model}/infer", sent).json()
    way = {} if method == WITH_STUDENTS[0] else {"ensemble": "distilled"}
    assert inferred["parameters"] == {"method": method, "variance_of": "row", **way}
    for output in inferred["outputs"]:
        for i, target in enumerate(answer["targets"]):
            assert output["data"][i::2] == target[output["name"]]


def test_without_a_method_it_is_fedbnr_and_methods_differ(
    coordinator: Coordinator, model: str
) -> None:
    plain = answered(coordinator, model)
    assert plain == answered(coordinator, model, method=None)
    assert plain == answered(coordinator, model, method="fedbnr")
    methods = [
        each for each in WITH_STUDENTS if each != "beta"
    ]  # which may be entirely the mixture
    said = {str(answered(coordinator, model, method=each)["targets"]) for each in methods}
    assert len(said) == len(methods)


def test_a_method_that_the_model_does_not_have_is_named_with_those_that_it_has(
    coordinator: Coordinator,
) -> None:
    plain = add_model(coordinator)
    responses = [
        coordinator.admin(
            "POST", "/predict", {"model": plain, "columns": COLUMNS, "method": "product"}
        ),
        ask(coordinator, octets(TABLE), f"model={plain}&method=product"),
        coordinator.admin(
            "POST",
            f"/v2/models/{plain}/infer",
            {"inputs": INPUTS, "parameters": {"method": "product"}},
        ),
    ]
    for response in responses:
        assert response.status_code == 422
        assert response.json()["code"] == "prediction.unknown_method"
        assert "its methods are: fedbnr" in response.json()["detail"]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"method": "bcm"}, "prediction.unknown_method"),
        ({"method": 7}, "request.fields"),
        ({"method": "x" * 101}, "request.fields"),
        ({"method": ["product"]}, "request.fields"),
        (
            {"method": "product", "intervals": [0.9], "interval_kind": "conformal"},
            "prediction.one_variance",
        ),
    ],
)
def test_what_no_method_has_is_refused(
    coordinator: Coordinator, model: str, more: dict[str, Any], code: str
) -> None:
    body = {"model": model, "columns": COLUMNS, **more}
    response = coordinator.admin("POST", "/predict", body)
    assert (response.status_code, response.json()["code"]) == (422, code)


@pytest.mark.parametrize("method", WITH_STUDENTS)
def test_a_small_models_variances_of_rows_are_withheld_whatever_the_method(
    tmp_path: Path, method: str
) -> None:
    average = method == "fedbnr"
    with Coordinator(tmp_path) as small:
        model = add_model(small, ARTIFACT)
        token = add_caller(small, model)
        body = {"model": model, "columns": COLUMNS, "method": method, "intervals": [0.9]}
        answer = small.bearer(token, "POST", "/predict", body).json()
        assert answer["withheld"]["code"] == "prediction.variance_withheld"
        full = small.admin("POST", "/predict", body).json()
        for shown, known in zip(answer["targets"], full["targets"], strict=True):
            assert shown["mean"] == known["mean"]
            assert shown["variance_of"] == ("average" if average else None)
            hidden = {"variance", "latent_variance", "noise_variance", "intervals"}
            for name in hidden:
                assert (shown[name] is not None) == average
        table = received(ask(small, octets(TABLE), f"model={model}&method={method}", token))
        assert ("stay.variance" in table.column_names) == average
        if average:
            return
        sent = {
            "inputs": INPUTS,
            "parameters": {"method": method},
            "outputs": [{"name": "variance"}],
        }
        refused = small.bearer(token, "POST", f"/v2/models/{model}/infer", sent)
        assert refused.json()["code"] == "prediction.variance_withheld"


def test_limits_hold_whatever_the_method(coordinator: Coordinator, model: str) -> None:
    token = add_caller(coordinator, model)
    long = {"model": model, "method": "beta", "records": [None] * 51}
    assert coordinator.bearer(token, "POST", "/predict", long).json()["code"] == "table.too_long"
    stranger = add_caller(coordinator, "another")
    body = {"model": model, "method": "beta", "columns": COLUMNS}
    assert coordinator.bearer(stranger, "POST", "/predict", body).status_code == 404


def test_lists_of_models_and_a_models_own_pages_say_which_methods_there_are(
    coordinator: Coordinator, model: str
) -> None:
    plain = add_model(coordinator)
    listed = {each["id"]: each["methods"] for each in coordinator.admin("GET", "/models").json()}
    assert listed[plain] == [{"method": "fedbnr", "ensembles": []}]
    assert listed[model] == [
        {"method": "fedbnr", "ensembles": []},
        *({"method": method, "ensembles": ["distilled"]} for method in STUDENTS),
    ]
    card = coordinator.admin("GET", f"/models/{model}").json()
    assert [each["method"] for each in card["methods"]] == list(WITH_STUDENTS)
    described = coordinator.admin("GET", f"/v2/models/{model}").json()
    assert json.loads(described["parameters"]["methods"]) == list(WITH_STUDENTS)


def test_a_model_whose_card_is_damaged_is_still_listed_and_can_be_deleted(tmp_path: Path) -> None:
    with Coordinator(tmp_path) as coordinator:
        model = add_model(coordinator, ARTIFACT)
        with coordinator.context.database.changing() as connection:
            connection.execute(update(tables.models).values(card="{}"))
        (listed,) = coordinator.admin("GET", "/models").json()
        assert (listed["id"], listed["methods"]) == (model, [])
        assert coordinator.admin("DELETE", f"/models/{model}").status_code == 204

"""The Open Inference Protocol: exactly the numbers of JSON, with the same access and limits."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from service.prediction.open_inference import InferOut, ModelMetadata
from tests.kernels.rounds import artifacts
from tests.service.coordinator import Coordinator
from tests.service.prediction.test_predict import COLUMNS
from tests.service.stored import add_caller, add_model

INPUTS: list[dict[str, Any]] = [
    {"name": "age", "shape": [3], "datatype": "FP64", "data": COLUMNS["age"]},
    {"name": "lactate", "shape": [3, 1], "datatype": "FP32", "data": COLUMNS["lactate"]},
    {"name": "ward", "shape": [3, 1], "datatype": "BYTES", "data": [[w] for w in COLUMNS["ward"]]},
]


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    settings = {"most_membership_auc": 0.65, "max_predict_rows": 50, "max_predict_body": 100_000}
    with Coordinator(tmp_path_factory.mktemp("data"), **settings) as coordinator:
        yield coordinator


@pytest.fixture(scope="module")
def model(coordinator: Coordinator) -> str:
    model = add_model(coordinator)
    assert coordinator.admin("PUT", "/models/aliases/stay", {"model": model}).status_code == 200
    return model


def test_inference_says_what_json_says(coordinator: Coordinator, model: str) -> None:
    body = {"model": model, "columns": COLUMNS}
    targets = coordinator.admin("POST", "/predict", body).json()["targets"]
    for path in (
        f"{model}",
        "stay",
        f"stay/versions/{model}",
    ):
        sent = {"id": "7", "inputs": INPUTS}
        response = coordinator.admin("POST", f"/v2/models/{path}/infer", sent)
        assert response.status_code == 200, response.text
        answer = response.json()
        assert InferOut.model_validate(answer, strict=True).model_dump() == answer
        assert (answer["id"], answer["model_version"]) == ("7", model)
        assert answer["model_name"] == path.split("/")[0]
        assert [each["name"] for each in answer["outputs"]] == ["mean", "variance"]
        for output in answer["outputs"]:
            assert (output["shape"], output["datatype"]) == ([3, 2], "FP64")
            for i, target in enumerate(targets):
                assert output["data"][i::2] == target[output["name"]]


def test_outputs_may_be_chosen(coordinator: Coordinator, model: str) -> None:
    sent = {"inputs": INPUTS, "outputs": [{"name": "variance"}]}
    answer = coordinator.admin("POST", f"/v2/models/{model}/infer", sent).json()
    assert [each["name"] for each in answer["outputs"]] == ["variance"]


def test_a_model_describes_the_tensors_that_it_takes(coordinator: Coordinator, model: str) -> None:
    response = coordinator.admin("GET", "/v2/models/stay")
    found = ModelMetadata.model_validate_json(response.content)
    assert found.versions == [model]
    assert [(each.name, each.datatype) for each in found.inputs] == [
        ("age", "FP64"),
        ("lactate", "FP64"),
        ("ward", "BYTES"),
    ]
    assert [(each.name, each.shape) for each in found.outputs] == [
        ("mean", [-1, 2]),
        ("variance", [-1, 2]),
    ]
    assert json.loads(str(found.parameters["targets"])) == ["stay", "cost"]
    versioned = coordinator.admin("GET", f"/v2/models/stay/versions/{model}")
    assert versioned.json() == response.json()
    for path in ("stay/ready", f"stay/versions/{model}/ready"):
        ready = coordinator.admin("GET", f"/v2/models/{path}")
        assert ready.json() == {"name": "stay", "ready": True}


def test_the_server_says_that_it_lives_to_anyone(coordinator: Coordinator) -> None:
    assert coordinator.request("GET", "/v2").json()["name"] == "veilgp"
    assert coordinator.request("GET", "/v2/health/live").json() == {"live": True}
    assert coordinator.request("GET", "/v2/health/ready").json() == {"ready": True}


def test_who_may_not_use_a_model_is_answered_as_if_it_were_not_there(
    coordinator: Coordinator, model: str
) -> None:
    stranger = add_caller(coordinator, "another")
    for method, path in (
        ("GET", "stay"),
        ("GET", "stay/ready"),
        ("POST", "stay/infer"),
        ("POST", f"stay/versions/{model}/infer"),
    ):
        body = {"inputs": INPUTS} if method == "POST" else None
        assert coordinator.request(method, f"/v2/models/{path}", json=body).status_code == 401
        response = coordinator.bearer(stranger, method, f"/v2/models/{path}", body)
        assert (response.status_code, response.json()["code"]) == (404, "not_found")
    other = coordinator.admin("GET", f"/v2/models/stay/versions/{'0' * len(model)}")
    assert other.status_code == 404


def test_variances_of_a_small_model_are_averages_and_say_so(coordinator: Coordinator) -> None:
    small = add_model(coordinator, artifacts.artifact(clients=3, rows=30))
    token = add_caller(coordinator, small)
    path = f"/v2/models/{small}/infer"
    answer = coordinator.bearer(token, "POST", path, {"inputs": INPUTS}).json()
    mean, variance = answer["outputs"]
    assert (mean["name"], variance["name"]) == ("mean", "variance")
    assert len({tuple(variance["data"][i : i + 2]) for i in range(0, 6, 2)}) == 1
    assert answer["parameters"] == {
        "method": "fedbnr",
        "variance_of": "average",
        "withheld": "prediction.variance_withheld",
    }


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 422, "request.fields"),
        ({"inputs": []}, 422, "request.fields"),
        ({"inputs": [*INPUTS, INPUTS[0]]}, 422, "request.fields"),
        ({"inputs": [{**INPUTS[0], "shape": [2]}]}, 422, "request.fields"),
        ({"inputs": [{**INPUTS[0], "shape": [1, 3]}]}, 422, "request.fields"),
        ({"inputs": [{**INPUTS[0], "shape": []}]}, 422, "request.fields"),
        ({"inputs": [{**INPUTS[0], "datatype": "FP128"}]}, 422, "request.fields"),
        ({"inputs": INPUTS, "outputs": [{"name": "median"}]}, 422, "request.fields"),
        ({"inputs": INPUTS, "outputs": [{"name": "mean"}] * 2}, 422, "request.fields"),
        ({"inputs": INPUTS, "more": 1}, 422, "request.fields"),
        ({"inputs": INPUTS[:2]}, 422, "table.refused"),
        ({"inputs": [{**INPUTS[0], "data": ["SECRET"] * 3}, *INPUTS[1:]]}, 422, "table.refused"),
        ({"inputs": [{**INPUTS[0], "data": [[1, 2]] * 3}, *INPUTS[1:]]}, 422, "table.refused"),
        (
            {"inputs": [{**INPUTS[0], "shape": [51], "data": [1] * 51}, *INPUTS[1:]]},
            413,
            "table.too_long",
        ),
        ({"inputs": [{**INPUTS[0], "data": ["x" * 100_000]}]}, 413, "request.too_large"),
    ],
)
def test_what_is_no_request_is_refused_without_a_value(
    coordinator: Coordinator, model: str, body: object, status: int, code: str
) -> None:
    response = coordinator.admin("POST", f"/v2/models/{model}/infer", body)
    assert (response.status_code, response.json()["code"]) == (status, code), response.text
    assert "SECRET" not in response.text

"""Outcomes in every format: the kernels' numbers, in the schema's order, and what is withheld."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kernels.model.prediction import predict
from service.prediction.json_answers import PredictResponse
from service.prediction.open_inference import InferOut, ModelMetadata
from tests.kernels.rounds import every_kind
from tests.kernels.rounds.ensemble.test_predictive import SPEC as PREDICTIVE
from tests.kernels.rounds.every_kind import DEATH, DISCHARGED, READMITTED, SCHEMA, STAY
from tests.service.coordinator import Coordinator
from tests.service.prediction.test_predict_arrow import ask, octets, received
from tests.service.stored import add_caller, add_model

COLUMNS: dict[str, list[Any]] = {
    "age": [61.3, 25, 118],
    "lactate": [1.7, None, 0.1],
    "ward": ["medical", "surgical", "medical"],
    "years": [1.0, 0.5, 3.0],
}
RECORDS = [dict(zip(COLUMNS, cells, strict=True)) for cells in zip(*COLUMNS.values(), strict=True)]
INPUTS = [
    {"name": n, "shape": [3], "datatype": "BYTES" if n == "ward" else "FP64", "data": cells}
    for n, cells in COLUMNS.items()
]
NAMES = [target.name for target in SCHEMA.targets]


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    settings = {"most_membership_auc": 0.6}
    with Coordinator(tmp_path_factory.mktemp("data"), **settings) as coordinator:
        yield coordinator


@pytest.fixture(scope="module")
def model(coordinator: Coordinator) -> str:
    return add_model(coordinator, every_kind.artifact())


@pytest.fixture(scope="module")
def answer(coordinator: Coordinator, model: str) -> Any:
    response = coordinator.admin("POST", "/predict", {"model": model, "records": RECORDS})
    assert response.status_code == 200, response.text
    found = PredictResponse.model_validate_json(response.content, strict=True)
    assert found.model_dump() == response.json()
    return response.json()


def infer(coordinator: Coordinator, token: str, model: str, *outputs: str) -> Any:
    wanted = [{"name": name} for name in outputs]
    body = {"inputs": INPUTS, "outputs": wanted}
    return coordinator.bearer(token, "POST", f"/v2/models/{model}/infer", body)


def test_json_has_the_kernels_numbers_for_every_kind_in_the_order_of_the_schema(
    answer: Any,
) -> None:
    expected = predict(every_kind.artifact().model, COLUMNS)
    assert [each["name"] for each in answer["targets"]] == NAMES
    assert answer["unpredicted"] == []
    readmitted, stay, discharged, visits, death = answer["targets"]
    kinds = ["binary", "real", "classes", "count", "time_to_event"]
    assert [each["kind"] for each in answer["targets"]] == kinds
    assert stay["mean"] == expected.mean[:, 0].tolist()
    own = expected.outcome("readmitted")
    assert readmitted["mean"] == readmitted["probabilities"]["yes"] == own.mean.tolist()
    assert readmitted["probabilities"]["no"] == (1 - own.mean).tolist()
    assert readmitted["variance"] == own.variance.tolist()
    assert readmitted["latent_mean"] == own.latent_mean[:, 0].tolist()
    assert readmitted["latent_variance"] == own.latent_variance[:, 0].tolist()
    own = expected.outcome("discharged")
    for position, level in enumerate(DISCHARGED.levels):
        for name in ("mean", "variance", "latent_mean", "latent_variance"):
            assert discharged[name][level] == getattr(own, name)[:, position].tolist()
    assert discharged["probabilities"] == discharged["mean"]
    own = expected.outcome("visits")
    assert visits["mean"] == own.mean.tolist()
    assert visits["variance"] == own.variance.tolist()
    assert own.expectation_variance is not None
    assert visits["expectation_variance"] == own.expectation_variance.tolist()
    own = expected.outcome("days")
    assert own.survival is not None
    assert own.survival_variance is not None
    assert death["risk"] == death["mean"] == own.mean.tolist()
    assert (death["horizon"], death["survival"]["edges"]) == (30.0, [10.0, 20.0, 40.0])
    assert death["survival"]["mean"] == own.survival.tolist()
    assert death["survival"]["variance"] == own.survival_variance.tolist()
    assert death["latent_mean"] == own.latent_mean.tolist()
    assert own.median is not None
    medians = [None if each == np.inf else each for each in own.median.tolist()]
    assert death["median"] == medians
    assert None in medians, "otherwise this test says nothing about rows beyond the last edge"


def test_expected_counts_follow_the_exposure_and_without_it_that_of_one(
    coordinator: Coordinator, model: str, answer: Any
) -> None:
    plain = [{n: cell for n, cell in record.items() if n != "years"} for record in RECORDS]
    body = {"model": model, "records": plain}
    visits = coordinator.admin("POST", "/predict", body).json()["targets"][3]
    expected = np.array(visits["mean"]) * COLUMNS["years"]
    np.testing.assert_allclose(answer["targets"][3]["mean"], expected, rtol=1e-12)
    for bad in ([RECORDS[0], plain[1]], [{**RECORDS[0], "years": 0}]):
        response = coordinator.admin("POST", "/predict", {"model": model, "records": bad})
        assert response.status_code == 422
        assert "years" in response.json()["detail"]


def flat(answer: Any) -> dict[str, list[Any]]:
    """Return the JSON answer as the columns that the Arrow answer must have."""
    columns: dict[str, list[Any]] = {}
    for target in answer["targets"]:
        for part, values in target.items():
            if part in (
                "name",
                "kind",
                "unit",
                "event",
                "horizon",
                "risk",
                "intervals",
                "sets",
                "variance_of",
            ):
                continue
            curves = {part: values}
            if part == "survival":
                curves = {"survival": values["mean"], "survival_variance": values["variance"]}
            for name, own in curves.items():
                name = f"{target['name']}.{'p' if name == 'probabilities' else name}"
                if isinstance(own, dict):
                    columns |= {f"{name}.{level}": cells for level, cells in own.items()}
                elif isinstance(own[0], list):
                    edges = zip(("10", "20", "40"), zip(*own, strict=True), strict=True)
                    columns |= {f"{name}.{edge}": list(cells) for edge, cells in edges}
                else:
                    columns[name] = [np.inf if cell is None else cell for cell in own]
    return columns | {"extrapolates": answer["extrapolates"]}


def test_arrow_says_what_json_says(coordinator: Coordinator, model: str, answer: Any) -> None:
    table = received(ask(coordinator, octets(pa.table(COLUMNS)), f"model={model}"))
    assert table.to_pydict() == flat(answer)
    assert table.column_names[0] == "readmitted.mean"
    assert table.schema.field("days.mean").metadata == {b"unit": b"1", b"horizon": b"30"}
    assert table.schema.field("days.median").metadata == {b"unit": b"d"}
    assert table.schema.field("visits.mean").metadata == {b"unit": b"visits"}


def test_inference_says_what_json_says_and_what_its_metadata_announces(
    coordinator: Coordinator, model: str, answer: Any
) -> None:
    response = infer(coordinator, coordinator.token, model)
    assert response.status_code == 200, response.text
    found = InferOut.model_validate_json(response.content, strict=True)
    announced = ModelMetadata.model_validate_json(
        coordinator.admin("GET", f"/v2/models/{model}").content
    )
    assert [each.name for each in announced.inputs] == list(COLUMNS)
    shapes = {each.name: [3, *each.shape[1:]] for each in announced.outputs}
    assert {each.name: each.shape for each in found.outputs} == shapes
    columns = json.loads(str(announced.parameters["columns"]))
    assert columns == [
        *("readmitted", "stay"),
        *("discharged.home", "discharged.transfer", "discharged.hospice"),
        *("visits", "days"),
    ]
    readmitted, stay, discharged, visits, death = answer["targets"]
    data = {each.name: each.data for each in found.outputs}
    for name in ("mean", "variance"):
        own = [readmitted[name], stay[name], *discharged[name].values(), visits[name], death[name]]
        assert [data[name][i :: len(columns)] for i in range(len(columns))] == own
    assert data["days.survival"] == [own for row in death["survival"]["mean"] for own in row]
    assert data["days.median"] == death["median"]
    assert data["readmitted.probabilities"][::2] == readmitted["probabilities"]["yes"]
    chosen = infer(coordinator, coordinator.token, model, "days.median", "mean").json()["outputs"]
    assert [each["name"] for each in chosen] == ["days.median", "mean"]
    refused = infer(coordinator, coordinator.token, model, "days.mode")
    assert (refused.status_code, refused.json()["code"]) == (422, "request.fields")


def test_a_caller_of_a_small_model_gets_one_mean_a_row_and_no_number_that_shows_a_variance(
    coordinator: Coordinator, model: str
) -> None:
    caller = add_caller(coordinator, model)
    body = {"model": model, "columns": COLUMNS}
    response = coordinator.bearer(caller, "POST", "/predict", body)
    found = PredictResponse.model_validate_json(response.content, strict=True)
    assert found.withheld is not None
    said = {"name", "kind", "unit", "mean", "event", "probabilities", "sets", "risk", "horizon"}
    readmitted, stay, *others = response.json()["targets"]
    assert stay["variance_of"] == "average"
    assert len(set(stay["variance"])) == 1
    for target in (readmitted, *others):
        assert {name for name, value in target.items() if value is not None} <= said
    table = received(ask(coordinator, octets(pa.table(COLUMNS)), f"model={model}", caller))
    own = [name for name in table.column_names if "." in name and not name.startswith("stay.")]
    parts = {name.split(".")[1] for name in own}
    assert parts == {"mean", "p"}
    outputs = infer(coordinator, caller, model).json()["outputs"]
    assert [each["name"] for each in outputs] == [
        "mean",
        "readmitted.probabilities",
        "discharged.probabilities",
    ]
    for name in ("variance", "readmitted.latent_mean", "days.survival", "days.median"):
        response = infer(coordinator, caller, model, name)
        assert response.status_code == 403, name
        assert response.json()["code"] == "prediction.variance_withheld"


def test_a_model_without_real_targets_is_served_in_every_format(coordinator: Coordinator) -> None:
    model = add_model(coordinator, every_kind.judged(READMITTED, DEATH))
    body = {"model": model, "columns": COLUMNS, "intervals": [0.9]}
    targets = coordinator.admin("POST", "/predict", body).json()["targets"]
    assert [each["name"] for each in targets] == ["readmitted", "days"]
    query = f"model={model}&intervals=0.9"
    table = received(ask(coordinator, octets(pa.table(COLUMNS)), query))
    assert table["days.mean"].to_pylist() == targets[1]["mean"]
    assert infer(coordinator, coordinator.token, model).json()["outputs"][0]["shape"] == [3, 2]
    other = coordinator.admin("POST", "/predict", {**body, "method": "product"})
    assert (other.status_code, other.json()["code"]) == (422, "prediction.unknown_method")


@pytest.fixture(scope="module")
def judged(coordinator: Coordinator) -> str:
    return add_model(coordinator, every_kind.judged())


def test_json_and_arrow_have_the_sets_and_intervals_of_the_kernels(
    coordinator: Coordinator, judged: str
) -> None:
    expected = predict(every_kind.judged().model, COLUMNS)
    body = {"model": judged, "columns": COLUMNS, "intervals": [0.5, 0.99]}
    response = coordinator.admin("POST", "/predict", body)
    found = PredictResponse.model_validate_json(response.content, strict=True)
    assert found.model_dump() == response.json()
    readmitted, _, discharged, visits, death = response.json()["targets"]
    query = f"model={judged}&intervals=0.5&intervals=0.99"
    table = received(ask(coordinator, octets(pa.table(COLUMNS)), query))
    for said, target in ((readmitted, READMITTED), (discharged, DISCHARGED)):
        for own in said["sets"]:
            sets = expected.outcome(target.name).sets(own["level"])
            assert own["sets"] == [
                [name for name, there in zip(target.levels, row, strict=True) if there]
                for row in sets.tolist()
            ]
            for position, name in enumerate(target.levels):
                column = f"{target.name}.set.{own['level']:g}.{name}"
                assert table[column].to_pylist() == sets[:, position].tolist()
    assert readmitted["sets"][1]["sets"] == [["yes", "no"]] * 3, "too few rows for this level"
    half, most = visits["intervals"]
    lower, upper = expected.outcome("visits").interval(0.5)
    assert (half["kind"], half["lower"], half["upper"]) == (
        *("conformal", lower.tolist()),
        upper.tolist(),
    )
    assert table["visits.lower.0.5"].to_pylist() == half["lower"]
    assert most["upper"] == [None] * 3
    assert table["visits.upper.0.99"].to_pylist() == [np.inf] * 3
    assert not {"sets", "intervals"} & set(death)


def test_a_caller_without_variances_gets_sets_and_no_intervals_of_counts(
    coordinator: Coordinator, judged: str
) -> None:
    caller = add_caller(coordinator, judged)
    body = {"model": judged, "columns": COLUMNS, "intervals": [0.5]}
    everything = coordinator.admin("POST", "/predict", body).json()["targets"]
    readmitted, _, _, visits, _ = coordinator.bearer(caller, "POST", "/predict", body).json()[
        "targets"
    ]
    assert readmitted["sets"] == everything[0]["sets"]
    assert everything[3]["intervals"]
    assert visits["intervals"] is None
    query = f"model={judged}&intervals=0.5"
    names = received(ask(coordinator, octets(pa.table(COLUMNS)), query, caller)).column_names
    assert "readmitted.set.0.5.yes" in names
    assert not [name for name in names if name.startswith(("visits.lower", "visits.upper"))]


def test_a_model_without_recalibration_refuses_sets_by_name_and_only_if_asked(
    coordinator: Coordinator,
) -> None:
    model = add_model(coordinator, every_kind.artifact(READMITTED, STAY))
    body = {"model": model, "columns": COLUMNS, "intervals": [0.9]}
    other = coordinator.admin("POST", "/predict", {**body, "interval_kind": "gaussian"}).json()
    assert other["targets"][0]["sets"] == []
    assert other["targets"][1]["intervals"][0]["kind"] == "gaussian"
    alone = add_model(coordinator, every_kind.artifact(READMITTED))
    refused = coordinator.admin("POST", "/predict", {**body, "model": alone})
    assert refused.json()["code"] == "model.not_fitted"
    assert "recalibration" in refused.json()["detail"]
    assert "'readmitted'" in refused.json()["detail"]


def test_a_method_that_predicts_no_outcomes_says_which_are_missing(
    coordinator: Coordinator,
) -> None:
    plain = every_kind.program(READMITTED, STAY)
    own = replace(plain, stages=(plain.stages[0], PREDICTIVE, *plain.stages[1:]))
    model = add_model(coordinator, every_kind.artifact_of(own))
    body = {"model": model, "columns": COLUMNS, "method": "product"}
    answer = coordinator.admin("POST", "/predict", body).json()
    assert [each["name"] for each in answer["targets"]] == ["stay"]
    assert answer["unpredicted"] == ["readmitted"]
    query = f"model={model}&method=product"
    table = received(ask(coordinator, octets(pa.table(COLUMNS)), query))
    assert table.column_names == ["stay.mean", "stay.variance", "extrapolates"]
    assert table.schema.metadata[b"unpredicted"] == b'["readmitted"]'
    sent = {"inputs": INPUTS, "parameters": {"method": "product"}}
    found = coordinator.admin("POST", f"/v2/models/{model}/infer", sent).json()
    assert found["parameters"]["unpredicted"] == '["readmitted"]'
    assert [each["shape"] for each in found["outputs"]] == [[3, 1]] * 2

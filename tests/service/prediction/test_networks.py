"""Networks that hospitals train in a session: served, scored, and no more than callers may have."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.model.model import GlobalModel
from kernels.ensembles.served_networks import NetworkMethod
from kernels.model.model import Model
from kernels.model.prediction import predict
from kernels.rounds.columns import moments
from kernels.rounds.compared import ep_mcmc, fedbe, fedpa, fedyogi, one_shot
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.layer import linear
from kernels.rounds.program import Program
from kernels.storage import encode
from service.prediction.json_answers import PredictResponse
from tests.kernels.rounds import artifacts, tables
from tests.kernels.rounds.network_rows import DISTILLING, SAMPLING, TRAINING
from tests.service.coordinator import Coordinator
from tests.service.page.browsing import page, signed_in
from tests.service.prediction.test_predict import COLUMNS
from tests.service.prediction.test_predict_arrow import TABLE, ask, octets, received
from tests.service.prediction.test_predict_v2 import INPUTS
from tests.service.programs import simulated
from tests.service.sites import session_of, start, stored_model, work
from tests.service.stored import add_caller, add_model

SPECS: dict[NetworkMethod, Any] = {
    NetworkMethod.FEDPA: fedpa.Spec(**TRAINING, rounds=2),
    NetworkMethod.EP_MCMC: ep_mcmc.Spec(**SAMPLING, draws=4),
    NetworkMethod.FEDYOGI: fedyogi.Spec(**TRAINING, rounds=2),
    NetworkMethod.FEDBE: fedbe.Spec(**TRAINING, **DISTILLING, draws=2),
    NetworkMethod.ONE_SHOT: one_shot.Spec(**TRAINING, **DISTILLING),
}
SAME_AT_EVERY_ROW = {NetworkMethod.FEDPA, NetworkMethod.FEDYOGI}


def program_of(*stages: Any) -> Program:
    whole = Program(tables.SCHEMA, tables.KERNEL, stages, max_rows=1000, held_out=0.4)
    return Program.from_json(whole.to_json())


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    with Coordinator(tmp_path_factory.mktemp("data"), least_rows_for_variance=1) as coordinator:
        yield coordinator


def run(coordinator: Coordinator, program: Program) -> tuple[str, Model, str]:
    """Run a session of three hospitals; return the model's id, the model, and the session."""
    sites = session_of(coordinator, program)
    start(coordinator, sites[0].session)
    work(sites)
    expected = simulated(program)
    assert stored_model(coordinator, sites[0]) == encode(expected)
    assert sites[0].outcome is not None
    return sites[0].outcome["model"], expected, sites[0].session


def local(coordinator: Coordinator, model: str) -> GlobalModel:
    data = coordinator.admin("GET", f"/models/{model}/artifact").content
    card = coordinator.admin("GET", f"/models/{model}").json()
    return GlobalModel.from_artifact(data, card, expected_id=model)


def check_served(coordinator: Coordinator, model: str, expected: Model, method: str) -> None:
    """Every format and the hospital's own copy predict by the method what was trained."""
    body = {"model": model, "columns": COLUMNS, "method": method, "intervals": [0.9]}
    answer = coordinator.admin("POST", "/predict", body).json()
    assert PredictResponse.model_validate(answer).model_dump() == answer
    assert (answer["method"], answer["ensemble"], answer["withheld"]) == (method, None, None)
    at_home = local(coordinator, model).predict(COLUMNS, method=method)
    said = predict(expected, COLUMNS, method=method)
    for i, target in enumerate(answer["targets"]):
        for name in ("mean", "variance"):
            np.testing.assert_allclose(target[name], getattr(said, name)[:, i], rtol=1e-12)
            np.testing.assert_allclose(target[name], getattr(at_home, name)[:, i], rtol=1e-12)
        assert target["intervals"][0]["kind"] == "gaussian"
        assert min(target["variance"]) > 0
    query = f"model={model}&method={method}"
    table = received(ask(coordinator, octets(TABLE), query)).to_pydict()
    assert table["stay.mean"] == answer["targets"][0]["mean"]
    sent = {"inputs": INPUTS, "parameters": {"method": method}}
    inferred = coordinator.admin("POST", f"/v2/models/{model}/infer", sent).json()
    assert inferred["parameters"] == {"method": method, "variance_of": "row"}
    assert inferred["outputs"][0]["data"][::2] == answer["targets"][0]["mean"]


@pytest.mark.parametrize("method", NetworkMethod)
def test_a_session_serves_and_scores_what_its_hospitals_have_trained(
    coordinator: Coordinator, method: NetworkMethod
) -> None:
    layer = (linear.Spec(), SPECS[method], recalibration.Spec(min_rows=1), evaluation.Spec())
    model, expected, _ = run(coordinator, program_of(moments.Spec(), *layer))
    check_served(coordinator, model, expected, method)
    listed = {each["id"]: each["methods"] for each in coordinator.admin("GET", "/models").json()}
    assert listed[model] == [
        {"method": "fedbnr", "ensembles": []},
        {"method": method, "ensembles": []},
    ]
    card = coordinator.admin("GET", f"/models/{model}").json()
    networks = card["methods"][1]
    assert (networks["method"], networks["ensemble"]) == (method, None)
    assert networks["networks"] == (4 if method is NetworkMethod.EP_MCMC else 1)
    (judged,) = card["evaluation"]["others"]
    assert (card["evaluation"]["method"], judged["method"]) == ("fedbnr", method)
    assert [each["name"] for each in judged["quality"]] == ["stay", "cost"]
    assert all(0 < each["rmse"] < 1e6 and sum(each["widths"]) > 0 for each in judged["quality"])
    shown = page(coordinator, f"/view/models/{model}", signed_in(coordinator)).text
    section = shown.partition("<h2>Methods</h2>")[2].partition("</section>")[0]
    for quality in judged["quality"]:
        assert f"{quality['nll']:.4g}" in section
    assert method in str(local(coordinator, model).card)


def test_networks_alone_are_a_model_whose_first_is_the_default(coordinator: Coordinator) -> None:
    stages = [SPECS[NetworkMethod.FEDYOGI], SPECS[NetworkMethod.EP_MCMC]]
    program = program_of(moments.Spec(), *stages, evaluation.Spec(recalibrated=False))
    model, expected, session = run(coordinator, program)
    for method in ("ep_mcmc", "fedyogi"):
        check_served(coordinator, model, expected, method)
    body = {"model": model, "columns": COLUMNS}
    assert coordinator.admin("POST", "/predict", body).json()["method"] == "ep_mcmc"
    refused = coordinator.admin("POST", "/predict", {**body, "method": "fedbnr"})
    assert refused.json()["code"] == "prediction.unknown_method"
    card = coordinator.admin("GET", f"/models/{model}").json()
    assert (card["layer"], card["rows"]) == ([], expected.networks[0].rows)
    assert card["evaluation"]["method"] == "ep_mcmc"
    assert [each["method"] for each in card["evaluation"]["others"]] == ["fedyogi"]
    cookie = signed_in(coordinator)
    shown = page(coordinator, f"/view/models/{model}", cookie).text
    assert "ep_mcmc" in shown
    assert page(coordinator, f"/view/{session}", cookie).status_code == 200
    refused = coordinator.admin(
        "POST", f"/sessions/{session}/runs", {"kind": "update", "model": model}
    )
    assert refused.status_code == 422


@cache
def trained() -> Any:
    return artifacts.artifact(artifacts.NETWORKS)


@pytest.mark.parametrize("method", NetworkMethod)
def test_what_a_networks_variances_could_tell_is_for_trusted_callers_alone(
    coordinator: Coordinator, method: NetworkMethod
) -> None:
    model = add_model(coordinator, trained())
    body = {"model": model, "columns": COLUMNS, "method": method, "intervals": [0.9]}
    plain, trusted = (
        coordinator.bearer(add_caller(coordinator, model, trusted=each), "POST", "/predict", body)
        for each in (False, True)
    )
    for hidden, full in zip(plain.json()["targets"], trusted.json()["targets"], strict=True):
        assert hidden["mean"] == full["mean"]
        assert full["variance"] is not None
        if method in SAME_AT_EVERY_ROW:
            assert len(set(hidden["variance"])) == 1
            continue
        assert hidden["variance"] is hidden["intervals"] is None
    if method not in SAME_AT_EVERY_ROW:
        assert plain.json()["withheld"]["code"] == "prediction.variance_withheld"


def test_few_rows_withhold_even_a_variance_that_is_the_same_at_every_row(tmp_path: Path) -> None:
    with Coordinator(tmp_path) as coordinator:  # least_rows_for_variance is 2,000
        model = add_model(coordinator, trained())
        token = add_caller(coordinator, model)
        body = {"model": model, "columns": COLUMNS, "method": "fedpa"}
        answer = coordinator.bearer(token, "POST", "/predict", body).json()
        assert [target["variance"] for target in answer["targets"]] == [None, None]


def test_the_file_of_a_model_with_networks_is_not_for_callers(tmp_path: Path) -> None:
    with Coordinator(tmp_path, most_membership_auc=1.0) as coordinator:
        model, plain = add_model(coordinator, trained()), add_model(coordinator)
        token = add_caller(coordinator, model, plain)
        assert coordinator.bearer(token, "GET", f"/models/{plain}/artifact").status_code == 200
        refused = coordinator.bearer(token, "GET", f"/models/{model}/artifact")
        assert (refused.status_code, refused.json()["code"]) == (
            403,
            "prediction.variance_withheld",
        )
        assert "fedpa" in refused.json()["detail"]
        trusted = add_caller(coordinator, model, trusted=True)
        assert coordinator.bearer(trusted, "GET", f"/models/{model}/artifact").status_code == 200


def test_networks_are_no_ensemble_of_sites_predictions(coordinator: Coordinator) -> None:
    model = add_model(coordinator, trained())
    for ensemble in ("distilled", "open"):
        body = {"model": model, "columns": COLUMNS, "method": "fedpa", "ensemble": ensemble}
        refused = coordinator.admin("POST", "/predict", body)
        assert refused.status_code in (404, 409, 422), refused.text


def test_training_the_layer_again_drops_networks_whose_rows_may_be_gone() -> None:
    model = trained().model
    again = replace(artifacts.PLAIN, held_out=0.4, stages=(linear.Spec(),)).start(model)
    assert again.networks is None
    assert replace(artifacts.PLAIN, stages=(evaluation.Spec(),)).start(model).networks is not None

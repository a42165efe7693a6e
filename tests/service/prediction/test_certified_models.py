"""The coordinator serves what a quorum has signed, and never a model that only hospitals have."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from httpx import Response
from sqlalchemy import update

from privacy.members.endorsement import ModelCertificate
from service.database import tables
from service.prediction.arrow_stream import ARROW
from tests.certified import HOSPITALS, certificate_of, signable
from tests.kernels.rounds import artifacts
from tests.service.coordinator import Coordinator
from tests.service.stored import add_caller, add_member, add_model, add_sealed, add_session

RECORDS = [{"age": 61, "lactate": None, "ward": "medical"}]
ARTIFACT = signable(artifacts.artifact())
CERTIFICATE = certificate_of(ARTIFACT)
FORMATS = ("json", "arrow", "open inference")


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    with Coordinator(tmp_path, most_membership_auc=1) as coordinator:
        yield coordinator


def predicted(coordinator: Coordinator, model: str, kind: str = "json") -> Response:
    if kind == "json":
        return coordinator.admin("POST", "/predict", {"model": model, "records": RECORDS})
    if kind == "open inference":
        tensors = {
            "age": ("FP64", [61.0]),
            "lactate": ("FP64", [2.0]),
            "ward": ("BYTES", ["medical"]),
        }
        inputs = [
            {"name": name, "shape": [1], "datatype": datatype, "data": data}
            for name, (datatype, data) in tensors.items()
        ]
        return coordinator.admin("POST", f"/v2/models/{model}/infer", {"inputs": inputs})
    sink = pa.BufferOutputStream()
    table = pa.table({"age": [61.0], "lactate": [2.0], "ward": ["medical"]})
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return coordinator.request(
        "POST",
        f"/predict?model={model}",
        headers={"Authorization": f"Bearer {coordinator.token}", "Content-Type": ARROW},
        content=sink.getvalue().to_pybytes(),
    )


def code_of(response: Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_signed_model_predicts_in_every_format(coordinator: Coordinator, kind: str) -> None:
    model = add_model(
        coordinator, ARTIFACT, certificate=CERTIFICATE.encode(), serve_uncertified=False
    )
    assert predicted(coordinator, model, kind).status_code == 200
    certificate = coordinator.admin("GET", f"/models/{model}/certificate")
    assert ModelCertificate.decode(certificate.content) == CERTIFICATE
    (listed,) = coordinator.admin("GET", "/models").json()
    assert (listed["certified"], listed["members_only"]) == (True, False)


@pytest.mark.parametrize("kind", FORMATS)
def test_an_unsigned_model_predicts_only_if_an_admin_says_so(
    coordinator: Coordinator, kind: str
) -> None:
    model = add_model(coordinator, ARTIFACT, serve_uncertified=False)
    refusal = predicted(coordinator, model, kind)
    assert code_of(refusal) == (409, "model.not_certified")
    assert "serve_uncertified" in refusal.json()["detail"]
    assert code_of(coordinator.admin("GET", f"/v2/models/{model}/ready"))[0] == 409
    for allowed, status in ((True, 200), (False, 409)):
        change = {"serve_uncertified": allowed}
        assert coordinator.admin("PATCH", f"/models/{model}", change).status_code == 204
        assert predicted(coordinator, model, kind).status_code == status
    assert coordinator.admin("GET", f"/models/{model}").status_code == 200
    refusal = coordinator.admin("GET", f"/models/{model}/certificate")
    assert refusal.json()["code"] == "model.not_certified"
    (listed,) = coordinator.admin("GET", "/models").json()
    assert listed["certified"] is False


def test_only_an_admin_allows_an_unsigned_model(coordinator: Coordinator) -> None:
    model = add_model(coordinator, ARTIFACT, serve_uncertified=False)
    change, caller = {"serve_uncertified": True}, add_caller(coordinator, model)
    refused = coordinator.bearer(caller, "PATCH", f"/models/{model}", change)
    assert refused.status_code == 403
    assert coordinator.admin("PATCH", f"/models/{'0' * 64}", change).status_code == 404
    for wrong in ({}, {"serve_uncertified": "yes"}, {**change, "alias": "x"}):
        assert coordinator.admin("PATCH", f"/models/{model}", wrong).status_code == 422
    assert predicted(coordinator, model).status_code == 409


_DAMAGED = {
    "foreign": certificate_of(signable(artifacts.artifact(artifacts.PLAIN))).encode(),
    "cut": CERTIFICATE.encode()[:-1],
    "forged": replace(
        CERTIFICATE, signatures=(CERTIFICATE.signatures[1], *CERTIFICATE.signatures[1:])
    ).encode(),
    "too few": certificate_of(ARTIFACT, HOSPITALS[:3]).encode(),
    "of another byte": certificate_of(ARTIFACT, data=ARTIFACT.data[:-1] + b"!").encode(),
}


@pytest.mark.parametrize("damage", _DAMAGED)
def test_a_model_whose_certificate_is_not_its_own_does_not_predict(
    coordinator: Coordinator, damage: str
) -> None:
    model = add_model(coordinator, ARTIFACT, certificate=_DAMAGED[damage])
    assert code_of(predicted(coordinator, model)) == (500, "model.damaged")
    with coordinator.context.database.changing() as connection:
        connection.execute(update(tables.models).values(certificate=CERTIFICATE.encode()))
    assert predicted(coordinator, model).status_code == 200


@pytest.mark.parametrize("kind", FORMATS)
def test_a_model_for_members_only_is_never_predicted_with(
    coordinator: Coordinator, kind: str
) -> None:
    model = add_sealed(coordinator, add_session(coordinator), CERTIFICATE)
    refusal = predicted(coordinator, model, kind)
    assert code_of(refusal) == (409, "model.members_only")
    assert "the coordinator never had it" in refusal.json()["detail"]
    for path in (f"/models/{model}", f"/models/{model}/artifact", f"/v2/models/{model}"):
        assert code_of(coordinator.admin("GET", path)) == (409, "model.members_only")
    change = {"serve_uncertified": True}
    coordinator.admin("PATCH", f"/models/{model}", change)
    assert predicted(coordinator, model, kind).status_code == 409
    (listed,) = coordinator.admin("GET", "/models").json()
    assert (listed["certified"], listed["members_only"], listed["methods"]) == (True, True, [])


def test_only_members_of_its_session_get_a_sealed_model(coordinator: Coordinator) -> None:
    session, elsewhere = add_session(coordinator), add_session(coordinator)
    model = add_sealed(coordinator, session, CERTIFICATE)
    path, member = f"/models/{model}/archive", add_member(coordinator, session)
    assert member.send("GET", path).content == b"sealed"
    assert member.send("GET", f"/models/{model}/certificate").status_code == 200
    assert add_member(coordinator, elsewhere).send("GET", path).status_code == 404
    assert add_member(coordinator, session, "suspended").send("GET", path).status_code == 404
    # A token does not do: the request must be signed by a member.
    assert coordinator.admin("GET", path).status_code == 401
    caller = add_caller(coordinator, model)
    assert coordinator.bearer(caller, "GET", path).status_code == 401
    served = add_model(coordinator, ARTIFACT, session)
    assert member.send("GET", f"/models/{served}/archive").status_code == 404


def test_the_certificate_of_a_sealed_model_has_no_salt(coordinator: Coordinator) -> None:
    model = add_sealed(coordinator, add_session(coordinator), CERTIFICATE)
    data = coordinator.admin("GET", f"/models/{model}/certificate").content
    assert not any(ModelCertificate.decode(data).salt)

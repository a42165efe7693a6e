"""Members' unmasked samples: accepted if they are as requested, served, withdrawn at once."""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from httpx import Response
from sqlalchemy import select, update

from client_sdk.network.exchange import Call, Clock, Effects, Exchange, Pause, Reply
from kernels.ensembles.distilled import Method
from kernels.model.prediction import predict
from kernels.rounds.ensemble.open_ensemble import OpenEnsemble, most_octets
from service.database import tables
from service.prediction.json_answers import PredictResponse
from service.runs import open_samples
from tests.kernels.rounds import tables as rows
from tests.kernels.rounds.ensemble.test_open_ensemble import PROGRAM, SITES, finished
from tests.kernels.rounds.ensemble.test_predictive import SPEC
from tests.postgres import Postgres
from tests.service.coordinator import HOST, Coordinator
from tests.service.opened import COLUMNS, Opened, files, opened
from tests.service.prediction.test_predict_arrow import ask, octets, received
from tests.service.sites import Site
from tests.service.stored import add_caller
from tests.stores import EVERY_STORE, Store

LEAST = 30
"""Minimum of rows for variances: more than the first two sites have, fewer than all together."""


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    with Coordinator(tmp_path, least_rows_for_variance=LEAST) as running:
        yield running


@pytest.fixture
def run(coordinator: Coordinator) -> Opened:
    return opened(coordinator)


def code(response: Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def shown_by(*who: int, method: str) -> tuple[list[float], list[float]]:
    """Return mean and variance of stay by the ensemble of these sites, computed here."""
    _, model, samples = finished()
    ensemble = OpenEnsemble.of(model, PROGRAM, [samples[i] for i in who])
    found = predict(model, COLUMNS, method=method, committee=ensemble.predict)
    return found.mean[:, 0].tolist(), found.variance[:, 0].tolist()


def check(answer: Response, *who: int, method: str = "product") -> None:
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["ensemble"], found["members"], found["cohort"]) == ("open", len(who), SITES)
    mean, variance = shown_by(*who, method=method)
    np.testing.assert_allclose(found["targets"][0]["mean"], mean, rtol=1e-9)
    if found["withheld"] is None:
        np.testing.assert_allclose(found["targets"][0]["variance"], variance, rtol=1e-9)


# -- served


def test_the_ensemble_of_those_who_show_their_samples_predicts_by_every_method(
    run: Opened,
) -> None:
    for i in range(3):
        assert run.show(i).status_code == 204
    for method in Method:
        answer = run.ask(method=method)
        check(answer, 0, 1, 2, method=method)
        assert PredictResponse.model_validate(answer.json()).model_dump() == answer.json()
    check(run.ask(), 0, 1, 2)
    student = run.ask(ensemble="distilled", method="product").json()
    assert (student["ensemble"], student["members"]) == ("distilled", None)
    plain = run.ask(ensemble=None).json()
    assert (plain["method"], plain["ensemble"]) == ("fedbnr", None)
    for way in ("open", "distilled"):
        assert code(run.ask(ensemble=way, method="fedbnr")) == (422, "prediction.unknown_method")
    assert run.ask(ensemble="secret").status_code == 422


def test_arrow_and_inference_say_the_same(run: Opened) -> None:
    for i in range(2):
        run.show(i)
    mean, _ = shown_by(0, 1, method="beta")
    query = f"model={run.model}&method=beta&ensemble=open"
    answer = received(ask(run.coordinator, octets(pa.table(COLUMNS)), query))
    np.testing.assert_allclose(answer.to_pydict()["stay.mean"], mean, rtol=1e-9)
    about = answer.schema.metadata
    assert [about[name] for name in (b"ensemble", b"members", b"cohort")] == [b"open", b"2", b"4"]
    kinds = {"age": "FP64", "lactate": "FP64", "ward": "BYTES"}
    inputs = [
        {"name": name, "shape": [2], "datatype": kind, "data": COLUMNS[name]}
        for name, kind in kinds.items()
    ]
    body = {"inputs": inputs, "parameters": {"method": "beta", "ensemble": "open"}}
    path = f"/v2/models/{run.model}/infer"
    inferred = run.coordinator.admin("POST", path, body).json()
    np.testing.assert_allclose(inferred["outputs"][0]["data"][::2], mean, rtol=1e-9)
    assert inferred["parameters"]["members"] == 2
    body["parameters"] = {"ensemble": "secret"}
    assert run.coordinator.admin("POST", path, body).status_code == 422


def test_the_list_of_models_and_the_admin_see_who_is_in_it(run: Opened) -> None:
    def methods() -> dict[str, list[str]]:
        (model,) = run.coordinator.admin("GET", "/models").json()
        assert model["open_members"] == sum(
            each["withdrawn_at"] is None for each in run.listed()["members"]
        )
        return {each["method"]: each["ensembles"] for each in model["methods"]}

    before = methods()
    assert before["product"] == ["distilled"]
    assert run.listed() == {"asked": True, "cohort": SITES, "members": []}
    assert code(run.ask()) == (422, "model.not_fitted")
    run.show(1)
    after = methods()
    assert after == {
        name: [*ways, "open"] if name != "fedbnr" else [] for name, ways in before.items()
    }
    (member,) = run.listed()["members"]
    assert (member["name"], member["samples"], member["octets"]) == ("site-1", 4, len(files()[1]))
    assert "rows" not in member  # a hospital's number of rows is only in its file
    run.withdraw(1)
    assert methods() == before
    (member,) = run.listed()["members"]
    assert member["withdrawn_at"] is not None
    caller = add_caller(run.coordinator, run.model)
    refused = run.coordinator.bearer(caller, "GET", f"/runs/{run.run}/samples")
    assert refused.status_code == 403


def test_variances_of_an_ensemble_of_few_rows_are_withheld_from_callers(run: Opened) -> None:
    caller = add_caller(run.coordinator, run.model)

    def withheld() -> bool:
        body = {"model": run.model, "columns": COLUMNS, "ensemble": "open"}
        answer = run.coordinator.bearer(caller, "POST", "/predict", body).json()
        return answer["withheld"] is not None

    few, *_, many = finished()[2]
    assert few.rows < LEAST < many.rows
    run.show(3)
    assert not withheld()
    run.show(0)
    assert withheld()  # the difference of two answers would be the small site's
    run.show(1, replace(finished()[2][1], rows=PROGRAM.max_rows).to_bytes())
    assert withheld()  # whatever a third site claims about itself
    check(run.ask(method="product"), 0, 1, 3)  # the admin sees them
    run.withdraw(0)
    assert not withheld()


def test_a_row_counts_once_for_each_hospital_that_is_asked(tmp_path: Path) -> None:
    with Coordinator(tmp_path, caller_rows_per_minute=12) as coordinator:
        run = opened(coordinator)
        for i in range(3):
            run.show(i)
        caller = add_caller(coordinator, run.model)
        body = {"model": run.model, "columns": COLUMNS, "ensemble": "open"}
        asked = [coordinator.bearer(caller, "POST", "/predict", body) for _ in range(3)]
        assert [answer.status_code for answer in asked] == [200, 200, 429]


# -- accepted or refused


def test_the_same_octets_again_change_nothing_and_others_are_refused(run: Opened) -> None:
    assert run.show(0).status_code == 204
    before = run.listed()
    run.coordinator.clock.now += 60
    assert run.show(0).status_code == 204
    assert run.listed() == before
    own = finished()[2][0]
    other = replace(own, samples=own.samples + 1e-3).to_bytes()
    assert code(run.show(0, other)) == (409, "samples.differ")
    assert run.listed() == before
    check(run.ask(), 0)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "state.invalid"),
        (b"pickle\x80\x04.", "state.invalid"),
        ((1 << 50).to_bytes(8, "little") + b"{", "state.invalid"),
        (b"\xff" * 3000, "state.invalid"),
        (b"\0" * (1 << 20), "request.too_large"),
    ],
)
def test_a_file_that_is_no_safetensors_or_too_large_is_refused(
    run: Opened, body: bytes, expected: str
) -> None:
    assert run.show(0, body).json()["code"] == expected
    assert run.listed()["members"] == []


def test_samples_of_another_network_that_are_no_numbers_or_too_many_are_refused(
    run: Opened,
) -> None:
    own = finished()[2][0]
    first = own.samples[0, 0].numpy().tobytes()
    not_a_number = files()[0].replace(first, torch.tensor(torch.nan).double().numpy().tobytes())
    assert not_a_number != files()[0]
    for wrong in (
        replace(own, samples=own.samples[:, 1:]),
        replace(own, samples=torch.cat([own.samples, own.samples[:3]])),
        replace(own, noise_variance=own.noise_variance[:1]),
        replace(own, rows=PROGRAM.max_rows + 1),
    ):
        assert code(run.show(0, wrong.to_bytes())) in (
            (422, "state.invalid"),
            (413, "request.too_large"),
        )
    assert code(run.show(0, not_a_number)) == (422, "state.invalid")
    assert len(files()[0]) <= most_octets(PROGRAM)
    assert run.listed()["members"] == []


def test_lengths_are_announced_and_kept_and_bodies_are_those_that_were_signed(run: Opened) -> None:
    body = files()[0]
    signed = {"Authorization": run.sites[0].header("PUT", run.target, body)}
    wrong = run.coordinator.request("PUT", run.target, headers=signed, content=body[:-1] + b"x")
    assert wrong.status_code == 401
    assert code(run.show(0, body, **{"Content-Length": str(len(body) - 1)}))[1] == "request.length"
    assert code(run.show(0, body, **{"Content-Length": "many"}))[1] == "request.length"
    assert run.listed()["members"] == []


def test_only_an_approved_member_of_the_run_shows_its_own_samples_for_a_run_that_asks(
    coordinator: Coordinator,
) -> None:
    run, stranger = opened(coordinator), Site(coordinator)
    body = files()[0]

    def put(site: Site, target: str) -> Response:
        headers = {"Authorization": site.header("PUT", target, body)}
        return coordinator.request("PUT", target, headers=headers, content=body)

    assert put(stranger, run.target).status_code == 404
    other = opened(coordinator, program=rows.program(SPEC), status="failed")
    assert put(other.sites[0], run.target).status_code == 404
    mixed = f"/sessions/{other.session}/runs/{run.run}/samples"
    assert put(other.sites[0], mixed).status_code == 404
    assert code(put(other.sites[0], other.target)) == (409, "samples.not_asked")
    early = opened(coordinator, status="running")
    assert code(put(early.sites[0], early.target)) == (409, "samples.not_asked")
    silent = opened(coordinator, status="failed")
    assert code(put(silent.sites[0], silent.target)) == (409, "samples.not_asked")
    # The signing key determines whose samples they are: the request has no name.
    assert run.show(1, files()[0]).status_code == 204
    assert [each["name"] for each in run.listed()["members"]] == ["site-1"]


# -- withdrawn


def everything(coordinator: Coordinator) -> bytes:
    """Return all bytes of the database's files."""
    folder = coordinator.context.settings.data_dir
    return b"".join(path.read_bytes() for path in folder.glob("veilgp.sqlite*"))


def test_a_withdrawal_is_at_once_for_good_and_leaves_no_octet_behind(run: Opened) -> None:
    for i in range(3):
        run.show(i)
    check(run.ask(), 0, 1, 2)
    traces = [finished()[2][i].samples[1, 3:9].numpy().tobytes() for i in (0, 1)]
    assert all(trace in everything(run.coordinator) for trace in traces)
    assert run.withdraw(0).status_code == 204
    check(run.ask(), 1, 2)
    left = everything(run.coordinator)
    assert traces[0] not in left
    assert traces[1] in left
    assert code(run.show(0)) == (409, "samples.withdrawn")
    assert run.withdraw(0).status_code == 204  # the same again
    check(run.ask(), 1, 2)
    for i in (1, 2):
        run.withdraw(i)
    assert code(run.ask()) == (422, "model.not_fitted")
    assert not run.coordinator.app.state.predictor._open._kept


def test_a_withdrawal_while_samples_are_read_leaves_none_of_them_in_memory(
    run: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.show(0)
    read = open_samples.load

    def interrupted(*given: Any) -> open_samples.LoadedSamples:
        found = read(*given)
        with run.coordinator.context.database.changing() as connection:
            open_samples.withdraw(connection, run.session, run.sites[0].identity.key, now=0.0)
        run.coordinator.app.state.predictor.close(run.session)
        return found

    monkeypatch.setattr(open_samples, "load", interrupted)
    check(run.ask(), 0)  # requested before the withdrawal
    assert not run.coordinator.app.state.predictor._open._kept
    assert code(run.ask()) == (422, "model.not_fitted")


def test_a_member_withdraws_before_it_has_shown_anything_and_also_when_it_is_suspended(
    run: Opened,
) -> None:
    assert run.withdraw(0).status_code == 204
    assert code(run.show(0)) == (409, "samples.withdrawn")
    assert run.show(1).status_code == run.show(2).status_code == 204
    path = f"/sessions/{run.session}/members/site-1"
    assert run.coordinator.admin("PATCH", path, {"status": "suspended"}).status_code == 200
    check(run.ask(), 2)  # samples of suspended members are not used
    assert code(run.show(1))[1] == "member.suspended"
    assert run.withdraw(1).status_code == 204
    assert run.coordinator.admin("PATCH", path, {"status": "approved"}).status_code == 200
    check(run.ask(), 2)


def test_nobody_withdraws_for_another(run: Opened) -> None:
    run.show(0)
    target = f"/sessions/{run.session}/samples"
    assert Site(run.coordinator).send("DELETE", target).status_code == 404
    assert run.coordinator.admin("DELETE", target).status_code == 401
    header = run.sites[1].header("DELETE", target)
    run.coordinator.request("DELETE", target, headers={"Authorization": header})
    check(run.ask(), 0)
    replayed = run.coordinator.request("DELETE", target, headers={"Authorization": header})
    assert replayed.status_code == 401


def test_with_a_model_go_the_samples_that_were_shown_for_it(run: Opened) -> None:
    run.show(0)
    run.withdraw(1)
    check(run.ask(), 0)
    assert run.coordinator.admin("DELETE", f"/models/{run.model}").status_code == 204
    assert not run.coordinator.app.state.predictor._open._kept
    with run.coordinator.context.database.reading() as connection:
        left = connection.execute(select(tables.open_samples.c.withdrawn_at)).scalars().all()
    assert [each is None for each in left] == [False]
    assert code(run.show(2)) == (409, "samples.not_asked")


def test_damaged_samples_do_not_predict(run: Opened) -> None:
    run.show(0)
    with run.coordinator.context.database.changing() as connection:
        connection.execute(update(tables.open_samples).values(body=files()[0][:-1]))
    assert code(run.ask()) == (500, "model.damaged")


# -- every store, and two of them


@EVERY_STORE
def test_samples_are_kept_served_and_withdrawn_on_every_store(tmp_path: Path, store: Store) -> None:
    with Coordinator(tmp_path, **store) as coordinator:
        run = opened(coordinator)
        for i in (0, 1):
            assert run.show(i).status_code == 204
        check(run.ask(), 0, 1)
        assert run.withdraw(1).status_code == 204
        check(run.ask(), 0)
        with coordinator.context.database.reading() as connection:
            bodies = connection.execute(select(tables.open_samples.c.body)).scalars().all()
        assert sorted(body is None for body in bodies) == [False, True]


def test_what_was_withdrawn_at_one_replica_no_other_predicts_with(
    postgres: Postgres, tmp_path: Path
) -> None:
    with (
        postgres.database() as url,
        Coordinator(tmp_path / "a", database_url=url) as one,
        Coordinator(tmp_path / "b", database_url=url) as other,
    ):
        other.clock.now = one.clock.now
        one.token = other.token
        run = opened(one)
        for i in range(3):
            run.show(i)
        for replica in (one, other):
            check(run.ask(replica), 0, 1, 2)  # both have it in memory
            replica.app.state.predictor.close = lambda _: None  # and receive no notices
        for gone, left in ((1, (0, 2)), (2, (0,))):
            assert run.withdraw(gone).status_code == 204
            for replica in (other, one):
                check(run.ask(replica), *left)
        # A replica that receives a notice frees the memory without a request.
        del other.app.state.predictor.close
        assert run.withdraw(0).status_code == 204
        until = time.monotonic() + 30
        while other.app.state.predictor._open._kept and time.monotonic() < until:
            time.sleep(0.05)
        assert not other.app.state.predictor._open._kept


# -- the SDK's own requests


def answered(effects: Effects[Any], coordinator: Coordinator) -> None:
    """Let the coordinator answer the SDK's requests."""
    answer = None
    while True:
        try:
            effect = effects.send(answer)
        except StopIteration:
            return
        assert not isinstance(effect, Pause)
        answer = _reply(effect, coordinator)


def _reply(call: Call, coordinator: Coordinator) -> Reply:
    body = b"".join(bytes(part) for part in call.parts)
    response = coordinator.request(
        call.method, call.target, headers=dict(call.headers), content=body
    )
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(response.status_code, headers, response.content)


def test_the_hospitals_software_shows_and_withdraws_here(run: Opened) -> None:
    now = datetime.fromtimestamp(run.coordinator.clock.now, UTC)
    exchange = Exchange(run.sites[0].identity, host=HOST, clock=Clock(now=lambda: now))
    answered(exchange.put(run.target, files()[0]), run.coordinator)
    check(run.ask(), 0)
    answered(exchange.delete(f"/sessions/{run.session}/samples"), run.coordinator)
    assert code(run.ask()) == (422, "model.not_fitted")

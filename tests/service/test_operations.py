"""Operators can see the coordinator's health, and nobody's data."""

import json
import logging
import logging.config
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import event, text

from service import readiness
from service.http.logs import JsonLines, TextLines, about_request, configuration
from service.http.metrics import Metrics
from service.http.shared_check import KEPT_S
from service.http.tokens import Role, issue
from tests.service.coordinator import Coordinator
from tests.service.programs import WHOLE
from tests.service.sites import Site, session_of, start, stop_engine, work

LABELS = {"method", "route", "status", "queue", "le"}


def scraped(coordinator: Coordinator) -> str:
    answer = coordinator.admin("GET", "/metrics")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    return answer.text


def value(figures: str, series: str) -> float:
    (found,) = [line for line in figures.splitlines() if line.startswith(f"{series} ")]
    return float(found.rpartition(" ")[2])


# -- readiness


def test_a_coordinator_that_has_all_it_needs_is_ready(coordinator: Coordinator) -> None:
    answer = coordinator.request("GET", "/readyz")
    assert answer.status_code == 200
    assert set(answer.json()["checks"]) == {"database", "migrations", "disk", "engine"}
    assert set(answer.json()["checks"].values()) == {"ok"}


def test_what_is_missing_makes_it_unready(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing() -> set[str]:
        coordinator.clock.now += KEPT_S
        answer = coordinator.request("GET", "/readyz")
        assert answer.status_code == 503
        assert answer.json()["code"] == "not_ready"
        named: str = answer.json()["detail"].partition(".")[0]
        return set(named.removeprefix("Failing checks: ").split(", "))

    with coordinator.context.database.changing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'older'"))
    assert failing() == {"migrations"}
    monkeypatch.setattr(readiness, "LEAST_FREE", 1 << 62)
    assert failing() == {"migrations", "disk"}
    stop_engine(coordinator)
    assert failing() == {"migrations", "disk", "engine"}
    assert coordinator.request("GET", "/healthz").status_code == 200


@pytest.mark.parametrize("path", ["/readyz", "/healthz", "/v2/health/ready"])
def test_however_many_ask_the_database_is_asked_once_a_second(
    coordinator: Coordinator, path: str
) -> None:
    asked = 0

    def count(*_: object) -> None:
        nonlocal asked
        asked += 1

    event.listen(coordinator.context.database.engine, "engine_connect", count)

    def ask_many() -> int:
        nonlocal asked
        asked = 0
        together = [coordinator.begin("GET", path) for _ in range(20)]
        assert {coordinator.finish(each).status_code for each in together} == {200}
        assert coordinator.request("GET", path).status_code == 200
        return asked

    coordinator.clock.now += KEPT_S  # other tests' requests
    assert ask_many() == 1
    assert ask_many() == 0
    coordinator.clock.now += KEPT_S
    assert ask_many() == 1


# -- metrics


def test_figures_tell_what_the_coordinator_does(coordinator: Coordinator) -> None:
    sites = session_of(coordinator)
    start(coordinator, sites[0].session)
    work(sites)
    coordinator.admin("GET", "/no/such/place")
    figures = scraped(coordinator)
    assert value(figures, 'veilgp_runs{status="done"}') == 1
    assert value(figures, 'veilgp_runs{status="failed"}') == 0
    assert value(figures, "veilgp_sums") == 3
    route = "/sessions/{session_id}/runs"
    assert value(figures, _requests("POST", route, 201)) == 1
    assert value(figures, _requests("GET", "none", 404)) == 1
    for queue in ("long_polls", "predictions", "runs_at_work"):
        assert value(figures, f'veilgp_queue{{queue="{queue}"}}') >= 0


def _requests(method: str, route: str, status: int) -> str:
    return f'veilgp_requests_total{{method="{method}",route="{route}",status="{status}"}}'


def test_predicted_rows_are_counted(coordinator: Coordinator) -> None:
    sites = session_of(coordinator)
    start(coordinator, sites[0].session)
    work(sites)
    assert sites[0].outcome is not None
    records = [{"age": 40, "ward": "medical", "lactate": 1.0}] * 3
    body = {"model": sites[0].outcome["model"], "records": records}
    answer = coordinator.admin("POST", "/predict", body)
    assert answer.status_code == 200, answer.text
    assert value(scraped(coordinator), "veilgp_predicted_rows_total") == 3


def test_no_label_names_anything_and_no_members_request_is_timed(coordinator: Coordinator) -> None:
    sites = session_of(coordinator)
    run = start(coordinator, sites[0].session)
    work(sites)
    figures = scraped(coordinator)
    assert set(re.findall(r'[{,](\w+)="', figures)) <= LABELS
    for secret in (sites[0].session, run, *(site.name for site in sites)):
        assert secret not in figures
    timed = {line for line in figures.splitlines() if line.startswith("veilgp_request_seconds")}
    assert timed
    assert not any("/next" in line or "/vectors" in line or "/messages" in line for line in timed)


def test_no_request_to_a_route_that_members_call_is_timed(coordinator: Coordinator) -> None:
    members_own, readable = set(), set()
    for path, operations in coordinator.app.openapi()["paths"].items():
        for method, operation in operations.items():
            schemes = {scheme for each in operation.get("security", ()) for scheme in each}
            if "member" in schemes:
                (members_own if schemes == {"member"} else readable).add(operation["operationId"])
                coordinator.request(method.upper(), re.sub(r"{\w+}", str(uuid4()), path))
                labels = {"method": method.upper(), "route": path}
                registry = coordinator.app.state.metrics.registry
                assert registry.get_sample_value("veilgp_request_seconds_count", labels) is None
    assert members_own == {
        "enrolMember",
        "getMembership",
        "reportRefusal",
        "getNextItem",
        "downloadState",
        "downloadTotal",
        "downloadModelToEndorse",
        "downloadArchive",
        "sendMessage",
        "sendSealedState",
        "handOverModel",
        "uploadVector",
        "uploadUnmaskedSamples",
        "withdrawUnmaskedSamples",
    }
    assert readable == {"getModelCard", "downloadModel", "downloadCertificate"}


def test_figures_are_the_admins_unless_they_are_open(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    with coordinator.context.database.changing() as connection:
        caller = issue(connection, Role.CALLER, "ward", now=coordinator.clock(), models=["m"])
    assert coordinator.request("GET", "/metrics").status_code == 401
    assert coordinator.bearer(caller.secret, "GET", "/metrics").status_code == 403
    with Coordinator(tmp_path / "open", open_metrics=True) as opened:
        assert opened.request("GET", "/metrics").status_code == 200


def test_each_application_counts_for_itself() -> None:
    first, second = Metrics(), Metrics()
    first.predicted.inc(5)
    assert second.registry.get_sample_value("veilgp_predicted_rows_total") == 0


# -- logs


@pytest.fixture
def written(request: pytest.FixtureRequest) -> Iterator[StringIO]:
    """Everything that `veilgp serve --log-format json --log-level debug` would log."""
    root, service = logging.getLogger(), logging.getLogger("service")
    before = root.handlers[:], root.level, service.level
    logging.config.dictConfig(configuration("json", "debug"))
    stream = StringIO()
    (handler,) = root.handlers
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(stream)
    yield stream
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    service.setLevel(before[2])


@pytest.mark.full
def test_the_log_of_a_whole_run_has_ids_and_nothing_of_any_site(
    written: StringIO, tmp_path: Path
) -> None:
    with Coordinator(tmp_path) as coordinator:
        sites: list[Site] = session_of(coordinator, WHOLE)
        run = start(coordinator, sites[0].session)
        work(sites)
        coordinator.request("POST", "/sign-in", data={"token": coordinator.token})
        refused = start(coordinator, sites[0].session)
        why = {"run": refused, "code": "policy.rows", "detail": "a detail of the site"}
        assert (
            sites[1].send("POST", f"/sessions/{sites[1].session}/refusals", why).status_code < 300
        )
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    ended = [line for line in lines if line["message"].startswith("the run is")]
    assert [(line["run"], line["session"]) for line in ended] == [
        (run, sites[0].session),
        (refused, sites[0].session),
    ]
    asked = [line for line in lines if line["message"].startswith("POST /sessions/{session_id}")]
    assert asked
    assert all(len(line["request"]) == 32 for line in asked)
    everything = written.getvalue()
    secrets = [coordinator.token, "vgp_", "Authorization", "a detail of the site"]
    secrets += [site.name for site in sites] + [site.identity.key.hex() for site in sites]
    # Cells of the tables, with all their digits.
    for site in sites:
        for column in site.table.values():
            secrets += [str(cell) for cell in column if len(str(cell)) > 6]
    assert [secret for secret in secrets if secret in everything] == []


def test_an_error_is_told_by_kind_and_place_not_by_what_it_quotes() -> None:
    def fail() -> None:
        raise ValueError("lactate 17.25 of patient 4711")

    for formatter in (JsonLines(), TextLines()):
        try:
            fail()
        except ValueError as error:
            record = logging.LogRecord(
                "service.x", logging.ERROR, __file__, 1, "it failed", (), (ValueError, error, None)
            )
        told = formatter.format(record)
        assert "ValueError" in told
        assert "in fail" in told
        assert "4711" not in told


def test_a_failing_request_is_found_by_its_id(written: StringIO, coordinator: Coordinator) -> None:
    @coordinator.app.get("/broken")
    def broken() -> None:
        raise ValueError("patient 4711")

    answer = coordinator.request("GET", "/broken")
    assert answer.status_code == 500
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    (failed,) = [line for line in lines if line["message"].endswith(" failed")]
    assert failed["request"] == answer.headers["X-Request-Id"]
    assert "4711" not in written.getvalue()


def test_what_is_no_id_is_not_written_as_one(written: StringIO) -> None:
    with about_request("x\nforged"):
        logging.getLogger("service.x").info("told", extra={"run": "x\nforged"})
    (line,) = [json.loads(line) for line in written.getvalue().splitlines()]
    assert "forged" not in str(line)

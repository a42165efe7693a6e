"""A run over HTTP: the numbers of a simulation, and answers only for the right members."""

from typing import Any

import pytest
from sqlalchemy import select

from kernels.rounds.program import Program
from kernels.rounds.registry import restore
from kernels.rounds.run_kinds import Kind, program_of
from service.database.tables import metadata
from service.routes.rounds import MAX_MESSAGE
from tests.service.coordinator import Coordinator
from tests.service.programs import TINY, WHOLE, model_bytes, simulated
from tests.service.sites import (
    advance,
    session_of,
    shown,
    start,
    stop_engine,
    stored_model,
    until,
    work,
)


def rows(coordinator: Coordinator) -> dict[str, list[Any]]:
    """Return everything in the database except members' nonces."""
    with coordinator.context.database.reading() as connection:
        return {
            table.name: list(connection.execute(select(table)))
            for table in metadata.sorted_tables
            if table.name != "nonces"
        }


def test_a_run_gives_the_model_of_a_simulation_to_the_last_bit(coordinator: Coordinator) -> None:
    sites = session_of(coordinator, WHOLE)
    run = start(coordinator, sites[0].session)
    work(sites)
    assert stored_model(coordinator, sites[0]) == model_bytes(simulated(WHOLE))
    done = shown(coordinator, run)
    assert done["status"] == "done"
    assert done["progress"] == {"stage": 4, "stages": 5, "algorithm": "evaluation", "sums": 9}
    assert [(each["algorithm"], each["step"]) for each in done["metrics"]] == [
        ("exact", 0),
        ("exact", 1),
    ]
    assert all(site.outcome == sites[0].outcome for site in sites)


@pytest.mark.parametrize("kind", [Kind.LINEAR, Kind.EVALUATE, Kind.UPDATE])
def test_a_run_goes_on_from_an_earlier_ones_model(coordinator: Coordinator, kind: Kind) -> None:
    sites = session_of(coordinator)
    start(coordinator, sites[0].session)
    work(sites)
    first = stored_model(coordinator, sites[0])
    assert sites[0].outcome is not None
    start(coordinator, sites[0].session, kind, model=sites[0].outcome["model"])
    for site in sites:
        site.__dict__.pop("rows", None)
    work(sites)
    expected = simulated(program_of(kind, TINY), model=restore(first))
    assert stored_model(coordinator, sites[0]) == model_bytes(expected)


@pytest.mark.parametrize("by_alias", [False, True])
def test_a_run_starts_from_its_own_sessions_models_only(
    coordinator: Coordinator, by_alias: bool
) -> None:
    sites, others = session_of(coordinator), session_of(coordinator)
    start(coordinator, others[0].session)
    work(others)
    assert others[0].outcome is not None
    name = model = others[0].outcome["model"]
    if by_alias:
        name = "stay"
        coordinator.admin("PUT", f"/models/aliases/{name}", {"model": model})
    run = {"kind": "evaluate", "model": name}
    response = coordinator.admin("POST", f"/sessions/{sites[0].session}/runs", run)
    assert (response.status_code, response.json()["code"]) == (404, "not_found")
    start(coordinator, others[0].session, "evaluate", model=name)


def test_what_is_repeated_reordered_or_anothers_changes_nothing(coordinator: Coordinator) -> None:
    stop_engine(coordinator)
    sites = session_of(coordinator)
    run = start(coordinator, sites[0].session)
    seen = 0
    for kind in ("adverts", "task", "proposal", "certificate", "task"):
        until(sites, kind, run)
        before = rows(coordinator)
        for site in sites:
            for target, body in site.sent:
                assert site.post(target, body).status_code in (204, 409)
                stranger = sites[(sites.index(site) + 1) % 3]
                assert stranger.post(target, body).status_code in (409, 422)
                # A vector's header shows that it was already added, or that it is too late.
                known = (204, 409) if target.endswith("vectors") else (422,)
                assert site.post(target, body[:-1]).status_code in known
                assert site.post(target, body + b"x").status_code in known
                seen += 1
        assert rows(coordinator) == before
    assert seen > 30


def test_a_repeat_of_what_was_just_accepted_is_acknowledged(coordinator: Coordinator) -> None:
    stop_engine(coordinator)
    sites = session_of(coordinator)
    run = start(coordinator, sites[0].session)
    for kind in ("opening", "adverts", "task", "proposal", "certificate"):
        until(sites, kind, run)
        sites[0].work()
        target, body = sites[0].sent[-1]
        assert sites[0].post(target, body).status_code == 204
    advance(coordinator, run)
    assert sites[0].next() is None


def test_what_comes_too_late_is_a_conflict_after_which_a_member_asks_what_is_next(
    coordinator: Coordinator,
) -> None:
    stop_engine(coordinator)
    sites = session_of(coordinator)
    run = start(coordinator, sites[0].session)
    for kind in ("adverts", "task", "proposal", "certificate", "task"):
        until(sites, kind, run)
    answers = [sites[0].post(*sent) for sent in sites[0].sent]
    late = [answer.json()["code"] for answer in answers if answer.status_code == 409]
    assert {answer.status_code for answer in answers} == {204, 409}
    # The vector, the signature and the keys of the first sum; advert and boxes are still known.
    assert late == ["collection.out_of_order"] * 3


def test_an_advert_of_an_epoch_that_was_given_up_is_too_late(coordinator: Coordinator) -> None:
    stop_engine(coordinator)
    sites = session_of(coordinator)
    run = start(coordinator, sites[0].session)
    until(sites, "adverts", run)
    advance(coordinator, run, seconds=coordinator.context.settings.restart_after_s + 1)
    response = sites[0].post(*sites[0].sent[0])
    assert (response.status_code, response.json()["code"]) == (409, "epoch.other_advert")


def test_a_vector_is_refused_by_its_sizes_and_header_before_it_is_read(
    coordinator: Coordinator,
) -> None:
    stop_engine(coordinator)
    sites = session_of(coordinator)
    site = sites[0]
    run = start(coordinator, site.session)
    until(sites, "task", run)
    item = site.next()
    assert item is not None
    body = site.vector(item)
    target = f"/sessions/{site.session}/runs/{run}/vectors"
    head = 4 + int.from_bytes(body[:4], "big")
    before = rows(coordinator)
    refused = {
        "header": (b"\0\xff\xff\xff" + body[4:], 413, "request.too_large"),
        "version": (body[:4] + b"\7" + body[5:], 422, "securesum.version"),
        "signature": (
            body[: head - 1] + bytes([body[head - 1] ^ 1]) + body[head:],
            422,
            "collection.forged",
        ),
        "short": (body[:-8], 422, "collection.body"),
        "long": (body + bytes(8), 422, "collection.body"),
        "empty": (b"", 411, "request.length"),
    }
    for name, (changed, status, code) in refused.items():
        response = site.post(target, changed)
        assert (response.status_code, response.json()["code"]) == (status, code), name
    wrong = {"Content-Length": str(len(body) + 8)}
    assert site.post(target, body, **wrong).json()["code"] in ("request.length", "collection.body")
    for huge in (str(1 << 40), "9" * 5_000):  # Python refuses to parse a number with 5,000 digits
        assert site.post(target, body, **{"Content-Length": huge}).status_code == 413
    signed_otherwise = site.header("POST", target, body[:-8] + bytes(8))
    headers = {"Authorization": signed_otherwise}
    response = coordinator.request("POST", target, headers=headers, content=body)
    assert response.json()["code"] == "request.body"
    assert rows(coordinator) == before
    assert site.post(target, body).status_code == 204


def test_a_message_beyond_its_limit_is_not_read(coordinator: Coordinator) -> None:
    site, *_ = session_of(coordinator)
    run = start(coordinator, site.session)
    target = f"/sessions/{site.session}/runs/{run}/messages"
    assert site.post(target, bytes(MAX_MESSAGE + 1)).status_code == 413
    assert site.post(target, b"").json()["code"] == "securesum.kind"
    assert site.post(target, b"\1\2").json()["code"] == "securesum.kind"


def test_a_member_sees_no_run_of_another_session(coordinator: Coordinator) -> None:
    site, *_ = session_of(coordinator)
    other, *_ = session_of(coordinator)
    run = start(coordinator, other.session)
    assert site.next() is None
    assert site.send("GET", f"/sessions/{other.session}/next").status_code == 404
    assert site.send("GET", f"/sessions/{site.session}/next?run={run}").status_code == 404
    digest = "0" * 64
    for where in (f"runs/{run}/states/{digest}", f"next?run={run}"):
        assert site.send("GET", f"/sessions/{site.session}/{where}").status_code == 404
    assert site.post(f"/sessions/{site.session}/runs/{run}/messages", b"\1\3").status_code == 422


def test_a_run_needs_the_least_cohort_of_approved_members(
    coordinator: Coordinator,
) -> None:
    sites = session_of(coordinator)
    with coordinator.context.database.changing() as connection:
        table = metadata.tables["members"]
        one = sites[2].identity.key
        connection.execute(table.update().where(table.c.key == one).values(status="pending"))
    response = coordinator.admin("POST", f"/sessions/{sites[0].session}/runs", {"kind": "train"})
    assert response.json()["code"] == "run.too_few_members"


def test_storage_does_not_grow_with_the_sums(coordinator: Coordinator) -> None:
    stop_engine(coordinator)
    sites = session_of(coordinator)
    run = start(coordinator, sites[0].session)
    most: dict[str, int] = {}
    of_run = ("run_messages", "slots", "slot_totals", "totals")
    while any(site.outcome is None for site in sites):
        for site in sites:
            site.work()
            found = rows(coordinator)
            most |= {name: max(most.get(name, 0), len(found[name])) for name in of_run}
        advance(coordinator, run)
    # Three adverts, boxes (in the first slot), headers and keys; signatures of a quorum of two.
    assert most == {"run_messages": 4 * 3 + 2, "slots": 1, "slot_totals": 1, "totals": 1}
    left = rows(coordinator)
    assert [len(left[name]) for name in of_run] == [0, 0, 0, 1]
    assert left["runs"][0].state is None


def test_programs_of_kinds_are_parts_of_the_sessions(coordinator: Coordinator) -> None:
    def names(kind: Kind, program: Program) -> list[str]:
        return [algorithm.NAME for algorithm, _ in program_of(kind, program).algorithms()]

    assert names(Kind.TRAIN, WHOLE) == [a.NAME for a, _ in WHOLE.algorithms()]
    assert names(Kind.LINEAR, WHOLE) == ["linear", "recalibration", "evaluation"]
    assert names(Kind.EVALUATE, WHOLE) == ["evaluation"]
    assert names(Kind.UPDATE, WHOLE) == ["update", "recalibration", "evaluation"]
    assert names(Kind.UPDATE, TINY) == ["update"]

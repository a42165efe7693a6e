"""Samples of a hospital's own model leave only if its policy allows it, once, until withdrawn."""

import hashlib
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
import torch
from typer.testing import CliRunner

from client_sdk.errors import NotACoordinator, SessionError, Unreachable
from client_sdk.events import (
    UnmaskedSamplesAsked,
    UnmaskedSamplesLeft,
    UnmaskedSamplesNotTaken,
    VectorLeft,
)
from client_sdk.gate import policy_draft
from client_sdk.gate.disclosure import Disclosure
from client_sdk.gate.policy import Policy
from client_sdk.home.home import Home
from client_sdk.home.remembered import UnmaskedSamples
from client_sdk.network.exchange import Call, Lost, Reply
from client_sdk.network.transport import run
from client_sdk.simulation import simulate, site_of_home
from client_sdk.terminal.command import application
from client_sdk.withdrawal import withdraw
from kernels.model.noise_plan import NoisePlan
from kernels.rounds.columns import moments
from kernels.rounds.ensemble import predictive
from kernels.rounds.ensemble.open_ensemble import OpenSamples, samples_of
from kernels.rounds.layer import linear
from kernels.rounds.program import Program
from privacy.securesum.records import Step
from privacy.securesum.terms import default_terms
from tests.client_sdk.coordinator import ORIGIN, SmallCoordinator
from tests.client_sdk.hospitals import Hospital, Killed, drafted, drive, permissive
from tests.client_sdk.test_joining import over_http
from tests.dealing import home_keys
from tests.kernels.rounds import tables
from tests.kernels.rounds.ensemble.test_predictive import SPEC
from tests.service.programs import PRIVATE

PROGRAM = Program.from_json(tables.program(replace(SPEC, open=True)).to_json())
NAMES = ("A", "B", "C")
OPEN = permissive(PROGRAM, open_ensemble=True)
CLOSED = permissive(PROGRAM)

Made = tuple[SmallCoordinator, list[Hospital]]


@pytest.fixture
def made(homes: Path) -> Callable[..., Made]:
    """Two hospitals that allow unmasked samples and one that does not, by default."""

    def make(*policies: Policy) -> Made:
        coordinator = SmallCoordinator(PROGRAM, NAMES)
        keys = home_keys(homes, NAMES)
        coordinator.members.update(keys)
        coordinator.start()
        given = policies or (OPEN, OPEN, CLOSED)
        return coordinator, [
            Hospital(coordinator.link(i), homes / name, table, given[i], roster=keys)
            for i, (name, table) in enumerate(zip(NAMES, tables.tables(3), strict=True))
        ]

    return make


def kept(hospital: Hospital) -> list[UnmaskedSamples]:
    store = Home(hospital.path).read()
    try:
        return store.samples()
    finally:
        store.close()


def key(hospital: Hospital) -> bytes:
    return Home(hospital.path).identity().key


def events(hospital: Hospital, kind: type) -> list[Any]:
    return [event for event in hospital.events if isinstance(event, kind)]


def test_samples_leave_where_the_policy_says_so_and_every_hospital_is_in_the_sums(
    made: Callable[..., Made],
) -> None:
    coordinator, hospitals = made()
    drive(hospitals, coordinator)
    assert [hospital.error for hospital in hospitals] == [None] * 3
    assert set(coordinator.samples) == {key(each) for each in hospitals[:2]}
    for hospital in hospitals:
        assert len(events(hospital, VectorLeft)) == coordinator.done_sums
        assert events(hospital, UnmaskedSamplesAsked) == [
            UnmaskedSamplesAsked(hospital.policy.open_ensemble)
        ]
    assert not kept(hospitals[2])
    assert not events(hospitals[2], UnmaskedSamplesLeft)
    # They are those with which the hospital contributed, journaled as they were sent.
    simulated = simulate(
        PROGRAM, [site_of_home(PROGRAM, each.data, each.path) for each in hospitals], secure=False
    )
    state = predictive.State(replace(simulated.model, distilled=None), PROGRAM.stages[1])
    for hospital in hospitals[:2]:
        site = site_of_home(PROGRAM, hospital.data, hospital.path)
        body = coordinator.samples[key(hospital)]
        read = OpenSamples.from_bytes(body, PROGRAM)
        expected = samples_of(state, site)
        assert expected is not None
        assert torch.equal(read.samples, expected.samples)
        assert read.rows == expected.rows
        (own,) = kept(hospital)
        assert own.sha256 == hashlib.sha256(body).hexdigest()
        assert (own.octets, own.samples, own.body) == (len(body), 4, None)
        assert "NOT MASKED" in own.line()
        assert [event.sha256 for event in events(hospital, UnmaskedSamplesLeft)] == [own.sha256]


@pytest.mark.parametrize("delivered", [False, True])
def test_a_hospital_killed_while_they_leave_sends_the_same_octets_again(
    made: Callable[..., Made], delivered: bool
) -> None:
    coordinator, hospitals = made()
    seen: list[tuple[int, bytes]] = []

    def network(i: int, call: Call) -> Reply | Lost:
        if call.method == "PUT":
            seen.append((i, bytes(call.parts[0])))
            (own,) = kept(hospitals[i])  # written before anything left
            assert own.left_at is not None
            if sum(j == i for j, _ in seen) == 1:
                if delivered:
                    coordinator.answer(call)
                raise Killed
        return coordinator.answer(call)

    drive(hospitals, coordinator, network)
    assert [hospital.error for hospital in hospitals] == [None] * 3
    for i in (0, 1):
        first, second = (body for j, body in seen if j == i)
        assert first == second == coordinator.samples[key(hospitals[i])]
        assert len(kept(hospitals[i])) == 1


def test_a_policy_that_changed_its_mind_before_the_run_ended_keeps_them_here(
    made: Callable[..., Made],
) -> None:
    coordinator, hospitals = made()

    def network(i: int, call: Call) -> Reply | Lost:
        if i == 0 and call.target.startswith("/models/") and hospitals[0].policy == OPEN:
            hospitals[0].policy = CLOSED
            raise Killed  # restarted with another policy
        return coordinator.answer(call)

    drive(hospitals, coordinator, network)
    assert hospitals[0].error is None
    assert set(coordinator.samples) == {key(hospitals[1])}
    assert not kept(hospitals[0])


def test_a_run_that_makes_no_model_gets_no_samples_and_they_are_forgotten(
    made: Callable[..., Made],
) -> None:
    coordinator, hospitals = made()

    def network(i: int, call: Call) -> Reply | Lost:
        if coordinator.stage == 2:
            failed = {"status": "failed", "code": "run.deadline", "detail": "", "model": None}
            coordinator.outcome = failed
        return coordinator.answer(call)

    drive(hospitals, coordinator, network)
    assert not coordinator.samples
    for hospital in hospitals:
        with sqlite3.connect(hospital.path / "journal.sqlite") as db:
            assert db.execute("SELECT COUNT(*) FROM samples").fetchone() == (0,)
        db.close()


def test_a_coordinator_that_does_not_take_them_does_not_keep_the_model_away(
    made: Callable[..., Made],
) -> None:
    coordinator, hospitals = made()
    coordinator.withdrawn = {key(each) for each in hospitals}
    drive(hospitals, coordinator)
    assert all(hospital.finished is not None for hospital in hospitals)
    assert events(hospitals[0], UnmaskedSamplesNotTaken) == [
        UnmaskedSamplesNotTaken("samples.withdrawn")
    ]
    (own,) = kept(hospitals[0])
    assert own.refused == "samples.withdrawn"
    assert own.body is None


def test_a_proxy_that_lets_no_such_body_through_does_not_keep_the_model_away(
    made: Callable[..., Made],
) -> None:
    coordinator, hospitals = made()

    def proxy(_: int, call: Call) -> Reply | Lost:
        if call.method == "PUT":
            return Reply(413, {"content-type": "text/html"}, b"<h1>Request Entity Too Large</h1>")
        return coordinator.answer(call)

    drive(hospitals, coordinator, proxy)
    assert all(hospital.finished is not None for hospital in hospitals)
    (own,) = kept(hospitals[0])
    assert own.refused == NotACoordinator.code
    assert not coordinator.samples


# -- withdrawal


def withdrawn(coordinator: SmallCoordinator, hospital: Hospital) -> int:
    transport = httpx.MockTransport(over_http(coordinator))
    address = f"{ORIGIN}/sessions/{coordinator.session}"
    return withdraw(address, home=hospital.path, transport=transport)


def test_a_hospital_withdraws_long_after_the_run_and_again_and_its_log_says_so(
    made: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator, hospitals = made()
    drive(hospitals, coordinator)
    assert withdrawn(coordinator, hospitals[2]) == 0
    assert withdrawn(coordinator, hospitals[0]) == 1
    assert set(coordinator.samples) == {key(hospitals[1])}

    transport = httpx.MockTransport(over_http(coordinator))
    monkeypatch.setattr(
        "client_sdk.withdrawal.run",
        lambda effects, origin, **_: run(effects, origin, transport=transport),
    )
    home = ["--home", str(hospitals[0].path)]
    address = f"{ORIGIN}/sessions/{coordinator.session}"
    outcome = CliRunner().invoke(application(), ["withdraw", address, *home])
    assert outcome.exit_code == 0, outcome.output
    assert "1 run(s)" in outcome.output
    lines = CliRunner().invoke(application(), ["log", "--all", *home]).output
    assert lines.count("NOT MASKED") == lines.count("WITHDRAWN") == 1
    summary = CliRunner().invoke(application(), ["log", "--summary", *home]).output
    assert "NOT MASKED" in summary
    assert "1 withdrawn" in summary


def test_after_a_withdrawal_in_the_middle_of_a_run_no_octet_leaves(
    made: Callable[..., Made],
) -> None:
    """Also while the hospital's own process holds its home, and before the samples are drawn."""
    for stage in (1, 2):
        coordinator, hospitals = made()

        def network(
            i: int,
            call: Call,
            coordinator: SmallCoordinator = coordinator,
            hospitals: list[Hospital] = hospitals,
            stage: int = stage,
        ) -> Reply | Lost:
            if i == 0 and coordinator.stage == stage and not coordinator.withdrawn:
                withdrawn(coordinator, hospitals[0])
            assert not (i == 0 and call.method == "PUT")
            return coordinator.answer(call)

        drive(hospitals, coordinator, network)
        assert hospitals[0].error is None
        assert set(coordinator.samples) == {key(hospitals[1])}
        assert not kept(hospitals[0])
        for hospital in hospitals:
            (hospital.path / "journal.sqlite").unlink()
            (hospital.path / "identity.key").unlink()


def test_a_withdrawal_between_the_last_look_and_the_first_octet_holds(homes: Path) -> None:
    Home(homes).identity()
    store, other = Home(homes).read(), Home(homes).read()
    own = UnmaskedSamples("run", "session", 0, 1, 4, 9, 3, "ab", "cd", body=b"abc")
    store.commit(Step(None), samples=own)
    assert store.samples_to_send("run") == own
    other.withdraw_samples("session", "now")
    assert not store.samples_leave("run", "later")
    store.commit(Step(None), samples=own)
    assert store.samples_to_send("run") is None
    assert store.samples() == []
    store.close()
    other.close()


def test_a_withdrawal_between_two_attempts_ends_them_even_if_nobody_hears_of_it(
    made: Callable[..., Made],
) -> None:
    coordinator, hospitals = made()
    attempts = []

    def network(i: int, call: Call) -> Reply | Lost:
        if i == 0 and call.method == "PUT":
            attempts.append(call.target)
            if len(attempts) == 2:  # also on the hospital's other machine, which has no network
                store = Home(hospitals[0].path).read()
                store.withdraw_samples(str(coordinator.session), "now")
                store.close()
            return Lost("away")
        return coordinator.answer(call)

    drive(hospitals, coordinator, network)
    assert len(attempts) == 2
    assert hospitals[0].error is None
    assert hospitals[0].finished is not None
    (own,) = kept(hospitals[0])  # something may have left before
    assert (own.withdrawn_at, own.body) == ("now", None)
    assert not events(hospitals[0], UnmaskedSamplesLeft)


def test_a_withdrawal_that_nobody_hears_still_holds_here(made: Callable[..., Made]) -> None:
    coordinator, hospitals = made()
    drive(hospitals, coordinator)

    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("away", request=request)

    address = f"{ORIGIN}/sessions/{coordinator.session}"
    with pytest.raises(Unreachable):
        withdraw(address, home=hospitals[0].path, outage_s=0.0, transport=httpx.MockTransport(away))
    (own,) = kept(hospitals[0])
    assert own.withdrawn_at is not None
    with pytest.raises(SessionError, match="not joined"):
        withdraw(f"{ORIGIN}/sessions/{UUID(int=1)}", home=hospitals[0].path)


# -- what people are shown, and what the policy allows


def test_the_disclosure_and_the_draft_say_what_it_gives_away_and_leave_it_off() -> None:
    terms = default_terms(bytes(16), 3)
    told = str(Disclosure.of(PROGRAM, terms))
    assert "NOT MASKED" in told
    assert "open_ensemble = true" in told
    draft = policy_draft.draft(PROGRAM, terms)
    assert "\nopen_ensemble = false\n" in draft
    assert not drafted(PROGRAM, terms).open_ensemble
    silent = Program(PROGRAM.schema, PROGRAM.kernel, (moments.Spec(), linear.Spec()))
    assert "open_ensemble" not in policy_draft.draft(silent, terms)
    assert "NOT MASKED" not in str(Disclosure.of(silent, terms))


def test_a_policy_opens_by_name_until_it_expires_and_never_with_differential_privacy() -> None:
    today = date(2026, 11, 16)
    assert not Policy().allows_unmasked_samples(PROGRAM, today=today)
    assert OPEN.allows_unmasked_samples(PROGRAM, today=today)
    assert not OPEN.allows_unmasked_samples(tables.program(SPEC), today=today)
    assert not replace(OPEN, expires=today - timedelta(days=1)).allows_unmasked_samples(
        PROGRAM, today=today
    )
    private = replace(PRIVATE, privacy=NoisePlan(multipliers=(1.0,) * 3))
    assert not OPEN.allows_unmasked_samples(private, today=today)
    # Not even for a program that no constructor would allow.
    object.__setattr__(private, "stages", PROGRAM.stages)
    assert not OPEN.allows_unmasked_samples(private, today=today)

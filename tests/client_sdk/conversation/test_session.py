"""A hospital's part of a session, run against a real secure sum without a network."""

import hashlib
import random
import sqlite3
from dataclasses import replace
from functools import cache

import pytest

from client_sdk.errors import RunFailed, TooFewRows
from client_sdk.events import Approved, Enrolled, LeftOutWithoutTarget, RunOver, VectorLeft
from client_sdk.network.exchange import Call, Lost, Reply
from client_sdk.simulation import simulate
from kernels import storage
from kernels.rounds.program import Program
from privacy.securesum.coordinator import Coordinator
from privacy.securesum.masking import body_bytes
from tests.client_sdk.conftest import Make
from tests.client_sdk.coordinator import SmallCoordinator, problem
from tests.client_sdk.hospitals import Hospital, Killed, drive
from tests.dealing import DEALING
from tests.kernels.rounds.tables import tables


@cache
def expected_state(text: str) -> bytes:
    program = Program.from_json(text)
    return storage.encode(simulate(program, tables(3), DEALING, secure=False).states[-1])


def check_all_done(
    coordinator: SmallCoordinator, hospitals: list[Hospital], program: Program
) -> None:
    assert [h.error for h in hospitals] == [None] * len(hospitals)
    assert storage.encode(coordinator.state) == expected_state(program.to_json())
    assert all(h.finished is not None for h in hospitals)


def test_a_session_computes_what_simulate_computes_to_the_last_bit(
    make: Make, program: Program
) -> None:
    coordinator, hospitals = make()
    drive(hospitals, coordinator)
    check_all_done(coordinator, hospitals, program)
    for hospital in hospitals:
        assert hospital.finished is not None
        assert hospital.finished.artifact == coordinator.served
        left = [e for e in hospital.events if isinstance(e, VectorLeft)]
        assert len(left) == coordinator.done_sums
        assert any(isinstance(e, RunOver) and e.status == "done" for e in hospital.events)


def kind_of(call: Call) -> str:
    """Return a name for a request: the last part of its path and the kind of its message."""
    word = call.target.split("?")[0].rsplit("/", 1)[-1]
    return f"{word}/{bytes(call.parts[0])[1]}" if word == "messages" else word[:20]


@pytest.mark.parametrize("delivered", [False, True])
def test_a_hospital_killed_at_every_kind_of_request_goes_on_from_its_journal(
    make: Make, program: Program, delivered: bool
) -> None:
    coordinator, hospitals = make()
    killed: set[tuple[int, str]] = set()

    def network(i: int, call: Call) -> Reply | Lost:
        here = (i, kind_of(call))
        if i < 2 and here not in killed:
            killed.add(here)
            if delivered:
                coordinator.answer(call)
            raise Killed
        return coordinator.answer(call)

    drive(hospitals, coordinator, network)
    check_all_done(coordinator, hospitals, program)
    assert {"membership", "next", "vectors", "messages/3", "messages/6", "messages/11"} <= {
        kind for _, kind in killed
    }


@pytest.mark.parametrize("seed", range(2))
def test_kills_losses_and_restarts_at_random_change_nothing(
    make: Make, program: Program, seed: int
) -> None:
    coordinator, hospitals = make()
    dice = random.Random(seed)

    def network(i: int, call: Call) -> Reply | Lost:
        fate = dice.random()
        if fate < 0.05:
            raise Killed
        if fate < 0.1:
            return Lost("no connection")
        if fate < 0.13:
            return Reply(503, {}, b"<html>restarting</html>")
        if fate < 0.2:
            coordinator.sums = Coordinator.restore(coordinator.sums.save())
        reply = coordinator.answer(call)
        if fate > 0.97:
            raise Killed
        return Lost("no response in time") if fate > 0.94 else reply

    drive(hospitals, coordinator, network)
    check_all_done(coordinator, hospitals, program)


def test_octets_leave_only_after_they_are_on_the_disk_and_in_the_log(
    make: Make, program: Program
) -> None:
    coordinator, hospitals = make()
    checked = 0

    def network(i: int, call: Call) -> Reply | Lost:
        nonlocal checked
        if kind_of(call) == "vectors":
            body = b"".join(bytes(part) for part in call.parts)
            with sqlite3.connect(hospitals[i].path / "journal.sqlite") as other:
                rows = other.execute(
                    "SELECT sha256, octets, elements, algorithm FROM departures ORDER BY rowid"
                ).fetchall()
                vault = [c for (c,) in other.execute("SELECT content FROM vault")]
            other.close()
            size = int.from_bytes(body[:4], "big")
            assert rows[-1][:2] == (hashlib.sha256(body).hexdigest(), len(body))
            assert body_bytes(rows[-1][2]) == len(body) - 4 - size
            assert body[4 + size :] in vault
            checked += 1
        return coordinator.answer(call)

    drive(hospitals, coordinator, network)
    assert checked == 3 * coordinator.done_sums
    check_all_done(coordinator, hospitals, program)


def test_a_lost_answer_is_followed_by_the_same_octets(make: Make, program: Program) -> None:
    coordinator, hospitals = make()
    bodies: dict[tuple[int, str], list[bytes]] = {}

    def network(i: int, call: Call) -> Reply | Lost:
        if kind_of(call) != "vectors":
            return coordinator.answer(call)
        body = b"".join(bytes(part) for part in call.parts)
        sent = bodies.setdefault((i, str(coordinator.sums.slot.task.slot)), [])
        sent.append(body)
        if len(sent) == 1:
            raise Killed
        reply = coordinator.answer(call)
        return Lost("no response in time") if len(sent) == 2 else reply

    drive(hospitals, coordinator, network)
    check_all_done(coordinator, hospitals, program)
    assert len(bodies) == 3 * coordinator.done_sums
    for sent in bodies.values():
        assert len(sent) >= 2
        assert len(set(sent)) == 1


def test_rows_that_are_left_out_are_shown_before_there_are_too_few(make: Make) -> None:
    coordinator, hospitals = make()
    one = hospitals[0]
    data = {name: list(cells) for name, cells in tables(1)[0].items()}
    data["stay"][:2] = [None, None]
    one.data, one.policy = data, replace(one.policy, least_rows=10**6)
    drive(hospitals[:1], coordinator)
    assert isinstance(one.error, TooFewRows)
    assert [each for each in one.events if isinstance(each, LeftOutWithoutTarget)] == [
        LeftOutWithoutTarget(2)
    ]
    assert not any("2 rows" in str(each) for each in coordinator.refusals)


def test_a_hospital_downloads_no_state_that_it_can_compute(make: Make, program: Program) -> None:
    coordinator, hospitals = make()
    drive(hospitals, coordinator)
    check_all_done(coordinator, hospitals, program)
    assert not any("/states/" in path or "/totals/" in path for _, path in coordinator.log)


@pytest.mark.parametrize("status", [404, 409])
def test_a_total_that_is_no_longer_needed_makes_a_hospital_ask_what_is_next(
    make: Make, program: Program, status: int
) -> None:
    coordinator, hospitals = make()
    coordinator.with_item = 0
    gone: set[int] = set()

    def network(i: int, call: Call) -> Reply | Lost:
        if "/totals/" in call.target and i not in gone:
            gone.add(i)
            return problem(status, "not_found", "The run has gone on.")
        return coordinator.answer(call)

    drive(hospitals, coordinator, network)
    assert gone == {0, 1, 2}
    check_all_done(coordinator, hospitals, program)


def test_a_total_that_is_never_there_is_an_error_in_the_end(make: Make) -> None:
    coordinator, hospitals = make()
    coordinator.with_item = 0

    def network(_: int, call: Call) -> Reply | Lost:
        return problem(404, "not_found") if "/totals/" in call.target else coordinator.answer(call)

    drive(hospitals, coordinator, network)
    assert {getattr(h.error, "code", None) for h in hospitals} == {"not_found"}


def test_nothing_secret_is_left_on_the_disk_after_a_run(make: Make, program: Program) -> None:
    coordinator, hospitals = make()
    secrets: set[bytes] = set()

    def network(i: int, call: Call) -> Reply | Lost:
        if i == 0 and kind_of(call) == "next":
            with sqlite3.connect(hospitals[0].path / "journal.sqlite") as other:
                entries = other.execute("SELECT content FROM vault WHERE name LIKE 'epoch/%'")
                secrets.update(content for (content,) in entries)
            other.close()
        return coordinator.answer(call)

    drive(hospitals, coordinator, network)
    check_all_done(coordinator, hospitals, program)
    on_disk = b"".join(p.read_bytes() for p in hospitals[0].path.glob("journal.sqlite*"))
    assert len(secrets) >= 3
    assert not any(secret[2:66] in on_disk for secret in secrets)


def test_the_model_of_a_run_is_fetched_after_a_kill_at_its_end(
    make: Make, program: Program
) -> None:
    coordinator, hospitals = make()
    killed = False

    def network(i: int, call: Call) -> Reply | Lost:
        nonlocal killed
        if i == 0 and call.target.endswith("/artifact") and not killed:
            killed = True
            raise Killed
        return coordinator.answer(call)

    drive(hospitals, coordinator, network)
    assert killed
    check_all_done(coordinator, hospitals, program)


def test_a_second_run_of_the_session_is_joined_by_the_same_call(
    make: Make, program: Program
) -> None:
    coordinator, hospitals = make()
    drive(hospitals, coordinator)
    first = coordinator.run
    coordinator.start()
    coordinator.sums.seen = frozenset(coordinator.members.values())
    for hospital in hospitals:
        hospital.finished = None
    drive(hospitals, coordinator)
    check_all_done(coordinator, hospitals, program)
    assert hospitals[0].finished is not None
    assert hospitals[0].finished.run == str(coordinator.run) != str(first)


def test_a_run_that_failed_elsewhere_is_an_error_with_its_reason(make: Make) -> None:
    coordinator, hospitals = make()
    ended = {"status": "failed", "code": "deadline", "detail": "B never came\x1b[2J", "model": None}

    def network(i: int, call: Call) -> Reply | Lost:
        reply = coordinator.answer(call)
        if len(coordinator.uploads) == 2:
            coordinator.outcome = ended
        return reply

    drive(hospitals, coordinator, network)
    for hospital in hospitals:
        assert isinstance(hospital.error, RunFailed)
        assert hospital.error.reason == "deadline"
        assert "\x1b" not in str(hospital.error)
    # Its secrets are erased, its journal is kept, and a retry is a new run.
    coordinator.start()
    coordinator.sums.seen = frozenset(coordinator.members.values())
    for hospital in hospitals:
        hospital.error = None
    drive(hospitals, coordinator)
    assert [h.error for h in hospitals] == [None] * 3


def test_a_new_hospital_enrols_shows_its_fingerprint_and_waits_to_be_approved(
    make: Make, program: Program
) -> None:
    coordinator, hospitals = make()
    coordinator.members.clear()
    coordinator.approve, coordinator.run = False, None
    asked = 0

    def network(i: int, call: Call) -> Reply | Lost:
        nonlocal asked
        asked += kind_of(call) == "membership"
        if asked == 12:
            coordinator.approve = True
            coordinator.start()
        return coordinator.answer(call)

    drive(hospitals, coordinator, network)
    check_all_done(coordinator, hospitals, program)
    shown = [e for e in hospitals[0].events if isinstance(e, Enrolled | Approved)]
    assert [type(e) for e in shown] == [Enrolled, Approved]
    assert len(str(shown[0]).split("\n")[1].split()) == 8


def test_an_invitation_serves_one_hospital(make: Make) -> None:
    coordinator, hospitals = make()
    second = replace(hospitals[0], link=coordinator.link(1))
    drive([second], coordinator)
    assert getattr(second.error, "code", None) == "invitation_used"


def test_no_secret_of_a_link_is_in_any_repr_or_error(make: Make) -> None:
    coordinator, hospitals = make()
    coordinator.secrets.clear()
    coordinator.members.clear()
    seen: list[str] = []

    def network(i: int, call: Call) -> Reply | Lost:
        seen.append(repr(call))
        return coordinator.answer(call)

    drive(hospitals, coordinator, network)
    for hospital in hospitals:
        assert getattr(hospital.error, "code", None) == "invitation_invalid"
        seen += [repr(hospital.error), str(hospital.error), *map(str, hospital.events)]
    assert not any("secret-of" in text for text in seen)

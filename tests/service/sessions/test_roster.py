"""A hospital joins once, with an invitation, and takes part after its fingerprint is compared."""

import pytest
from sqlalchemy import insert

from service.database import tables
from service.errors import RosterFull
from service.http import long_poll
from service.sessions import invitations
from service.sessions.invitations import NewInvitation
from tests.service.coordinator import Coordinator, Hospital


@pytest.fixture
def session(coordinator: Coordinator) -> str:
    return coordinator.session()


def code(answer: object) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_from_the_link_to_the_roster(coordinator: Coordinator, session: str) -> None:
    path = f"/sessions/{session}"
    invited = coordinator.admin("POST", f"{path}/invitations", {"name": "Kiel"}).json()
    link, _, secret = invited["link"].partition("#")
    assert link == f"http://coordinator/join/{session}"
    hospital = Hospital(coordinator)
    own = {
        "name": "Kiel",
        "key": hospital.identity.key.hex(),
        "fingerprint": hospital.identity.fingerprint,
    }
    enrolled = hospital.enrol(session, secret)
    assert (enrolled.status_code, enrolled.json()) == (201, {**own, "status": "pending"})
    again = hospital.enrol(session, secret)
    assert (again.status_code, again.json()) == (200, {**own, "status": "pending"})
    assert hospital.membership(session).json()["roster"] == []
    approved = coordinator.admin("PATCH", f"{path}/members/Kiel", {"status": "approved"}).json()
    assert (approved["fingerprint"], approved["status"]) == (own["fingerprint"], "approved")
    seen = hospital.membership(session).json()
    assert seen["protocol"] == 2
    assert seen["member"] == {**own, "status": "approved"}
    assert seen["roster"] == [own]
    assert coordinator.admin("GET", f"{path}/roster").json() == {
        "session": session,
        "members": [{"name": "Kiel", "key": own["key"]}],
    }
    assert coordinator.admin("GET", path).json()["enrolled"] == {"approved": 1}


@pytest.mark.parametrize("decision", ["approved", "suspended"])
def test_a_pending_member_that_waits_hears_at_once_what_the_admin_decides(
    coordinator: Coordinator, session: str, decision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_poll, "LOOK_AGAIN_S", 60.0)
    hospital = Hospital(coordinator)
    hospital.enrol(session, coordinator.invite(session, "Kiel"))
    target = f"/sessions/{session}/membership?wait=25"
    waiting = coordinator.begin(
        "GET", target, headers={"Authorization": hospital.header("GET", target)}
    )
    assert hospital.membership(session).json()["member"]["status"] == "pending"
    while not coordinator.app.state.runs.wakeups.count:
        coordinator.admin("GET", "/sessions")
    assert not waiting.done()
    coordinator.admin("PATCH", f"/sessions/{session}/members/Kiel", {"status": decision})
    assert coordinator.finish(waiting).json()["member"]["status"] == decision
    assert hospital.send("GET", target).status_code == {"approved": 200, "suspended": 403}[decision]


def test_an_invitation_is_for_one_key(coordinator: Coordinator, session: str) -> None:
    secret = coordinator.invite(session, "Kiel")
    assert Hospital(coordinator).enrol(session, secret).status_code == 201
    thief = Hospital(coordinator)
    assert code(thief.enrol(session, secret)) == (409, "invitation.used")
    assert thief.membership(session).status_code == 404


def test_a_stranger_is_read_no_more_than_an_invitation(
    coordinator: Coordinator, session: str
) -> None:
    assert code(Hospital(coordinator).enrol(session, "x" * 4096)) == (413, "request.too_large")


def test_an_invitation_expires(coordinator: Coordinator, session: str) -> None:
    secret = coordinator.invite(session, "Kiel", expires_in_s=60)
    used = coordinator.invite(session, "Bonn", expires_in_s=60)
    bonn = Hospital(coordinator)
    assert bonn.enrol(session, used).status_code == 201
    coordinator.clock.now += 60
    assert code(Hospital(coordinator).enrol(session, secret)) == (403, "invitation.invalid")
    assert bonn.enrol(session, used).status_code == 200
    shown = coordinator.admin("GET", f"/sessions/{session}/invitations").json()
    assert [(each["name"], each["status"]) for each in shown] == [
        ("Bonn", "used"),
        ("Kiel", "expired"),
    ]


def test_an_invitation_can_be_revoked_until_it_is_used(
    coordinator: Coordinator, session: str
) -> None:
    path = f"/sessions/{session}/invitations"
    secret = coordinator.invite(session, "Kiel")
    (shown,) = coordinator.admin("GET", path).json()
    other = coordinator.session(name="Another")
    elsewhere = f"/sessions/{other}/invitations/{shown['id']}"
    assert coordinator.admin("DELETE", elsewhere).status_code == 404
    assert coordinator.admin("DELETE", f"{path}/{shown['id']}").status_code == 204
    assert code(Hospital(coordinator).enrol(session, secret)) == (403, "invitation.invalid")
    coordinator.approved(session, "Kiel")
    used = coordinator.admin("GET", path).json()
    used = next(each["id"] for each in used if each["status"] == "used")
    assert code(coordinator.admin("DELETE", f"{path}/{used}")) == (409, "invitation.used")


def test_a_secret_opens_its_own_session_only(coordinator: Coordinator, session: str) -> None:
    secret = coordinator.invite(session, "Kiel")
    other = coordinator.session(name="Another")
    hospital = Hospital(coordinator)
    there, nowhere = hospital.enrol(other, secret), hospital.enrol("no-such-session", secret)
    assert code(there) == (403, "invitation.invalid")
    assert there.json() == nowhere.json()


def test_names_and_keys_are_unique(coordinator: Coordinator, session: str) -> None:
    hospital = coordinator.approved(session, "Köln")
    path = f"/sessions/{session}/invitations"
    for name in ("Köln", "KÖLN", "Ko\u0308ln"):
        assert code(coordinator.admin("POST", path, {"name": name})) == (409, "name.taken")
    second = coordinator.invite(session, "Köln 2")
    assert code(hospital.enrol(session, second)) == (409, "member.key_known")
    assert code(coordinator.admin("POST", path, {"name": "köln 2"})) == (409, "name.taken")


def test_a_suspended_member_cannot_enrol_again(coordinator: Coordinator, session: str) -> None:
    secret, hospital = coordinator.invite(session, "Kiel"), Hospital(coordinator)
    assert hospital.enrol(session, secret).status_code == 201
    path = f"/sessions/{session}/members/Kiel"
    assert coordinator.admin("PATCH", path, {"status": "suspended"}).status_code == 200
    assert code(hospital.enrol(session, secret)) == (403, "member.suspended")


@pytest.mark.parametrize("status", ["pending", "Approved", "", None, 1])
def test_only_known_statuses_are_set(
    coordinator: Coordinator, session: str, status: object
) -> None:
    coordinator.approved(session, "Kiel")
    path = f"/sessions/{session}/members/Kiel"
    assert code(coordinator.admin("PATCH", path, {"status": status})) == (422, "request.fields")
    nobody = f"/sessions/{session}/members/Bonn"
    assert code(coordinator.admin("PATCH", nobody, {"status": "approved"})) == (404, "not_found")


def test_the_admin_sees_what_a_member_refuses(coordinator: Coordinator, session: str) -> None:
    hospital = coordinator.approved(session, "Kiel")
    refusal = {"code": "policy.algorithm", "detail": "The site's policy forbids fedavg."}
    path = f"/sessions/{session}/refusals"
    assert hospital.send("POST", path, {"run": None, **refusal}).status_code == 204
    (shown,) = coordinator.admin("GET", f"/sessions/{session}/members").json()
    assert shown["refusal"] == {**refusal, "at": "2027-01-15T08:00:00.000Z"}
    for wrong in ({"code": "<b>"}, {"detail": "\u001b[2J"}, {"detail": "x" * 2001}, {"rows": 5}):
        assert code(hospital.send("POST", path, {**refusal, **wrong})) == (422, "request.fields")


def test_a_session_has_at_most_200_members(coordinator: Coordinator, session: str) -> None:
    rows = [
        {
            "session_id": session,
            "key": number.to_bytes(32, "big"),
            "name": f"hospital {number}",
            "status": "approved",
            "enrolled_at": 0.0,
        }
        for number in range(200)
    ]
    with coordinator.context.database.changing() as connection:
        connection.execute(insert(tables.members), rows)
        with pytest.raises(RosterFull):
            invitations.create(connection, session, NewInvitation(name="Kiel"), now=0.0)


def test_links_begin_with_the_public_url(coordinator: Coordinator, session: str) -> None:
    settings = coordinator.context.settings.model_copy(update={"public_url": "https://gp.example"})
    object.__setattr__(coordinator.context, "settings", settings)
    path = f"/sessions/{session}/invitations"
    link = coordinator.admin("POST", path, {"name": "Kiel"}).json()["link"]
    assert link.startswith(f"https://gp.example/join/{session}#")

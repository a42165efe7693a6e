"""A34: a link with the id of a session and another address.

The id is in every link. Whoever answers at the other address first shows terms of their own, so
that the coordinator's are refused as changed; or has an enrolled hospital take part there. The link
is refused by name before anything is sent; a coordinator that has moved is accepted by a person.
"""

from dataclasses import replace
from typing import Any

import httpx
import pytest

from client_sdk.approval import approve_address
from client_sdk.errors import PolicyNotApproved, SessionChanged, SessionElsewhere, SessionError
from client_sdk.home.home import Home
from client_sdk.home.policies import Approval, Policies, sha256_of
from client_sdk.home.remembered import KnownRun
from client_sdk.joining import enrol, offered
from client_sdk.withdrawal import withdraw
from privacy.securesum.errors import ApprovalMissing
from privacy.securesum.records import Step
from tests.client_sdk.conftest import Make, homes, make, program
from tests.client_sdk.coordinator import HOST, ORIGIN, SmallCoordinator
from tests.client_sdk.hospitals import Hospital, drive
from tests.client_sdk.test_joining import over_http

__all__ = ["homes", "make", "program"]

ELSEWHERE = "veil.example.evil"
PHISHED = f"https://{ELSEWHERE}"


@pytest.fixture
def session(make: Make) -> tuple[SmallCoordinator, Hospital]:
    coordinator, hospitals = make()
    coordinator.members.clear()
    return coordinator, hospitals[0]


def at(coordinator: SmallCoordinator, hospital: Hospital) -> dict[str, Any]:
    transport = httpx.MockTransport(over_http(coordinator))
    return {"home": hospital.path, "transport": transport}


def nobody(hospital: Hospital) -> dict[str, Any]:
    """Return a network at which a request is a failure of the test."""

    def asked(request: httpx.Request) -> httpx.Response:
        raise AssertionError(f"{request.method} {request.url} was sent")

    return {"home": hospital.path, "transport": httpx.MockTransport(asked)}


def elsewhere(hospital: Hospital) -> str:
    assert ORIGIN in hospital.link
    return hospital.link.replace(ORIGIN, PHISHED)


def test_a_link_to_another_address_is_refused_before_anything_is_sent(
    session: tuple[SmallCoordinator, Hospital],
) -> None:
    coordinator, hospital = session
    enrol(hospital.link, **at(coordinator, hospital))
    joined = hospital.link.replace("/join/", "/sessions/").partition("#")[0]
    for ask in (offered, enrol, withdraw):
        for link in (elsewhere(hospital), joined.replace(ORIGIN, PHISHED)):
            with pytest.raises(SessionElsewhere) as refused:
                ask(link, **nobody(hospital))
            for said in (f"{ORIGIN}/", f"{PHISHED}/", "by telephone", "approve-address"):
                assert said in str(refused.value)
    # Nor does it take part there, and at the known address it is as it was.
    there = Hospital(elsewhere(hospital), hospital.path, hospital.data, hospital.policy)
    drive([there], coordinator, lambda _, call: pytest.fail(f"{call.target} was sent"))
    assert isinstance(there.error, SessionElsewhere)
    assert offered(joined, **at(coordinator, hospital)).membership.status == "approved"


def test_who_shows_other_terms_first_is_found_out_and_keeps_nobody_away(
    session: tuple[SmallCoordinator, Hospital],
) -> None:
    coordinator, hospital = session
    own = at(coordinator, hospital)
    Home(hospital.path).identity()
    assert coordinator.terms is not None
    true, coordinator.terms = coordinator.terms, replace(coordinator.terms, max_colluders=1)
    coordinator.host = ELSEWHERE
    enrol(elsewhere(hospital), **own)
    name, policies = str(coordinator.session), Policies(Home(hospital.path))
    policies.write(name, "least_rows = 1\n", replace=True)
    policies.approve(name, Approval(sha256_of(policies.text(name)), {}, "Dr Ada", "today"))
    coordinator.members.clear()
    coordinator.host, coordinator.terms = HOST, true
    for ask in (offered, enrol):
        with pytest.raises(SessionElsewhere, match="Ask the coordinator's operator"):
            ask(hospital.link, **nobody(hospital))
    assert approve_address(hospital.link, by="Dr Ada", home=hospital.path)
    # What was approved there is not approved here, and the other link is now the stranger's.
    with pytest.raises(PolicyNotApproved, match="nobody has approved"):
        policies.approved(name)
    with pytest.raises(SessionElsewhere):
        offered(elsewhere(hospital), **nobody(hospital))
    assert offered(hospital.link, **own).membership.status == "invited"
    assert enrol(hospital.link, **own).terms == true


def test_a_coordinator_that_moved_is_accepted_by_name_with_the_terms_that_are_known(
    session: tuple[SmallCoordinator, Hospital],
) -> None:
    coordinator, hospital = session
    own = at(coordinator, hospital)
    with pytest.raises(SessionError, match="does not know this session"):
        approve_address(elsewhere(hospital), by="Dr Ada", home=hospital.path)
    enrol(hospital.link, **own)
    with pytest.raises(ApprovalMissing, match="approved_by"):
        approve_address(elsewhere(hospital), by=" ", home=hospital.path)
    name = str(coordinator.session)
    with Home(hospital.path).open() as home:
        run = KnownRun("a-run", name, "train", "")
        home.store.commit(Step(None), run=run)
    assert not approve_address(elsewhere(hospital), by="Dr Ada", home=hospital.path)
    coordinator.host = ELSEWHERE
    assert offered(elsewhere(hospital), **own).membership.status == "approved"
    with pytest.raises(SessionElsewhere):
        offered(hospital.link, **nobody(hospital))
    # It has been in a run under these terms, so no address has others.
    assert coordinator.terms is not None
    coordinator.terms = replace(coordinator.terms, max_colluders=1)
    with pytest.raises(SessionChanged, match="max_colluders"):
        offered(elsewhere(hospital), **own)

"""A person reviews and approves; only then is the join link used, and for this hospital."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from client_sdk.errors import (
    ClientError,
    HomeDamaged,
    PolicyFileError,
    PolicyNotApproved,
    PolicyRefused,
    RosterFileError,
    SessionChanged,
)
from client_sdk.events import Disclosed, Event
from client_sdk.home.home import Home
from client_sdk.home.policies import Policies
from client_sdk.joining import join, offered
from client_sdk.network.exchange import Reply
from client_sdk.reviewing import noted, review
from client_sdk.session_approval import approve, approved
from kernels.errors import KernelsError
from kernels.rounds.program import Program
from tests.client_sdk.conftest import Make, homes, make, program
from tests.client_sdk.coordinator import SmallCoordinator
from tests.client_sdk.test_joining import over_http
from tests.kernels.rounds.tables import table

__all__ = ["homes", "make", "program"]


class Walk:
    """One hospital's walk from its identity to its approval, with a home of its own."""

    def __init__(self, coordinator: SmallCoordinator, home: Path) -> None:
        self.coordinator, self.home = coordinator, home
        self.link = coordinator.link(0)
        self.session = str(coordinator.session)
        self.net: dict[str, Any] = {
            "home": home,
            "transport": httpx.MockTransport(over_http(coordinator)),
        }
        own = Home(home).identity().key
        others = [Home(home / f"../other-{n}").identity().key for n in (1, 2)]
        self.roster = dict(zip(coordinator.names, (own, *others), strict=True))

    def draft(self) -> Path:
        offer = offered(self.link, **self.net)
        found = review(
            offer.program,
            offer.terms,
            table(400, seed=1),
            stated=offer.membership.program,
            home=self.home,
        )
        assert [str(each) for each in found.problems] == []
        assert found.dealt
        return Policies(Home(self.home)).write(self.session, found.text, replace=False)

    def approve(self, **changes: Any) -> str:
        given = {"roster": self.roster, "by": "Dr Ada", **self.net, **changes}
        return approve(self.link, **given).membership.status


@pytest.fixture
def walk(make: Make, tmp_path: Path) -> Walk:
    coordinator, _ = make()
    coordinator.members.clear()
    return Walk(coordinator, tmp_path / "own")


def test_the_walk_needs_no_names_of_files(walk: Walk) -> None:
    path = walk.draft()
    assert path.parent.parent == walk.home
    assert walk.coordinator.members == {}, "nobody is enrolled by reading and drafting"
    assert walk.approve() == "approved"
    assert list(walk.coordinator.members.values()) == [Home(walk.home).identity().key]
    policy, roster = approved(walk.session, home=walk.home)
    assert roster == walk.roster
    assert policy.programs
    assert (path.stat().st_mode & 0o077, path.parent.stat().st_mode & 0o077) == (0, 0)


def test_a_policy_counts_only_as_it_was_approved(walk: Walk) -> None:
    with pytest.raises(PolicyNotApproved, match="no policy for this session"):
        approved(walk.session, home=walk.home)
    path = walk.draft()
    with pytest.raises(PolicyNotApproved, match="nobody has approved"):
        approved(walk.session, home=walk.home)
    walk.approve()
    path.write_text(path.read_text() + "# one more line\n")
    with pytest.raises(PolicyNotApproved, match="changed since Dr Ada approved it"):
        approved(walk.session, home=walk.home)
    with pytest.raises(PolicyFileError, match="may have been edited"):
        Policies(Home(walk.home)).write(walk.session, "least_rows = 1\n", replace=False)
    walk.approve()
    assert approved(walk.session, home=walk.home)


def test_what_was_approved_in_full_is_said_once_more_in_short(walk: Walk) -> None:
    path = walk.draft()
    walk.approve()
    given: dict[str, Any] = {"roster": walk.roster, "policy": path, **walk.net}

    def disclosed() -> str:
        seen: list[Event] = []
        with pytest.raises((ClientError, KernelsError)):
            join(walk.link, {"age": [1.0]}, progress=seen.append, **given)
        (text,) = (str(event) for event in seen if isinstance(event, Disclosed))
        return text

    full = str(offered(walk.link, **walk.net).disclosure(walk.coordinator.program))
    short = disclosed()
    assert "as it was approved" in short
    assert "Known to the coordinator: at most" in short
    assert "Differential privacy: NO" in short
    assert len(short) < len(full) / 4
    path.write_text(path.read_text() + "# one more line\n")
    assert disclosed() == full, "what nobody has approved is said in full"


def test_what_is_refused_enrols_nobody(walk: Walk, tmp_path: Path) -> None:
    path = walk.draft()
    own, *others = walk.roster
    keys = walk.roster
    for roster, said in (
        ({name: keys[name] for name in others}, "this hospital's own key"),
        ({"Else": keys[own], **{name: keys[name] for name in others}}, "must use one name"),
        ({own: keys[own]}, "get the complete roster"),
    ):
        with pytest.raises(RosterFileError, match=said):
            walk.approve(roster=roster)
    file = tmp_path / "roster.json"
    file.write_text(json.dumps({"members": []}))
    with pytest.raises(RosterFileError):
        walk.approve(roster=file)
    path.write_text("least_cohort = 3\n")
    with pytest.raises(PolicyRefused):
        walk.approve()
    other = tmp_path / "site.toml"
    other.write_text("least_rows = -1\n")
    with pytest.raises(PolicyFileError):
        walk.approve(policy=other)
    assert walk.coordinator.members == {}
    assert path.read_text() == "least_cohort = 3\n", "the policy of the home is as it was"


def test_who_approves_is_told_before_how_many_rows_are_left_out(walk: Walk) -> None:
    """They are chosen by whether a target is missing, which a person should know who says yes."""
    data = {name: list(cells) for name, cells in table(400, seed=1).items()}
    for missing in (3, 5, 8):
        data["stay"][missing] = None
    told: list[str] = []

    def tell(said: str) -> None:
        assert walk.coordinator.members == {}, "nobody is enrolled by then"
        with pytest.raises(PolicyNotApproved):
            approved(walk.session, home=walk.home)
        told.append(said)

    offer = offered(walk.link, **walk.net)
    found = review(
        offer.program, offer.terms, data, stated=offer.membership.program, home=walk.home
    )
    assert (found.rows, found.without_target) == (397, 3)
    assert "397" not in found.text, "a policy may be shown to others"
    policies = Policies(Home(walk.home))
    policies.write(walk.session, found.text, replace=False)
    with pytest.raises(RosterFileError):
        walk.approve(roster={}, tell=tell)
    noted(found, "north.csv", session=walk.session, home=walk.home)
    walk.approve(tell=tell)
    (said,) = told
    assert said.startswith("3 rows of north.csv have no target, or not all of them, and are left")
    assert "397 rows take part" in said
    path = walk.home / "policies" / f"{walk.session}.table.json"
    assert path.stat().st_mode & 0o077 == 0
    for damaged in ("{}", "[]", '{"rows": "1", "without_target": 0, "table": "", "at": ""}', "?"):
        path.write_text(damaged)
        with pytest.raises(HomeDamaged, match="read the table again"):
            policies.table_seen(walk.session)


def test_without_a_table_in_this_home_the_number_is_not_made_up(walk: Walk) -> None:
    walk.draft()
    told: list[str] = []
    walk.approve(tell=told.append)
    assert "not known in this home" in told[0]


def test_a_key_that_was_enrolled_under_another_name_is_not_approved(walk: Walk) -> None:
    """The invitation said one name, and the coordinator enrolled the key under another."""
    walk.draft()
    own, other, _ = walk.coordinator.names
    walk.coordinator.secrets["secret-of-0"] = other

    def as_invited(name: str, reply: Reply) -> Reply:
        if name != "offer":
            return reply
        return replace(reply, body=json.dumps({**json.loads(reply.body), "name": own}).encode())

    walk.coordinator.meddle = as_invited
    with pytest.raises(RosterFileError, match=f"calls this hospital {own}, and .* it {other}:"):
        walk.approve()
    with pytest.raises(PolicyNotApproved, match="nobody has approved"):
        approved(walk.session, home=walk.home)
    # Nor does it take part with a roster of its own, under a name that is not its own.
    with pytest.raises(RosterFileError, match=f"calls it {other}:"):
        join(walk.link, table(400, seed=1), roster=walk.roster, progress="silent", **walk.net)


def test_a_member_that_is_called_otherwise_than_it_enrolled_is_refused(walk: Walk) -> None:
    walk.draft()
    walk.approve()
    own, other, _ = walk.coordinator.names
    walk.coordinator.members[other] = walk.coordinator.members.pop(own)
    with pytest.raises(SessionChanged, match=f"enrolled in the session as {own}, .* it {other}"):
        offered(walk.link, **walk.net)


def test_a_review_lists_everything_and_offers_to_ask_before_to_allow(
    walk: Walk, program: Program
) -> None:
    offer = offered(walk.link, **walk.net)
    found = review(offer.program, offer.terms, table(45, seed=1), home=walk.home.parent / "nobody")
    assert not found.dealt
    codes = {each.code for each in found.problems}
    assert {"policy.rows", "policy.rows_per_feature"} <= codes
    for each in found.problems:
        before, _, after = str(each).partition("To allow it all the same")
        assert "Ask for a session" in before or not after, str(each)
    assert any("this site allows at most" in str(each) for each in found.problems)
    assert not (walk.home.parent / "nobody").exists()

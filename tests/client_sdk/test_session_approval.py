"""A person reviews and approves; only then is the join link used, and for this hospital."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from client_sdk.errors import (
    ClientError,
    PolicyFileError,
    PolicyNotApproved,
    PolicyRefused,
    RosterFileError,
)
from client_sdk.events import Disclosed, Event
from client_sdk.home.home import Home
from client_sdk.home.policies import Policies
from client_sdk.joining import join, offered
from client_sdk.reviewing import review
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

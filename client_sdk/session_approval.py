"""`approve`: a person at the hospital accepts a session, and the hospital enrols.

Until then everything about the session was only read. The policy must allow the session, and the
roster must have this hospital, under the name that the session invites it by, and enough others;
then both are stored as approved, and the join link is used: it works for this hospital's key from
then on, and for no other. If it was enrolled under another name, nothing counts as approved. Taking
part (`joining`) needs no further decision, and compares the name again.
"""

import os
import tomllib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from client_sdk.conversation.answers import INVITED
from client_sdk.conversation.offer import Offer
from client_sdk.errors import PolicyFileError, RosterFileError
from client_sdk.gate.policy import Policy
from client_sdk.home.home import Home
from client_sdk.home.policies import Approval, Policies, sha256_of
from client_sdk.home.roster_file import check_own_name, read_roster
from client_sdk.joining import enrol, offered
from client_sdk.network.links import SessionLink
from client_sdk.network.transport import Transport
from privacy.securesum.steady import check_approved_by

PathLike = str | os.PathLike[str]

_NO_TABLE = (
    "How many rows are left out because a target is missing is not known in this home: to see it, "
    "run veilgp check LINK TABLE"
)


def approve(
    session: str,
    *,
    roster: PathLike | Mapping[str, bytes],
    by: str,
    policy: PathLike | None = None,
    home: PathLike | None = None,
    tell: Callable[[str], None] = lambda _: None,
    ca: PathLike | None = None,
    allow_http: bool = False,
    transport: Transport | None = None,
) -> Offer:
    """Approve a session's policy and roster, and enrol; return the session's offer.

    policy: a file to put into the home first; by default the one that is there, as drafted and
        reviewed. by: the name of the person who takes responsibility.
    tell: is told, before anything is approved, how many rows of the table are left out.
    """
    check_approved_by(by)
    link, place = SessionLink.parse(session, allow_http=allow_http), Home(home)
    name, policies = str(link.session), Policies(place)
    members = roster if isinstance(roster, Mapping) else read_roster(roster)
    own = place.identity().key
    offer = offered(session, home=home, ca=ca, allow_http=allow_http, transport=transport)
    text = policies.text(name) if policy is None else _text(Path(policy))
    rules = policy_of_text(text)
    today = datetime.now(UTC)
    rules.check_session(
        offer.program, offer.terms, today=today.date(), text=offer.membership.program
    )
    _check_roster(members, own, offer, rules)
    seen = policies.table_seen(name)
    tell(_NO_TABLE if seen is None else str(seen))
    if policy is not None:
        policies.write(name, text.decode(), replace=True)
    at = today.isoformat(timespec="seconds")
    policies.approve(name, Approval(sha256_of(text), members, by, at))
    if offer.membership.status != INVITED:
        return offer
    enrolled = enrol(
        session, home=home, progress="silent", ca=ca, allow_http=allow_http, transport=transport
    )
    try:
        check_own_name(members, own, enrolled.membership.name)
    except RosterFileError:
        policies.forget_approval(name)
        raise
    return enrolled


def approved(session: str, *, home: PathLike | None = None) -> tuple[Policy, Mapping[str, bytes]]:
    """Return policy and roster that were approved for a session, or refuse.

    session: the session's id.
    """
    policies = Policies(Home(home))
    approval, text = policies.approved(session), policies.text(session)
    if approval.policy != sha256_of(text):  # changed between two readings
        raise PolicyFileError(f"{policies.path(session)} changes while it is read: try again")
    return policy_of_text(text), approval.roster


def policy_of_text(text: bytes) -> Policy:
    """Read a policy from the bytes that an approval is about, and from no other file."""
    try:
        decoded = text.decode()
        elsewhere = isinstance(tomllib.loads(decoded).get("dictionary"), str)
    except UnicodeDecodeError as error:
        raise PolicyFileError("the policy is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise PolicyFileError(f"this policy is not valid TOML: {error}") from error
    if elsewhere:
        raise PolicyFileError(
            "the policy names another file for its dictionary, which could change after it is "
            "approved: write the dictionary's tables into the policy, as [dictionary.COLUMN]"
        )
    return Policy.from_toml(decoded)


def _text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PolicyFileError(f"cannot read the policy {str(path)!r}: {error.strerror}") from error


def _check_roster(members: Mapping[str, bytes], own: bytes, offer: Offer, policy: Policy) -> None:
    """Refuse a roster with which this hospital could not take part."""
    if own not in members.values():
        raise RosterFileError(
            "the roster does not have this hospital's own key (`veilgp identity`): it is the "
            "roster of other hospitals, or this is another home"
        )
    check_own_name(members, own, offer.membership.name)
    least = max(policy.least_cohort, offer.terms.min_cohort)
    if len(members) < least:
        raise RosterFileError(
            f"the roster has {len(members)} members, and a sum needs {least} whose keys are "
            "confirmed: get the complete roster"
        )

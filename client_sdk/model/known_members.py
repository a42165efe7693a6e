"""The members that a verifier knows: their keys, and how many of them might collude.

Keys come from a roster file, whose giver vouches for it, or from the pins that people have
confirmed in a hospital's home, of all its sessions, with its own key.

A certificate states the m of its own session. Whoever checks it adds the m of theirs: with a home,
that of the same session if this hospital has joined it, and otherwise the largest of its sessions.
It is at least 1, so that no single signature ever counts as a certificate.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from client_sdk.home.home import Home
from client_sdk.home.roster_file import read_roster
from client_sdk.home.store import Store
from privacy.members.endorsement import LEAST_COLLUDERS

PathLike = str | os.PathLike[str]
OWN_NAME = "this hospital"


@dataclass(frozen=True)
class KnownMembers:
    """Names by key, and where they come from; `colluders` are m by session."""

    names: Mapping[bytes, str]
    source: str
    colluders: Mapping[str, int] = field(default_factory=dict)
    obtained: frozenset[str] = frozenset()
    """Ids of the models that this hospital has computed itself."""

    def max_colluders(self, session: bytes) -> int:
        """Return the verifier's own m for a certificate of a session."""
        known = self.colluders.get(str(UUID(bytes=session)))
        own = max(self.colluders.values(), default=0) if known is None else known
        return max(LEAST_COLLUDERS, own)


def known_members(
    roster: PathLike | Mapping[str, bytes] | None, home: PathLike | None
) -> KnownMembers:
    """Return the members in a roster, by default those whose keys a home has confirmed.

    With a roster, a home is read only if it is named, for the m of its sessions.
    """
    of_home = KnownMembers({}, "") if roster is not None and home is None else _of_home(Home(home))
    if roster is None:
        return of_home
    if isinstance(roster, Mapping):
        named, source = roster, "the roster"
    else:
        named, source = read_roster(roster), f"the roster {os.fspath(roster)}"
    names = {key: name for name, key in named.items()}
    return KnownMembers(names, source, of_home.colluders)


def members_of_store(store: Store, own: bytes, source: str) -> KnownMembers:
    """Return the members whose keys are confirmed in a home's journal; `own` is its own key."""
    terms = store.terms()
    names: dict[bytes, str] = {own: OWN_NAME}
    for session in terms:
        for name, key in store.pins(session).confirmed.items():
            names.setdefault(key, name)
    colluders = {session: each.max_colluders for session, each in terms.items()}
    return KnownMembers(names, source, colluders, store.obtained_models())


def _of_home(home: Home) -> KnownMembers:
    source = f"the home {home.path}"
    if not home.exists():
        return KnownMembers({}, source)
    own = home.identity().key
    store = home.read()
    try:
        return members_of_store(store, own, source)
    finally:
        store.close()

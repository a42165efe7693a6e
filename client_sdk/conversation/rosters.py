"""Keys of other members in a session: the roster of a run, and the site's pins.

The person who passes a roster file (`home.roster_file`) vouches for it: its keys are confirmed
pins. Without a file, keys that appear in a session are unpinned until a person has confirmed them.
"""

from collections.abc import Mapping
from dataclasses import replace

from client_sdk.home.roster_file import members_of
from privacy.errors import PinConflict
from privacy.identity import Member, Pins, Roster


def roster_of(members: object) -> Roster:
    """Read the roster of a run from a response."""
    named = members_of({"members": members})
    return Roster(tuple(Member(name, key) for name, key in named.items()))


def confirmed_by(pins: Pins, roster: Mapping[str, bytes]) -> Pins:
    """Add a roster file's keys to the pins; refuse a key that contradicts a confirmed one."""
    for name, key in roster.items():
        if pins.confirmed.get(name, key) != key:
            raise PinConflict(
                f"The roster file's key for {name!r} differs from the key confirmed here. Ask the "
                "member which key is right. If the member has really changed its key, move the old "
                "home away."
            )
    met = {
        name: key
        for name, key in pins.met.items()
        if name not in roster and key not in roster.values()
    }
    return replace(pins, confirmed={**pins.confirmed, **roster}, met=met)

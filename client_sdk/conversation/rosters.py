"""Keys of other members: the roster file that people exchange, and the site's pins.

    {"members": [{"name": "St. Mary", "key": "<64 hex>"}, …]}

The person who passes the file vouches for it: its keys are confirmed pins. Without a file, keys
that appear in a session are unpinned until a person has confirmed them.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from client_sdk.errors import RosterFileError
from privacy.errors import PinConflict
from privacy.identity import Member, Pins, Roster, check_key


def read_roster(path: str | os.PathLike[str]) -> dict[str, bytes]:
    """Read a roster file: names and their keys."""
    try:
        plain = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RosterFileError(f"cannot read the roster {str(path)!r} as JSON: {error}") from error
    try:
        return members_of(plain)
    except (KeyError, TypeError, ValueError) as error:
        raise RosterFileError(
            f"the roster {str(path)!r} does not have the form "
            f'{{"members": [{{"name": …, "key": …}}]}}: {error}'
        ) from error


def members_of(plain: Mapping[str, Any]) -> dict[str, bytes]:
    """Read names and keys from plain data of a file or a response; each must be unique."""
    found: dict[str, bytes] = {}
    for member in plain["members"]:
        name, key = member["name"], bytes.fromhex(member["key"])
        check_key(key)
        if not isinstance(name, str) or name in found or key in found.values():
            raise ValueError("a name or a key occurs twice, or a name is not text")
        found[name] = key
    return found


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

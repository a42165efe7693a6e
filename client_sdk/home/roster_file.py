"""The roster file that people exchange: the names and keys of a study's members.

    {"members": [{"name": "St. Mary", "key": "<64 hex>"}, …]}

The person who passes the file vouches for it.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from client_sdk.errors import RosterFileError
from client_sdk.readable import readable
from privacy.identity import Member, check_key


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


def check_own_name(members: Mapping[str, bytes], own: bytes, name: str) -> None:
    """Refuse a roster that calls this hospital otherwise than the session does.

    own, name: this hospital's key, and the name that it is invited or enrolled by. Everyone else
    knows it by the roster's name: under another one its key would be that of a stranger.
    """
    listed = next((listed for listed, key in members.items() if key == own), name)
    if listed != name:
        raise RosterFileError(
            f"the roster calls this hospital {readable(listed)}, and the session calls it "
            f"{readable(name)}: it may be another hospital's invitation. Whoever assembled the "
            "roster or sent the invitation must use one name; if the wrong one is enrolled by now, "
            "tell the session's admin, who suspends it and invites this hospital by the right name"
        )


def roster_text(members: Iterable[Member]) -> str:
    """Return a roster file with these members, in their order."""
    plain = ({"name": member.name, "key": member.key.hex()} for member in members)
    lines = ",\n".join(f"  {json.dumps(each, ensure_ascii=False)}" for each in plain)
    return f'{{"members": [\n{lines}\n]}}'


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

"""What `veilgp identity` prints and hospitals send each other, from which a roster is made.

    name         St. Mary
    key          03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8
    fingerprint  90232 83554 79387 95915 20638 71797 16441 58826

The three lines are read strictly and in this order: a key must never get the name of the next
hospital. A fingerprint that is not its key's shows that a line was changed; if someone on the way
has replaced both, only a telephone call does.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import combinations

from client_sdk.errors import FingerprintNotOfKey, IdentityNotRead, TwiceInRoster
from client_sdk.readable import printable
from privacy.errors import PrivacyError
from privacy.identity import MAX_MEMBERS, Member, check_key, fingerprint

_FIELDS = ("name", "key", "fingerprint")
_LINE = re.compile(rf"({'|'.join(_FIELDS)})\s+(\S.*)")
_KEY = re.compile(r"[0-9a-fA-F]{64}")
_DIGITS = re.compile(r"[0-9]{40}")
_WIDTH = max(map(len, _FIELDS)) + 2
_SHOWN = 60
_FIX = "keep exactly the lines that `veilgp identity --name NAME` prints there"


def identity_lines(key: bytes, name: str | None = None) -> Iterator[str]:
    """Yield the lines of one hospital; without a name they are for its own eyes only."""
    named = {} if name is None else {"name": check_name(name)}
    for field, text in {**named, "key": key.hex(), "fingerprint": fingerprint(key)}.items():
        yield f"{field:<{_WIDTH}}{text}"


def check_name(name: str) -> str:
    """Return a name that people can read out and a session can have; refuse any other."""
    if not 0 < len(name.encode()) <= 200 or not name.isprintable() or name != name.strip():
        raise IdentityNotRead(
            f"{printable(name, _SHOWN)!r} cannot be a hospital's name: use 1 to 200 bytes of "
            "printable text, without spaces around it"
        )
    return name


def read_identities(text: str, where: str) -> list[Member]:
    """Return the hospitals in a text, of which there is at least one; `where` it is from."""
    found: list[Member] = []
    fields: dict[str, str] = {}
    # Not `splitlines`, which takes characters within a name for ends of lines.
    for number, line in enumerate(text.removeprefix("\N{BYTE ORDER MARK}").split("\n"), 1):
        if not line.strip():
            continue
        at = f"{where}, line {number}"
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise IdentityNotRead(
                f"{at} is neither a name, a key nor a fingerprint: {printable(line, _SHOWN)!r}; "
                f"{_FIX}"
            )
        expected, field = _FIELDS[len(fields)], match[1]
        if field != expected:
            hint = " (without --name it prints none)" if expected == "name" else ""
            raise IdentityNotRead(f"{at} is a {field} where a {expected} is expected{hint}: {_FIX}")
        fields[field] = match[2]
        if len(fields) == len(_FIELDS):
            found.append(_member(fields, at))
            fields = {}
    if fields or not found:
        missing = _FIELDS[len(fields)]
        raise IdentityNotRead(f"{where} ends where a {missing} is expected: {_FIX}")
    return found


def check_members(members: Iterable[Member]) -> tuple[Member, ...]:
    """Return the members of a roster; refuse too many, and names or keys that occur twice.

    Names that differ only in capitals, spaces or look-alikes of Unicode count as the same: people
    tell hospitals apart by them.
    """
    all_of_them = tuple(members)
    if len(all_of_them) > MAX_MEMBERS:
        raise TwiceInRoster(
            f"a roster has at most {MAX_MEMBERS} members, and these are {len(all_of_them)}"
        )
    for one, other in combinations(all_of_them, 2):
        if one == other:
            raise TwiceInRoster(f"{one.name!r} is given twice, with the same key: give it once")
        if one.key == other.key:
            raise TwiceInRoster(
                f"{one.name!r} and {other.name!r} have the same key: each has its own. Ask both "
                "again, by telephone"
            )
        if _folded(one.name) == _folded(other.name):
            raise TwiceInRoster(
                f"the name {other.name!r} occurs twice, with the keys {one.key.hex()[:16]}… and "
                f"{other.key.hex()[:16]}…: ask both hospitals by telephone which key is theirs, "
                "and give each a name of its own"
            )
    return all_of_them


def _member(fields: dict[str, str], at: str) -> Member:
    name, digits = fields["name"], "".join(fields["fingerprint"].split())
    try:
        check_name(name)
    except IdentityNotRead as error:
        raise IdentityNotRead(f"{at}: {error}") from error
    if not _KEY.fullmatch(fields["key"]):
        raise IdentityNotRead(f"{at}: the key of {name!r} is not 64 hexadecimal digits: {_FIX}")
    if not _DIGITS.fullmatch(digits):
        raise IdentityNotRead(f"{at}: the fingerprint of {name!r} is not 40 digits: {_FIX}")
    key = bytes.fromhex(fields["key"])
    try:
        check_key(key)
    except PrivacyError as error:
        raise IdentityNotRead(f"{at}: the key of {name!r} cannot be used: {error}") from error
    if digits != fingerprint(key).replace(" ", ""):
        raise FingerprintNotOfKey(
            f"{at}: the fingerprint of {name!r} is not that of its key, so a line was changed on "
            f"the way. Do not use either: ask {name!r} by telephone what `veilgp identity` shows"
        )
    return Member(name, key)


def _folded(name: str) -> str:
    return "".join(unicodedata.normalize("NFKC", name).casefold().split())

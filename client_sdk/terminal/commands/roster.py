"""`veilgp roster`: the roster file, made from what hospitals' `veilgp identity` prints."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from client_sdk.terminal.commands.failures import reported
from client_sdk.terminal.commands.session import HomeOption

if TYPE_CHECKING:
    from privacy.identity import Member

_STDIN = "-"
_MOST_BYTES = 1 << 20
_LEAST_MEMBERS = 3


def roster_command(
    identities: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE…",
            help="Files with what `veilgp identity --name NAME` prints at each hospital, this one "
            "included, one or several in a file; - reads standard input.",
        ),
    ],
    *,
    home: HomeOption = None,
) -> None:
    """Print the roster file of a study as JSON, from the lines that each hospital has sent.

    What to compare by telephone is printed on standard error: whoever passes the file to `veilgp
    join --roster` vouches for it.
    """
    with reported():
        from client_sdk.home.identity_text import check_members, read_identities
        from client_sdk.home.roster_file import roster_text

        members = check_members(
            member for given in identities for member in read_identities(_text(given), given)
        )
        typer.echo(roster_text(members))
        for line in _to_compare(members, home):
            typer.echo(line, err=True)


def _text(given: str) -> str:
    from client_sdk.errors import IdentityNotRead

    try:
        if given == _STDIN:
            data = sys.stdin.buffer.read(_MOST_BYTES + 1)
        else:
            with Path(given).open("rb") as file:
                data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise IdentityNotRead(f"{given} has more than {_MOST_BYTES:,} bytes: correct the path")
        return data.decode()
    except OSError as error:
        raise IdentityNotRead(f"cannot read {given}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise IdentityNotRead(f"{given} is not text in UTF-8: save it as UTF-8") from error


def _to_compare(members: "tuple[Member, ...]", home: Path | None) -> Iterator[str]:
    from client_sdk.home.home import Home
    from privacy.identity import fingerprint

    yield (
        "Call each hospital, on a number that you had before and not on one from its message, and "
        "have these digits read out from `veilgp identity` there:"
    )
    own = Home(home).identity().key if Home(home).exists() else None
    width = max(len(member.name) for member in members)
    for member in members:
        here = "  (this hospital)" if member.key == own else ""
        yield f"  {member.name:<{width}}  {fingerprint(member.key)}{here}"
    yield (
        "If all agree, every hospital passes this file to `veilgp join --roster`. The names must "
        "be those of the session's invitations."
    )
    if len(members) < _LEAST_MEMBERS:
        yield f"A session needs at least {_LEAST_MEMBERS} hospitals; there are {len(members)} here."
    if own is not None and own not in {member.key for member in members}:
        yield f"The key of this hospital (home {Home(home).path}) is not among them."

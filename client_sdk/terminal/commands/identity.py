"""`veilgp identity` and `veilgp confirm`: this hospital's key, and those of the others."""

from typing import Annotated

import typer

from client_sdk.terminal.commands.failures import reported
from client_sdk.terminal.commands.session import HomeOption


def identity_command(
    *,
    name: Annotated[
        str | None,
        typer.Option(
            help="This hospital's name, as the session's admin writes it into the invitation: with "
            "it, the lines can be sent to whoever makes the roster."
        ),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Print this hospital's key and fingerprint; create its identity if there is none.

    Send the lines to whoever makes the roster (`veilgp roster`), and read out the fingerprint when
    they call. Neither is secret.
    """
    with reported():
        from client_sdk.home.home import Home
        from client_sdk.home.identity_text import check_name, identity_lines

        if name is not None:
            check_name(name)
        for line in identity_lines(Home(home).identity().key, name):
            typer.echo(line)


def confirm_command(
    name: Annotated[str, typer.Argument(help="The member's name, as the session shows it.")],
    digits: Annotated[str, typer.Argument(help="The member's fingerprint, as read out to you.")],
    *,
    home: HomeOption = None,
) -> None:
    """Confirm another member's key with the fingerprint that a person there has read out."""
    with reported():
        from client_sdk.home.home import Home
        from privacy.errors import FingerprintMismatch

        store = Home(home).read()
        try:
            sessions = store.sessions_that_met(name)
            if not sessions:
                raise FingerprintMismatch(
                    f"No key of a member named {name!r} is waiting for confirmation."
                )
            for session in sessions:
                store.keep_pins(session, store.pins(session).confirm(name, digits))
        finally:
            store.close()
        typer.echo(f"{name} is confirmed in {len(sessions)} session(s).")

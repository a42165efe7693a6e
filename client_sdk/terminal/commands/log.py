"""`veilgp log`: what has left this hospital."""

from typing import Annotated

import typer

from client_sdk.terminal.commands.failures import reported
from client_sdk.terminal.commands.session import HomeOption


def log_command(
    *,
    home: HomeOption = None,
    every: Annotated[
        bool, typer.Option("--all", help="One line per vector, with the SHA-256 of its bytes.")
    ] = False,
    summary: Annotated[bool, typer.Option("--summary", help="Print only the totals.")] = False,
) -> None:
    """List what has left this hospital, by run and stage.

    Beside it: samples that left unmasked, if the policy allows any, and sums that this hospital
    could not compute.
    """
    if every and summary:
        raise typer.BadParameter("--all and --summary exclude each other")
    with reported():
        from client_sdk.home.home import Home
        from client_sdk.terminal.departures import Left

        store = Home(home).read()
        try:
            left = Left(
                list(store.departures()), store.samples(), store.failures(), store.session_names()
            )
        finally:
            store.close()
        if not summary:
            for line in left.one_by_one() if every else left.by_stage():
                typer.echo(line)
        if not every:
            for line in left.in_all():
                typer.echo(line)

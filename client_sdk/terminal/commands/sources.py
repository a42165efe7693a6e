"""`veilgp approve-table`, `approve-address`, `row-band`: what a named person decides later on."""

from typing import Annotated

import typer

from client_sdk.terminal.commands.failures import reported
from client_sdk.terminal.commands.session import HomeOption, HttpOption, SourceOption

ByOption = Annotated[str, typer.Option(help="Your name: you take responsibility for the decision.")]


def approve_table_command(
    link: Annotated[str, typer.Argument(help="https://host/sessions/<id>.")],
    table: Annotated[str, typer.Argument(help="The table as it is now.")],
    *,
    by: ByOption,
    home: HomeOption = None,
    source: SourceOption = "table",
    allow_http: HttpOption = False,
) -> None:
    """Approve a changed table of a data source.

    Two exact sums over tables that differ by one patient reveal that patient to everyone who sees
    both. Approve a change only if many rows changed, or if that is acceptable.
    """
    with reported():
        from client_sdk.approval import approve_table

        approve_table(link, table, by=by, home=home, source=source, allow_http=allow_http)
        typer.echo(f"The current table of {source!r} is approved by {by}.")


def approve_address_command(
    link: Annotated[str, typer.Argument(help="The link with the session's new address.")],
    *,
    by: ByOption,
    home: HomeOption = None,
    allow_http: HttpOption = False,
) -> None:
    """Accept that a session's coordinator has another address now.

    Ask the coordinator's operator first, by telephone: whoever sends a link with an address of
    their own could pretend to be the session. Nothing is sent.
    """
    with reported():
        from client_sdk.approval import approve_address

        forgotten = approve_address(link, by=by, home=home, allow_http=allow_http)
        typer.echo(f"The session is at the address of this link, approved by {by}.")
        if forgotten:
            typer.echo(
                "What was seen at the other address is forgotten: review the session again "
                "(veilgp policy draft LINK TABLE), and approve it (veilgp approve)."
            )


def row_band_command(
    rows: Annotated[int, typer.Argument(help="A power of two, at least twice the table's rows.")],
    *,
    by: ByOption,
    home: HomeOption = None,
    source: SourceOption = "table",
) -> None:
    """Choose for how many rows the times of a data source's answers are measured.

    The coordinator can tell this number from when answers leave. Change it only if the table has
    outgrown it, or to show less: to a much larger number, with room to grow.
    """
    with reported():
        from client_sdk.approval import choose_row_band

        choose_row_band(rows, by=by, home=home, source=source)
        typer.echo(
            f"The row band of {source!r} is {rows}, chosen by {by}. Write row_band = {rows} into "
            "the policy."
        )

"""`veilgp join`, `veilgp withdraw` and `veilgp policy draft`."""

from pathlib import Path
from typing import Annotated

import typer

from client_sdk.terminal.commands.failures import reported

HomeOption = Annotated[
    Path | None,
    typer.Option(help="Folder of identity and journal; by default VEILGP_HOME, then ~/.veilgp."),
]
CaOption = Annotated[
    Path | None, typer.Option(help="Your organisation's certificate authority, a PEM file.")
]
HttpOption = Annotated[
    bool, typer.Option("--allow-http", help="Accept http links, in a network that you trust.")
]
SourceOption = Annotated[str, typer.Option(help="This table's name in the journal.")]
LinkArgument = Annotated[
    str, typer.Argument(help="Join link (in quotes), or https://host/sessions/<id>.")
]


def join_command(
    link: LinkArgument,
    table: Annotated[str, typer.Argument(help="A CSV or Parquet file, or a folder of them.")],
    *,
    policy: Annotated[Path, typer.Option(help="The site's policy, a TOML file.")],
    once: Annotated[bool, typer.Option("--once", help="Leave after one run.")] = False,
    roster: Annotated[
        Path | None,
        typer.Option(help="JSON file with the keys of all members, confirmed out of band."),
    ] = None,
    added: Annotated[
        str | None, typer.Option(help="Separate table of the rows that an update run adds.")
    ] = None,
    removed: Annotated[
        str | None, typer.Option(help="Separate table of the rows that an update run removes.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Save each run's model to a subfolder of this folder.")
    ] = None,
    home: HomeOption = None,
    source: SourceOption = "table",
    progress: Annotated[str, typer.Option(help="auto, rich, plain or silent.")] = "auto",
    deadline_s: Annotated[
        float | None, typer.Option(help="Give up after this many seconds.")
    ] = None,
    ca: CaOption = None,
    allow_http: HttpOption = False,
) -> None:
    """Take part in a session with a table; stay for further runs unless --once is given."""
    with reported():
        from client_sdk.joining import join
        from client_sdk.model.model import GlobalModel

        def got(model: GlobalModel) -> None:
            if save is not None:
                model.save(save / model.id)
            typer.echo(model.id if save is None else str(save / model.id))

        join(
            link,
            table,
            policy,
            added=added,
            removed=removed,
            source=source,
            home=home,
            roster=roster,
            once=once,
            on_model=got,
            progress=progress,
            deadline_s=deadline_s,
            ca=ca,
            allow_http=allow_http,
        )


def withdraw_command(
    link: Annotated[str, typer.Argument(help="https://host/sessions/<id>.")],
    *,
    home: HomeOption = None,
    ca: CaOption = None,
    allow_http: HttpOption = False,
) -> None:
    """Withdraw the samples of this hospital's own model from every run of a session so far.

    Samples leave only if the policy has open_ensemble = true. The sums that this hospital took part
    in remain, and what was already learned from the samples cannot be undone. A later run requests
    samples again: change the policy too if it must not get any.
    """
    with reported():
        from client_sdk.withdrawal import withdraw

        left = withdraw(link, home=home, ca=ca, allow_http=allow_http)
        typer.echo(
            f"Withdrawn: samples of {left} run(s) had been sent; the coordinator no longer uses "
            "them."
        )


def draft_command(
    link: LinkArgument,
    *,
    dictionary: Annotated[
        str, typer.Option(help="File of the data dictionary, relative to the policy.")
    ] = "dictionary.toml",
    table: Annotated[
        str | None,
        typer.Option(help="The table, to propose row_band: its rows are counted, nothing is sent."),
    ] = None,
    home: HomeOption = None,
    source: SourceOption = "table",
    ca: CaOption = None,
    allow_http: HttpOption = False,
) -> None:
    """Print a policy that allows exactly what a session requests, for a person to review.

    The data dictionary that it names is made once per data source with `veilgp dictionary draft`.
    """
    with reported():
        from client_sdk.gate.policy_draft import draft
        from client_sdk.gate.row_band import proposed
        from client_sdk.home.home import Home
        from client_sdk.joining import offered

        offer = offered(link, home=home, ca=ca, allow_http=allow_http)
        delta = offer.membership.delta
        store = Home(home).read()
        try:
            band = proposed(store, source, table)
        finally:
            store.close()
        text = draft(offer.program, offer.terms, delta=delta, dictionary=dictionary, band=band)
        typer.echo(text, nl=False)

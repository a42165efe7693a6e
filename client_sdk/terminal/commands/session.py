"""`veilgp join` and `veilgp withdraw`."""

from collections.abc import Mapping
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
    policy: Annotated[
        Path | None,
        typer.Option(
            help="The site's policy, a TOML file; by default the one in the home, as approved with "
            "`veilgp approve`."
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Leave after one run.")] = False,
    roster: Annotated[
        Path | None,
        typer.Option(
            help="JSON file with the keys of all members, confirmed out of band; by default the "
            "roster that was approved."
        ),
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
        from client_sdk.gate.policy import Policy
        from client_sdk.joining import join
        from client_sdk.model.model import GlobalModel
        from client_sdk.network.links import SessionLink
        from client_sdk.session_approval import approved

        rules: Policy | Path | None = policy
        pinned: Path | Mapping[str, bytes] | None = roster
        if policy is None:
            name = str(SessionLink.parse(link, allow_http=allow_http).session)
            rules, members = approved(name, home=home)
            pinned = members if roster is None else roster

        def got(model: GlobalModel) -> None:
            if save is not None:
                model.save(save / model.id)
            typer.echo(model.id if save is None else str(save / model.id))

        join(
            link,
            table,
            rules,
            added=added,
            removed=removed,
            source=source,
            home=home,
            roster=pinned,
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

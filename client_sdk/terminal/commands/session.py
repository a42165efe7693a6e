"""`veilgp join`, `withdraw`, `identity`, `confirm`, `policy draft`, `approve-table` and `log`."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from client_sdk.terminal.commands.failures import reported

HomeOption = Annotated[
    Path | None, typer.Option(help="Identity and journal; else VEILGP_HOME, else ~/.veilgp.")
]
CaOption = Annotated[
    Path | None, typer.Option(help="Certificate authority of your organisation, PEM.")
]
HttpOption = Annotated[
    bool, typer.Option("--allow-http", help="Accept http in a network that you trust.")
]
SourceOption = Annotated[str, typer.Option(help="This table's name in the journal.")]
LinkArgument = Annotated[
    str, typer.Argument(help="Join link (in quotes), or https://host/sessions/<id>.")
]


def register(app: typer.Typer) -> None:
    """Add them to the command line; nothing heavy is imported before one runs."""
    app.command("join")(join_command)
    app.command("withdraw")(withdraw_command)
    app.command("identity")(identity_command)
    app.command("confirm")(confirm_command)
    app.command("approve-table")(approve_table_command)
    app.command("log")(log_command)
    policies = typer.Typer(help="The site's own policy.", no_args_is_help=True)
    policies.command("draft")(draft_command)
    app.add_typer(policies, name="policy")


def join_command(
    link: LinkArgument,
    table: Annotated[str, typer.Argument(help="CSV or Parquet, a file or a folder.")],
    *,
    policy: Annotated[Path, typer.Option(help="The site's policy, TOML.")],
    once: Annotated[bool, typer.Option("--once", help="Leave after one run.")] = False,
    roster: Annotated[
        Path | None, typer.Option(help="Keys of all members, confirmed out of band, JSON.")
    ] = None,
    added: Annotated[
        str | None, typer.Option(help="Rows that an update run takes in: a table of its own.")
    ] = None,
    removed: Annotated[
        str | None, typer.Option(help="Rows that an update run forgets: a table of its own.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Write each run's model into a folder under this one.")
    ] = None,
    home: HomeOption = None,
    source: SourceOption = "table",
    progress: Annotated[str, typer.Option(help="auto, rich, plain or silent.")] = "auto",
    deadline_s: Annotated[float | None, typer.Option(help="Give up after so long.")] = None,
    ca: CaOption = None,
    allow_http: HttpOption = False,
) -> None:
    """Take part in a session with a table; stay for further runs unless --once."""
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
    """Take the samples of this hospital's own model back, from every run of a session so far.

    They leave only if the policy says open_ensemble = true. The sums that this hospital took part
    in stay, and what was learned from samples before cannot be called back. A later run asks again:
    change the policy too, if it shall get none.
    """
    with reported():
        from client_sdk.withdrawal import withdraw

        left = withdraw(link, home=home, ca=ca, allow_http=allow_http)
        typer.echo(
            f"Withdrawn: samples of {left} run(s) had left, and the coordinator serves none of "
            "them any more."
        )


def identity_command(*, home: HomeOption = None) -> None:
    """Print this hospital's key and fingerprint; make its identity if it has none."""
    with reported():
        from client_sdk.home.home import Home

        identity = Home(home).identity()
        typer.echo(f"key          {identity.key.hex()}")
        typer.echo(f"fingerprint  {identity.fingerprint}")


def confirm_command(
    name: Annotated[str, typer.Argument(help="The member's name, as the session shows it.")],
    digits: Annotated[str, typer.Argument(help="Its fingerprint, as it was read out to you.")],
    *,
    home: HomeOption = None,
) -> None:
    """Confirm the key of another member, by the digits that a person there has read out."""
    with reported():
        from client_sdk.home.home import Home
        from privacy.errors import FingerprintMismatch

        store = Home(home).read()
        try:
            sessions = store.sessions_that_met(name)
            if not sessions:
                raise FingerprintMismatch(
                    f"No key of a member named {name!r} waits for confirmation."
                )
            for session in sessions:
                store.keep_pins(session, store.pins(session).confirm(name, digits))
        finally:
            store.close()
        typer.echo(f"{name} is confirmed in {len(sessions)} session(s).")


def approve_table_command(
    link: Annotated[str, typer.Argument(help="https://host/sessions/<id>.")],
    table: Annotated[str, typer.Argument(help="The table as it is now.")],
    *,
    by: Annotated[str, typer.Option(help="Your name: whoever approves it stands for it.")],
    home: HomeOption = None,
    source: SourceOption = "table",
    allow_http: HttpOption = False,
) -> None:
    """Allow a data source another state of its table.

    Two exact sums over tables that differ by a patient show that patient, to everyone who sees
    both. Approve a change only if many rows changed, or if that is acceptable.
    """
    with reported():
        from client_sdk.approval import approve_table

        approve_table(link, table, by=by, home=home, source=source, allow_http=allow_http)
        typer.echo(f"{source!r} is approved with its present table by {by}.")


def draft_command(
    link: LinkArgument,
    *,
    home: HomeOption = None,
    ca: CaOption = None,
    allow_http: HttpOption = False,
) -> None:
    """Print the policy that would allow exactly what a session asks for, for a person to review."""
    with reported():
        from client_sdk.gate.policy_draft import draft
        from client_sdk.joining import offered

        offer = offered(link, home=home, ca=ca, allow_http=allow_http)
        typer.echo(draft(offer.program, offer.terms, delta=offer.membership.delta), nl=False)


def log_command(
    *,
    home: HomeOption = None,
    summary: Annotated[bool, typer.Option("--summary", help="Only add up what has left.")] = False,
) -> None:
    """Print what has left this hospital, a line for each vector, and for each file of samples."""
    with reported():
        from client_sdk.home.home import Home

        store = Home(home).read()
        try:
            departures, samples = list(store.departures()), store.samples()
        finally:
            store.close()
        if not summary:
            for departure in departures:
                typer.echo(departure.line())
            for own in samples:
                typer.echo(own.line())
            return
        vectors = Counter(departure.algorithm.split("/")[0] for departure in departures)
        of = ", ".join(f"{name} {count}" for name, count in vectors.items())
        numbers = sum(departure.elements for departure in departures)
        octets = sum(departure.octets for departure in departures)
        typer.echo(
            f"{len(departures)} masked vectors ({of or 'none'}): {numbers:,} numbers, "
            f"{octets:,} octets"
        )
        if samples:
            withdrawn = sum(own.withdrawn_at is not None for own in samples)
            typer.echo(
                f"{len(samples)} times samples of this hospital's own model, NOT MASKED: "
                f"{sum(own.elements for own in samples):,} numbers, "
                f"{sum(own.octets for own in samples):,} octets; {withdrawn} withdrawn"
            )

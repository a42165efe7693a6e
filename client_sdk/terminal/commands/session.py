"""`veilgp join`, `withdraw`, `identity`, `confirm` and `log`."""

from collections import Counter
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


def register(app: typer.Typer) -> None:
    """Add the commands; large packages are imported only when a command runs."""
    app.command("join")(join_command)
    app.command("withdraw")(withdraw_command)
    app.command("identity")(identity_command)
    app.command("confirm")(confirm_command)
    app.command("log")(log_command)


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


def identity_command(*, home: HomeOption = None) -> None:
    """Print this hospital's key and fingerprint; create its identity if there is none."""
    with reported():
        from client_sdk.home.home import Home

        identity = Home(home).identity()
        typer.echo(f"key          {identity.key.hex()}")
        typer.echo(f"fingerprint  {identity.fingerprint}")


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


def log_command(
    *,
    home: HomeOption = None,
    summary: Annotated[bool, typer.Option("--summary", help="Print only the totals.")] = False,
) -> None:
    """Print what has left this hospital, and which sums it could not compute.

    There is one line per vector, per file of samples, and per failure.
    """
    with reported():
        from client_sdk.home.home import Home

        store = Home(home).read()
        try:
            departures, samples = list(store.departures()), store.samples()
            failures = store.failures()
        finally:
            store.close()
        if not summary:
            for departure in departures:
                typer.echo(departure.line())
            for own in samples:
                typer.echo(own.line())
            for failure in failures:
                typer.echo(failure.line())
            return
        vectors = Counter(departure.algorithm.split("/")[0] for departure in departures)
        of = ", ".join(f"{name} {count}" for name, count in vectors.items())
        numbers = sum(departure.elements for departure in departures)
        octets = sum(departure.octets for departure in departures)
        typer.echo(
            f"{len(departures)} masked vectors ({of or 'none'}): {numbers:,} numbers, "
            f"{octets:,} bytes"
        )
        if samples:
            withdrawn = sum(own.withdrawn_at is not None for own in samples)
            typer.echo(
                f"{len(samples)} files of samples of this hospital's own model, NOT MASKED: "
                f"{sum(own.elements for own in samples):,} numbers, "
                f"{sum(own.octets for own in samples):,} bytes; {withdrawn} withdrawn"
            )

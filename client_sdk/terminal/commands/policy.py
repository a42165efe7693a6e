"""`veilgp policy draft` and `veilgp approve`: what a hospital's people decide before it joins."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from client_sdk.terminal.commands.failures import reported
from client_sdk.terminal.commands.session import (
    CaOption,
    HomeOption,
    HttpOption,
    LinkArgument,
    SourceOption,
)

if TYPE_CHECKING:
    from client_sdk.reviewing import Review

PRINTED = Path("-")


def draft_command(
    link: LinkArgument,
    table: Annotated[str, typer.Argument(help="A CSV or Parquet file, or a folder of them.")],
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="The file to write, - to print it; by default one in the home."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Overwrite a policy that may have been edited.")
    ] = False,
    home: HomeOption = None,
    source: SourceOption = "table",
    ca: CaOption = None,
    allow_http: HttpOption = False,
) -> None:
    """Draft a policy that allows exactly what a session requests, with a data dictionary of TABLE.

    Nobody is enrolled, and nothing about TABLE is sent. Review the file; `veilgp approve` then
    approves it. What TABLE will not meet is listed on standard error.
    """
    with reported():
        from client_sdk.home.home import Home
        from client_sdk.home.policies import Policies
        from client_sdk.joining import offered
        from client_sdk.reviewing import noted, review

        offer = offered(link, home=home, ca=ca, allow_http=allow_http)
        found = review(
            offer.program,
            offer.terms,
            table,
            delta=offer.membership.delta,
            stated=offer.membership.program,
            home=home,
            source=source,
        )
        session = str(offer.membership.session)
        if out == PRINTED:
            typer.echo(found.text, nl=False)
        else:
            if out is None:
                path = Policies(Home(home)).write(session, found.text, replace=replace)
            else:
                _write(out, found.text, replace=replace)
                path = out
            command = approve_as_typed(link, policy=out, home=home, ca=ca, allow_http=allow_http)
            typer.echo(f"The draft is in {path}. Review it, then run:\n  {command}", err=True)
        if out is None or Home(home).exists():
            noted(found, table, session=session, home=home)
        show_problems(found)


def approve_command(
    link: LinkArgument,
    *,
    roster: Annotated[
        Path, typer.Option(help="JSON file with the keys of all members, confirmed out of band.")
    ],
    by: Annotated[
        str | None,
        typer.Option(
            help="Your name: you take responsibility; by default the user of this machine."
        ),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(help="The reviewed policy; by default the one in the home, as drafted."),
    ] = None,
    home: HomeOption = None,
    ca: CaOption = None,
    allow_http: HttpOption = False,
) -> None:
    """Approve a session's policy and roster for this hospital, and enrol its key.

    This is the step that uses the join link. `veilgp join LINK TABLE` then takes part.
    """
    with reported():
        import getpass

        from client_sdk.home.home import Home
        from client_sdk.session_approval import approve

        person = by or getpass.getuser()
        offer = approve(
            link,
            roster=roster,
            by=person,
            policy=policy,
            home=home,
            tell=typer.echo,
            ca=ca,
            allow_http=allow_http,
        )
        typer.echo(str(offer.disclosure(offer.program)))
        typer.echo("")
        typer.echo(f"Approved by {person}; this hospital is enrolled as {offer.membership.name}.")
        typer.echo(f"fingerprint  {Home(home).identity().fingerprint}")
        if offer.membership.status == "pending":
            typer.echo("Read the fingerprint out to the session's admin, who approves the member.")


def approve_as_typed(
    link: str,
    *,
    policy: Path | None = None,
    home: Path | None = None,
    ca: Path | None = None,
    allow_http: bool = False,
) -> str:
    """Return the command that approves a session, quoted for a shell.

    >>> print(approve_as_typed("https://host/sessions/1#secret", ca=Path("ca.pem")))
    veilgp approve 'https://host/sessions/1#secret' --roster roster.json --ca ca.pem
    """
    words = ["veilgp", "approve", link, "--roster", "roster.json"]
    for option, path in (("--policy", policy), ("--home", home), ("--ca", ca)):
        words += [] if path is None else [option, str(path)]
    return shlex.join([*words, *(["--allow-http"] if allow_http else [])])


def show_problems(found: "Review") -> None:
    """Print what a table does not meet."""
    from client_sdk.readable import readable

    if found.rows is not None and found.without_target:
        typer.echo(
            f"{found.without_target:,} rows have no target, or not all of them, and are left out; "
            f"{found.rows:,} rows take part. This is shown only here.",
            err=True,
        )
    if found.rows is not None and not found.dealt:
        typer.echo(
            "This home has no identity, so rows are dealt to parts for now by a secret that was "
            "made up: numbers of rows in a part are about right only.",
            err=True,
        )
    if not found.problems:
        typer.echo("The table meets everything that the policy asks of it.", err=True)
        return
    typer.echo("What the table or the policy does not meet (shown only here):", err=True)
    for line in lines_of(found.problems):
        typer.echo(f"- {readable(line)}", err=True)


def lines_of(problems: Sequence[Exception]) -> list[str]:
    """Return one text for each problem, with its code."""
    return [
        f"{' '.join(str(each).split())} [{getattr(each, 'code', 'error')}]" for each in problems
    ]


def _write(path: Path, text: str, *, replace: bool) -> None:
    from client_sdk.errors import PolicyFileError

    try:
        with path.open("w" if replace else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise PolicyFileError(
            f"{path} is there already, and may have been edited: pass --replace to overwrite it"
        ) from None
    except OSError as error:
        raise PolicyFileError(f"cannot write {path}: {error.strerror}") from error

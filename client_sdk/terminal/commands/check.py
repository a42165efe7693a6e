"""`veilgp check`: a table against a schema, a proposed session, or one that it is invited to."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from client_sdk.terminal.commands.failures import reported
from client_sdk.terminal.commands.policy import show_problems
from client_sdk.terminal.commands.session import CaOption, HomeOption, HttpOption, SourceOption

if TYPE_CHECKING:
    from kernels.rounds.program import Program
    from privacy.securesum.terms import Terms


def check_command(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="[SESSION] TABLE",
            help="TABLE: a CSV or Parquet file, or a folder of them. SESSION: a join link (in "
            "quotes), https://host/sessions/<id>, or the JSON that `veilgp session draft` prints.",
        ),
    ],
    *,
    schema: Annotated[
        Path | None, typer.Option(help="The schema's JSON file, without a session.")
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(help="The site's policy; by default that of the home, else as drafted."),
    ] = None,
    home: HomeOption = None,
    source: SourceOption = "table",
    ca: CaOption = None,
    allow_http: HttpOption = False,
) -> None:
    """List everything that keeps TABLE from a session; nobody is enrolled, nothing is sent.

    With a session, its program and the site's policy are applied to the table, before the hospital
    joins. With --schema the table is compared with it, column by column; cells that do not fit are
    shown, because this is printed at home only. With TABLE alone, its size is printed as a
    session states it (smallest_table).
    """
    *sessions, table = what
    if len(sessions) > 1 or (sessions and schema is not None):
        raise typer.BadParameter("check takes [SESSION] TABLE, or TABLE --schema SCHEMA")
    with reported():
        if schema is not None:
            _against_schema(table, schema)
        elif sessions:
            _against_session(
                sessions[0],
                table,
                policy=policy,
                source=source,
                home=home,
                ca=ca,
                allow_http=allow_http,
            )
        else:
            _size(table)


def _against_session(
    session: str,
    table: str,
    *,
    policy: Path | None,
    source: str,
    home: Path | None,
    ca: Path | None,
    allow_http: bool,
) -> None:
    from client_sdk.gate.policy import Policy
    from client_sdk.home.home import Home
    from client_sdk.home.policies import Policies
    from client_sdk.joining import offered
    from client_sdk.reviewing import noted, review
    from client_sdk.session_approval import policy_of_text

    delta, stated, name, own = None, None, "", Policies(Home(home))
    rules = None if policy is None else Policy.read(policy)
    if session.startswith(("http://", "https://")):
        offer = offered(session, home=home, ca=ca, allow_http=allow_http)
        program, terms = offer.program, offer.terms
        delta, stated = offer.membership.delta, offer.membership.program
        name = str(offer.membership.session)
        if rules is None and own.path(name).exists():
            rules = policy_of_text(own.text(name))
    else:
        program, terms = _proposed(session)
    found = review(
        program,
        terms,
        table,
        delta=delta,
        stated=stated,
        policy=rules,
        home=home,
        source=source,
    )
    whose = "a policy as `veilgp policy draft` writes it" if found.text else "the site's policy"
    typer.echo(f"{table}: checked against the session's program and {whose}")
    if stated is not None and Home(home).exists():
        noted(found, table, session=name, home=home)
    show_problems(found)
    if found.problems:
        raise typer.Exit(1)


def _proposed(path: str) -> "tuple[Program, Terms]":
    from client_sdk.errors import DraftError
    from client_sdk.session_body import program_and_terms

    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DraftError(f"cannot read a session from {path}: correct the path") from error
    return program_and_terms(text)


def _size(table: str) -> None:
    from client_sdk.tables.schema_stream import count_rows
    from kernels.rounds.stated.band import band_of

    rows = count_rows(table)
    band = band_of(rows)
    typer.echo(
        f"{table} has {rows:,} rows. Tell the session's admin: {band} (from {band:,} to "
        f"{2 * band - 1:,} rows). The least number that any hospital tells is the session's "
        "smallest_table. It is public, and says no more than this."
    )


def _against_schema(table: str, schema: Path) -> None:
    from client_sdk.tables.checking.check import check_table
    from client_sdk.terminal.table_report import show

    report = check_table(table, schema)
    show(report)
    if not report.fits:
        raise typer.Exit(1)

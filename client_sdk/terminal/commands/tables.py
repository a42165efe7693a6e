"""`veilgp schema draft` and `veilgp check`: preparing a table for a session.

What these commands need is imported when they run: importing torch takes seconds.
"""

from pathlib import Path
from typing import Annotated, NoReturn

import typer

TablePath = Annotated[
    Path, typer.Argument(metavar="TABLE", help="A CSV or Parquet file, or a folder of them.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    schemas = typer.Typer(help="Schemas of tables.", no_args_is_help=True)
    # A callback keeps `schema` a command group while it has only one command.
    schemas.callback()(lambda: None)
    schemas.command("draft")(draft_schema)
    app.add_typer(schemas, name="schema")
    app.command("check")(check_table)


def draft_schema(
    table: TablePath,
    target: Annotated[
        list[str], typer.Option(help="The column to predict; may be given several times.")
    ],
    patient: Annotated[
        str | None, typer.Option(help="The column that identifies the patient.")
    ] = None,
) -> None:
    """Print a draft schema for TABLE as JSON, for you to edit; advice goes to standard error."""
    from client_sdk.errors import ClientError
    from client_sdk.tables import draft
    from kernels.errors import KernelsError

    try:
        drafted = draft(table, targets=target, patient=patient)
    except (ClientError, KernelsError) as error:
        _fail([str(error)])
    typer.echo(drafted.to_json())
    for sentence in drafted.advice:
        typer.echo(f"- {sentence}", err=True)


def check_table(
    table: TablePath,
    schema: Annotated[Path, typer.Option(help="The schema's JSON file.")],
) -> None:
    """Check TABLE against a schema and list all problems; nothing is sent."""
    from client_sdk.errors import ClientError
    from client_sdk.tables import read_site, summarise
    from client_sdk.tables.draft import unfinished
    from kernels.errors import KernelsError
    from kernels.rounds.site.dealing import Dealing
    from kernels.tables.schema import Schema

    try:
        parsed = Schema.from_json(schema.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        _fail([f"cannot read a schema from {schema}: correct the path"])
    except KernelsError as error:
        _fail([str(error)])
    problems = unfinished(parsed)
    try:
        summary = summarise(read_site(table, parsed, held_out=0.0, dealing=Dealing.generate()))
    except (ClientError, KernelsError) as error:
        _fail([*problems, str(error)])
    if problems:
        _fail(problems)
    fewest = summary.fewest_level_rows
    levels = "" if fewest is None else f"; the rarest level has {fewest} rows"
    typer.echo(f"{table} fits the schema: {summary.rows} rows{levels}")


def _fail(problems: list[str]) -> NoReturn:
    for problem in problems:
        typer.echo(problem, err=True)
    raise typer.Exit(1)

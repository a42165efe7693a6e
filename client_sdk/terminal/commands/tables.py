"""`veilgp schema draft`: a first schema of a table, for people to agree on.

What it needs is imported when it runs: importing torch takes seconds.
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


def draft_schema(
    table: TablePath,
    *,
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="The column to predict; may be given several times. Its kind (a number, yes or "
            "no, classes, a count) is read from the table."
        ),
    ] = None,
    time_to_event: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TIME:EVENT",
            help="Predict when an event happens: a column of times, and the column that says "
            "whether it happened then or observation ended; may be given several times.",
        ),
    ] = None,
    horizon: Annotated[
        float | None,
        typer.Option(help="The time up to which events are predicted, in the unit of the times."),
    ] = None,
    exposure: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COUNT:COLUMN",
            help="A target that is a count, and the column that says for how long or how much of "
            "what it was counted; may be given several times.",
        ),
    ] = None,
    patient: Annotated[
        str | None, typer.Option(help="The column that identifies the patient.")
    ] = None,
) -> None:
    """Print a draft schema for TABLE as JSON, for you to edit; advice goes to standard error."""
    if not target and not time_to_event:
        raise typer.BadParameter("name what to predict with --target or --time-to-event")
    times = _pairs("--time-to-event", time_to_event)
    exposures = _pairs("--exposure", exposure)
    from client_sdk.errors import ClientError
    from client_sdk.tables import draft
    from kernels.errors import KernelsError

    try:
        drafted = draft(
            table,
            targets=target or (),
            times_to_event=times,
            horizon=horizon,
            exposures=exposures,
            patient=patient,
        )
    except (ClientError, KernelsError) as error:
        _fail([str(error)])
    typer.echo(drafted.to_json())
    for sentence in drafted.advice:
        typer.echo(f"- {sentence}", err=True)


def _pairs(option: str, given: list[str] | None) -> dict[str, str]:
    pairs = {}
    for text in given or ():
        first, colon, second = text.rpartition(":")
        if not (first and colon and second):
            raise typer.BadParameter(
                f"{option} must be two columns with a colon between them, not {text!r}"
            )
        pairs[first] = second
    return pairs


def _fail(problems: list[str]) -> NoReturn:
    for problem in problems:
        typer.echo(problem, err=True)
    raise typer.Exit(1)

"""`veilgp schema draft` and `veilgp check`: preparing a table for a session.

What these commands need is imported when they run: importing torch takes seconds.
"""

from pathlib import Path
from typing import Annotated, NoReturn

import typer

TablePath = Annotated[
    Path, typer.Argument(metavar="TABLE", help="A CSV or Parquet file, or a folder of them.")
]


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
    from client_sdk.tables.draft import draft
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


def check_table(
    table: TablePath,
    schema: Annotated[Path, typer.Option(help="The schema's JSON file.")],
) -> None:
    """Check TABLE against a schema, list all problems and show outcomes; nothing is sent."""
    from client_sdk.errors import ClientError
    from client_sdk.tables.draft import unfinished
    from client_sdk.tables.summary import summarise_table
    from kernels.errors import KernelsError
    from kernels.tables.schema import Schema

    try:
        parsed = Schema.from_json(schema.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        _fail([f"cannot read a schema from {schema}: correct the path"])
    except KernelsError as error:
        _fail([str(error)])
    problems = unfinished(parsed)
    try:
        summary = summarise_table(table, parsed)
    except (ClientError, KernelsError) as error:
        _fail([*problems, str(error)])
    if problems:
        _fail(problems)
    fewest = summary.fewest_level_rows
    levels = "" if fewest is None else f"; the rarest level has {fewest} rows"
    typer.echo(f"{table} fits the schema: {summary.rows} rows{levels}")
    for outcome in summary.outcomes:
        typer.echo(f"  {outcome}")
        for sentence in outcome.doubts():
            typer.echo(f"- target {outcome.name!r}: {sentence}", err=True)


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

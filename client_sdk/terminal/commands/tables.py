"""`veilgp schema draft` and `veilgp schema merge`: schemas of tables, for people to agree on.

What they need is imported when they run: importing torch takes seconds.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from client_sdk.readable import readable
from client_sdk.terminal.commands.failures import reported

if TYPE_CHECKING:
    from client_sdk.tables.draft import Draft

TablePath = Annotated[
    Path,
    typer.Argument(metavar="TABLE", help="A CSV (.csv.gz) or Parquet file, or a folder of them."),
]
DropOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        help="A column to leave out, such as the site's name; may be given several times.",
    ),
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
    drop: DropOption = None,
) -> None:
    """Print a draft schema for TABLE as JSON, for you to edit; advice goes to standard error."""
    if not target and not time_to_event:
        raise typer.BadParameter("name what to predict with --target or --time-to-event")
    times = _pairs("--time-to-event", time_to_event)
    exposures = _pairs("--exposure", exposure)
    with reported():
        from client_sdk.tables.draft import draft

        _print(
            draft(
                table,
                targets=target or (),
                times_to_event=times,
                horizon=horizon,
                exposures=exposures,
                patient=patient,
                drop=drop or (),
            )
        )


def merge_schemas(
    schemas: Annotated[
        list[Path], typer.Argument(metavar="SCHEMA...", help="The JSON files of all sites' drafts.")
    ],
    *,
    drop: DropOption = None,
) -> None:
    """Print one schema for the tables of all sites as JSON; advice goes to standard error.

    Levels are united, bounds widened outward, and cells may be missing where they may at any site.
    Other kinds, units, events or patient columns are conflicts, which are all named.
    """
    with reported():
        from client_sdk.tables.merge import merge_schemas
        from client_sdk.tables.schema_of import schema_of

        _print(merge_schemas({str(path): schema_of(path) for path in schemas}, drop=drop or ()))


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


def _print(draft: "Draft") -> None:
    typer.echo(draft.to_json())
    for sentence in draft.advice:
        typer.echo(f"- {readable(sentence)}", err=True)

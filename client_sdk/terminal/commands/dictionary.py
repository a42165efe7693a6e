"""`veilgp dictionary draft TABLE`: a data dictionary of the site's own, once per data source."""

from pathlib import Path
from typing import Annotated

import typer

from client_sdk.terminal.commands.failures import reported
from client_sdk.terminal.commands.tables import TablePath


def draft_command(
    table: TablePath,
    *,
    schema: Annotated[
        Path | None,
        typer.Option(
            help="A schema's JSON file that you have checked: units, the patient column, "
            "missing codes and which columns have codes are taken from it, bounds and levels "
            "are not."
        ),
    ] = None,
    patient: Annotated[
        str | None, typer.Option(help="The column that identifies the patient.")
    ] = None,
) -> None:
    """Print a data dictionary of TABLE as TOML, for you to check; nothing is sent.

    Bounds are rounded outward, so that they are not the values of single patients.
    """
    with reported():
        from client_sdk.errors import DraftError
        from client_sdk.gate.dictionary_draft import text_of
        from client_sdk.tables.dictionary_draft import draft_dictionary
        from kernels.tables.outcome_cells import label_columns
        from kernels.tables.schema import Schema

        units: dict[str, str] = {}
        labels: set[str] = set()
        codes: dict[str, tuple[float | str, ...]] = {}
        if schema is not None:
            try:
                agreed = Schema.from_json(schema.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError) as error:
                raise DraftError(f"cannot read a schema from {schema}: correct the path") from error
            units = {own.name: own.unit for own in agreed.numeric}
            units |= {own.name: own.unit for own in agreed.targets}
            labels = {own.name for own in agreed.categorical}
            labels |= {name for own in agreed.outcomes for name in label_columns(own)}
            patient, codes = patient or agreed.patient, agreed.missing_codes
        drafted = draft_dictionary(
            table, patient=patient, units=units, labels=labels, missing_codes=codes
        )
        typer.echo(text_of(drafted), nl=False)
        for sentence in drafted.advice:
            typer.echo(f"- {sentence}", err=True)

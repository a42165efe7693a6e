"""`veilgp personal MODEL TABLE --out FOLDER`: this hospital's own model, made and kept at home."""

from pathlib import Path
from typing import Annotated

import typer

from client_sdk.terminal.commands.failures import reported
from client_sdk.terminal.commands.model_options import (
    ModelArgument,
    RosterOption,
    UncertifiedOption,
)
from client_sdk.terminal.commands.session import HomeOption


def personal(
    model: ModelArgument,
    table: Annotated[
        Path, typer.Argument(help="The CSV or Parquet file or folder that takes part.")
    ],
    *,
    out: Annotated[Path, typer.Option(help="The folder to write; for its owner alone.")],
    start: Annotated[
        str | None,
        typer.Option(
            help="kernel: from this table's rows alone. posterior: with what the others' rows say, "
            "as far as it helps; by default where that is possible."
        ),
    ] = None,
    roster: RosterOption = None,
    home: HomeOption = None,
    uncertified: UncertifiedOption = False,
) -> None:
    """Fit a model of this hospital's own rows over a global model's kernel; nothing is sent.

    It prints what the personal model gives this hospital over the global one, on rows that neither
    has seen. The folder must not leave the hospital: single patients can be told from it. Use it
    with `veilgp predict FOLDER TABLE`.
    """
    from client_sdk.model.model import GlobalModel

    with reported():
        loaded = GlobalModel.load(model, roster=roster, home=home, uncertified=uncertified)
        made = loaded.personal(table, start=start, home=home)
        made.save(out)
        typer.echo(repr(made))

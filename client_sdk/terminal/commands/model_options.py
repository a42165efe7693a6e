"""Options of the commands that read a saved model."""

from pathlib import Path
from typing import Annotated

import typer

ModelArgument = Annotated[Path, typer.Argument(help="The folder of the saved model.")]
RosterOption = Annotated[
    Path | None,
    typer.Option(
        help="JSON file with the keys of the hospitals that you trust; by default those that were "
        "confirmed in the home."
    ),
]
UncertifiedOption = Annotated[
    bool,
    typer.Option("--uncertified", help="Accept a model that no hospital known here vouches for."),
]

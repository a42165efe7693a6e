"""`veilgp card MODEL`: the card of a saved model."""

from pathlib import Path
from typing import Annotated

import typer

from client_sdk.terminal.commands.failures import reported


def card(
    model: Annotated[Path, typer.Argument(help="The folder of the saved model.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the card as JSON.")] = False,
) -> None:
    """Show what a saved model predicts, how well, and how it was protected."""
    from client_sdk.model.model import GlobalModel

    with reported():
        loaded = GlobalModel.load(model)
        typer.echo(loaded.artifact.card.to_json() if as_json else repr(loaded.card))

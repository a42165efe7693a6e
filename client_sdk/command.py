"""The shell command `veilgp`."""

from importlib.metadata import version
from typing import Annotated

import typer

from client_sdk.commands import card, predict, session, tables


def application() -> typer.Typer:
    """Build the command line."""
    app = typer.Typer(
        name="veilgp",
        help="Hospitals train one Gaussian process together; the coordinator only ever sees sums.",
        no_args_is_help=True,
    )

    @app.callback(invoke_without_command=True)
    def root(
        *,
        show_version: Annotated[
            bool, typer.Option("--version", help="Print the version and exit.")
        ] = False,
    ) -> None:
        if show_version:
            typer.echo(f"veilgp {version('veilgp')}")
            raise typer.Exit

    app.command("predict")(predict.predict)
    app.command("card")(card.card)
    session.register(app)
    tables.register(app)
    return app


def main() -> None:
    """Run the command line."""
    application()()

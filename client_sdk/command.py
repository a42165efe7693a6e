"""The shell command `veilgp`.

Commands of other rooms (the coordinator's `serve`) register themselves under the entry-point
group `veilgp.commands`, so that a hospital's install carries no server code.
"""

from importlib.metadata import entry_points, version
from typing import Annotated

import typer


def application() -> typer.Typer:
    """Build the command line: what the SDK offers, and what else is installed beside it."""
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

    for command in entry_points(group="veilgp.commands"):
        app.command(command.name)(command.load())
    return app


def main() -> None:
    """Run the command line."""
    application()()

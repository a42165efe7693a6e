"""The shell command `veilgp`."""

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points, version
from typing import Annotated

import typer

from client_sdk.terminal.commands import (
    card,
    check,
    doctor,
    ledger,
    policy,
    predict,
    session,
    session_draft,
    sources,
    tables,
    verify,
)


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
    app.command("verify")(verify.verify)
    app.command("ledger")(ledger.ledger_command)
    session.register(app)
    policy.register(app)
    session_draft.register(app)
    sources.register(app)
    tables.register(app)
    check.register(app)
    _add_plugins(app, "veilgp.commands")
    _add_plugins(doctor.register(app), "veilgp.doctor")
    return app


def _add_plugins(app: typer.Typer, group: str) -> None:
    for plugin in entry_points(group=group):
        app.command(
            plugin.name,
            help="Part of the coordinator; needs the 'server' extra of veilgp.",
            context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
            add_help_option=False,
        )(_of_plugin(plugin))


def _of_plugin(plugin: EntryPoint) -> Callable[[typer.Context], None]:
    """Return a command that passes its arguments to another package, imported only then."""

    def command(context: typer.Context) -> None:
        try:
            run = plugin.load()
        except ModuleNotFoundError as error:
            typer.echo(
                f"{plugin.name} is part of the coordinator and needs {error.name}, which is not "
                "installed. Install it with: pip install 'veilgp[server]'",
                err=True,
            )
            raise typer.Exit(1) from None
        run(context.args)

    return command


def main() -> None:
    """Run the command line."""
    application()()

"""The shell command `veilgp`."""

from collections.abc import Callable
from typing import Annotated

import typer

from client_sdk.terminal.commands import (
    card,
    check,
    doctor,
    identity,
    ledger,
    log,
    personal,
    policy,
    predict,
    roster,
    session,
    session_draft,
    sources,
    tables,
    verify,
)
from client_sdk.terminal.workflow import Command, Section, application_of

_HOSPITAL = (
    Section(
        "Prepare a table; nothing is sent",
        (
            Command("schema draft", "Draft a table's schema, to agree on", tables.draft_schema),
            Command(
                "schema merge", "Merge all sites' drafts into one schema", tables.merge_schemas
            ),
            Command("check", "Compare a table with a schema or a session", check.check_command),
        ),
    ),
    Section(
        "Know who takes part",
        (
            Command(
                "identity", "Show this hospital's key and fingerprint", identity.identity_command
            ),
            Command("roster", "Make roster.json from all identities", roster.roster_command),
            Command(
                "confirm", "Confirm a member's key after a telephone call", identity.confirm_command
            ),
        ),
    ),
    Section(
        "Take part in a session",
        (
            Command(
                "doctor hospital", "Check whether this machine is ready", doctor.hospital_command
            ),
            Command("policy draft", "Draft a policy that allows a session", policy.draft_command),
            Command("approve", "Accept policy and members, and enrol", policy.approve_command),
            Command("join", "Take part with a table, and get the model", session.join_command),
        ),
    ),
    Section(
        "See what has left",
        (
            Command("log", "List what has left this hospital", log.log_command),
            Command("ledger", "Show what became known and was spent", ledger.ledger_command),
        ),
    ),
    Section(
        "Use a model; nothing is sent",
        (
            Command("card", "Show what a model predicts, and how well", card.card),
            Command("verify", "Show which hospitals vouch for a model", verify.verify),
            Command("predict", "Predict every row of a table", predict.predict),
            Command("personal", "Make a model of this hospital's own rows", personal.personal),
        ),
    ),
    Section(
        "Decide later on",
        (
            Command(
                "approve-table", "Approve a table that has changed", sources.approve_table_command
            ),
            Command(
                "approve-address", "Accept a session's new address", sources.approve_address_command
            ),
            Command(
                "row-band", "Choose for how many rows answers are timed", sources.row_band_command
            ),
            Command(
                "withdraw", "Withdraw samples of this hospital's model", session.withdraw_command
            ),
        ),
    ),
)
"""What a hospital does, in this order."""

_COORDINATOR = (
    ("serve", "Run the coordinator"),
    ("token", "Replace the admin's token"),
    ("doctor coordinator", "Check whether a coordinator is in order"),
)
"""Commands of another package: entry points, which are looked for when one of them runs."""


def application() -> typer.Typer:
    """Build the command line."""
    app = application_of(
        (*_HOSPITAL, _study()),
        name="veilgp",
        help="Hospitals train one Gaussian process together; the coordinator only ever sees sums.",
        epilog="veilgp COMMAND --help explains a command.",
    )

    @app.callback(invoke_without_command=True)
    def root(
        *,
        show_version: Annotated[
            bool, typer.Option("--version", help="Print the version and exit.")
        ] = False,
    ) -> None:
        if show_version:
            from importlib.metadata import version

            typer.echo(f"veilgp {version('veilgp')}")
            raise typer.Exit

    return app


def _study() -> Section:
    """Return the commands of who runs a study."""
    drafting = Command(
        "session draft", "Draft a session, with its program to edit", session_draft.draft_command
    )
    theirs = (Command(words, said, _run_by(words), passes_on=True) for words, said in _COORDINATOR)
    return Section("Run a study; the coordinator needs veilgp[server]", (drafting, *theirs))


def _run_by(words: str) -> Callable[[typer.Context], None]:
    """Return a command that passes its arguments to another package, imported only then."""

    def command(context: typer.Context) -> None:
        from importlib.metadata import entry_points

        group = "veilgp.doctor" if words.startswith("doctor ") else "veilgp.commands"
        found = entry_points(group=group, name=words.rpartition(" ")[2])
        try:
            run = next(iter(found)).load()
        except (StopIteration, ModuleNotFoundError) as error:
            what = getattr(error, "name", None) or "the package 'service'"
            typer.echo(
                f"veilgp {words} is part of the coordinator and needs {what}, which is not "
                "installed. Install it with: pip install 'veilgp[server]'",
                err=True,
            )
            raise typer.Exit(1) from None
        run(context.args)

    return command


def main() -> None:
    """Run the command line."""
    application()(prog_name="veilgp")

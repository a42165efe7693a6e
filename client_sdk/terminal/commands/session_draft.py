"""`veilgp session draft SCHEMA`: the body of `POST /sessions`, with the automatic program."""

from pathlib import Path
from typing import Annotated

import typer

from client_sdk.terminal.commands.failures import reported

EPSILON, DELTA = 1.0, 1e-5
"""What a draft proposes to spend with differential privacy."""


def draft_command(
    schema: Annotated[Path, typer.Argument(metavar="SCHEMA", help="The schema's JSON file.")],
    *,
    members: Annotated[int, typer.Option(help="How many hospitals will take part.")] = 5,
    name: Annotated[
        str | None, typer.Option(help="The session's name; by default the targets' names.")
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="With differential privacy.")] = False,
    epsilon: Annotated[
        float | None,
        typer.Option(help=f"With --private, the most that is spent; by default {EPSILON:g}."),
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help=f"With --private; by default {DELTA:g}.")
    ] = None,
    members_only: Annotated[
        bool, typer.Option("--members-only", help="The coordinator does not get the model.")
    ] = False,
    max_sums: Annotated[
        int | None, typer.Option(help="The most sums; with fewer, kernels are trained less.")
    ] = None,
    max_features: Annotated[
        int | None,
        typer.Option(
            help="The most features of a kernel. A site's policy asks for three rows for each."
        ),
    ] = None,
    smallest_table: Annotated[
        int | None,
        typer.Option(
            help="How many rows the smallest hospital has, as `veilgp check TABLE` prints it "
            "there: a power of two. The program is made to fit it."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the JSON only.")] = False,
) -> None:
    """Print the JSON body of POST /sessions for a schema, with the program written out, to edit.

    Whoever does not want to edit it need not state kernel and stages: the coordinator makes the
    same program. What it will do and cost is printed in words on standard error.
    """
    if not private and (epsilon is not None or delta is not None):
        raise typer.BadParameter("--epsilon and --delta need --private")
    with reported():
        from client_sdk.session_draft import draft_session
        from client_sdk.tables.draft import unfinished
        from client_sdk.tables.schema_of import schema_of

        agreed = schema_of(schema)
        budget = (
            EPSILON if epsilon is None else epsilon,
            DELTA if delta is None else delta,
        )
        drafted = draft_session(
            agreed,
            members=members,
            name=name,
            budget=budget if private else None,
            members_only=members_only,
            **({} if max_sums is None else {"max_sums": max_sums}),
            **({} if max_features is None else {"max_features": max_features}),
            smallest_table=smallest_table,
        )
        typer.echo(drafted.to_json())
        if quiet:
            return
        for sentence in (*drafted.words, *unfinished(agreed)):
            typer.echo(f"- {sentence}", err=True)

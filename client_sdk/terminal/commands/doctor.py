"""`veilgp doctor hospital`; the coordinator adds its own checks to the group."""

import os
from pathlib import Path
from typing import Annotated

import typer

from client_sdk.terminal.commands.session import CaOption, HomeOption, HttpOption


def hospital_command(
    link: Annotated[
        str | None, typer.Argument(help="Join link (in quotes), or https://host/sessions/<id>.")
    ] = None,
    *,
    policy: Annotated[Path | None, typer.Option(help="The site's policy, a TOML file.")] = None,
    home: HomeOption = None,
    ca: CaOption = None,
    allow_http: HttpOption = False,
) -> None:
    """Check home, journal, disk, proxy and policy; with a link also the coordinator."""
    from client_sdk.network.exchange import Clock
    from client_sdk.readable import readable
    from client_sdk.terminal import doctor

    clock = Clock()
    checks = [*doctor.of_home(home), doctor.of_disk(home), doctor.of_proxy(os.environ)]
    if policy is not None:
        checks.append(doctor.of_policy(policy, today=clock.now().date()))
    if link is not None:
        checks += doctor.of_coordinator(link, ca=ca, allow_http=allow_http, clock=clock)
    for check in checks:
        typer.echo(readable(check.line()))
    if not all(check.is_well for check in checks):
        raise typer.Exit(1)

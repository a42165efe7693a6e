"""The shell commands `veilgp serve`, `token` and `doctor coordinator`, found by name."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
import uvicorn

from privacy.health_check import Check
from service import readiness
from service.app import create_app
from service.database import data_directory
from service.database.database import Database
from service.errors import ServiceError, SettingsError
from service.http import logs, tokens
from service.http.connections import Prompt
from service.sample import seed as seed_sample
from service.settings import Settings, load

_DataDir = Annotated[Path | None, typer.Option(help="Where everything is kept.")]
_Config = Annotated[Path | None, typer.Option(help="A TOML file with settings.")]


def serve(arguments: Sequence[str]) -> None:
    """Run `veilgp serve` with these arguments."""
    app = typer.Typer(add_completion=False)
    app.command()(_serve)
    _run(app, "veilgp serve", arguments)


def token(arguments: Sequence[str]) -> None:
    """Run `veilgp token` with these arguments."""
    app = typer.Typer(add_completion=False, no_args_is_help=True)
    app.callback()(_about_tokens)
    app.command("reset")(_reset)
    _run(app, "veilgp token", arguments)


def doctor(arguments: Sequence[str]) -> None:
    """Run `veilgp doctor coordinator` with these arguments."""
    app = typer.Typer(add_completion=False)
    app.command()(_doctor)
    _run(app, "veilgp doctor coordinator", arguments)


def server(settings: Settings) -> uvicorn.Server:
    """Give the server of one process; it stops gracefully on SIGINT and SIGTERM."""
    config = uvicorn.Config(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        log_config=logs.configuration(settings.log_format, settings.log_level),
        # It would say who asks when, by address; at the level debug there are lines without.
        access_log=False,
        http=Prompt,
        limit_concurrency=settings.max_connections,
        server_header=False,
        # Who is asked for is what was signed, not what a header says.
        proxy_headers=False,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        timeout_graceful_shutdown=settings.shutdown_s,
    )
    return uvicorn.Server(config)


def _serve(
    data_dir: _DataDir = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="The port to listen on.")] = None,
    public_url: Annotated[str | None, typer.Option(help="How hospitals reach it.")] = None,
    tls_certificate: Annotated[Path | None, typer.Option(help="PEM file.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option(help="text or json.")] = None,
    config: _Config = None,
    *,
    sample: Annotated[
        bool, typer.Option("--sample", help="Begin with a made-up session and its model.")
    ] = False,
) -> None:
    """Run the coordinator; the first time it prints the admin's token, once."""
    flags = {
        "data_dir": data_dir,
        "host": host,
        "port": port,
        "public_url": public_url,
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
        "log_level": log_level,
        "log_format": log_format,
    }
    settings = _settings(flags, config)
    alone = data_directory.held(settings.data_dir) if settings.is_sqlite else nullcontext()
    with alone:
        _announce_first(settings)
        if sample:
            _seed(settings)
        running = server(settings)
        running.run()
    if not running.started:
        raise typer.Exit(1)


def _about_tokens() -> None:
    """Manage the admin's token."""


def _reset(data_dir: _DataDir = None, config: _Config = None) -> None:
    """Print a new admin's token; every older one is worthless from then on."""
    settings = _settings({"data_dir": data_dir}, config)
    database = _database(settings)
    with database.changing() as connection:
        issued = tokens.reset_admin(connection, now=time.time())
        _show(issued)
    database.close()


def _doctor(data_dir: _DataDir = None, config: _Config = None) -> None:
    """Check settings, data directory, database, disk, clock, TLS and public URL, a line each."""
    found = list(_checked(data_dir, config))
    for check in found:
        typer.echo(check.line())
    if not all(check.is_well for check in found):
        raise typer.Exit(1)


def _checked(data_dir: Path | None, config: Path | None) -> Iterator[Check]:
    try:
        settings = _settings({"data_dir": data_dir}, config)
    except SettingsError as error:
        yield Check("settings", str(error), "correct the line, flag or variable named")
        return
    yield Check("settings", "all are known and possible")
    yield from readiness.everything(settings, now=time.time())


def _announce_first(settings: Settings) -> None:
    database = _database(settings)
    with database.changing() as connection:
        issued = tokens.first_admin(connection, now=time.time())
        # Shown before it counts: a death in between makes another, never one that nobody knows.
        if issued is not None:
            _show(issued)
    database.close()


def _seed(settings: Settings) -> None:
    database = _database(settings)
    with database.changing() as connection:
        seed_sample(connection, now=time.time())
    database.close()


def _show(issued: tokens.Issued) -> None:
    typer.echo(f"Admin token, shown this once (keep it safe):\n\n    {issued.secret}\n")


def _database(settings: Settings) -> Database:
    data_directory.prepare(settings.data_dir)
    database = Database(settings.url)
    database.migrate()
    return database


def _settings(flags: dict[str, Any], config: Path | None) -> Settings:
    given = {name: value for name, value in flags.items() if value is not None}
    return load(given, config=config)


def _run(app: typer.Typer, name: str, arguments: Sequence[str]) -> None:
    # What the coordinator keeps is its owner's alone, whatever directory it was given.
    os.umask(0o077)
    try:
        app(list(arguments), prog_name=name)
    except ServiceError as error:
        typer.echo(f"{error} [{error.code}]", err=True)
        raise typer.Exit(1) from None

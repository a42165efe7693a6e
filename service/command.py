"""The shell commands `veilgp serve`, `veilgp token` and `veilgp doctor coordinator`."""

import logging
import os
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
import uvicorn

from privacy.health_check import Check
from service import readiness
from service.database import data_directory
from service.database.database import Database
from service.errors import ServiceError, SettingsError
from service.http import logs, tokens
from service.http.connections import BACKLOG, KEEP_ALIVE_S, guarded
from service.settings import Settings, load

_DataDir = Annotated[Path | None, typer.Option(help="Directory of all the coordinator's data.")]
_Config = Annotated[Path | None, typer.Option(help="TOML file with settings.")]

_log = logging.getLogger(__name__)

_OTHER_FILES = 512
"""Open files besides connections: the database's, spooled uploads, logs."""


def serve(arguments: Sequence[str]) -> None:
    """Run `veilgp serve` with these arguments."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(_serve)
    _run(app, "veilgp serve", arguments)


def token(arguments: Sequence[str]) -> None:
    """Run `veilgp token` with these arguments."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)
    app.callback()(_about_tokens)
    app.command("reset")(_reset)
    _run(app, "veilgp token", arguments)


def doctor(arguments: Sequence[str]) -> None:
    """Run `veilgp doctor coordinator` with these arguments."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(_doctor)
    _run(app, "veilgp doctor coordinator", arguments)


def server(settings: Settings) -> uvicorn.Server:
    """Return the server of one process; it stops gracefully on SIGINT and SIGTERM."""
    from service.app import create_app  # loads torch, for which tokens and checks need not wait

    config = uvicorn.Config(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        log_config=logs.configuration(settings.log_format, settings.log_level),
        # It would log who sends requests when, by IP address. At log level debug, `service` logs
        # requests without addresses.
        access_log=False,
        # Limits connections and starts TLS; uvicorn's own limit counts silent connections too.
        http=guarded(settings),
        ws="none",
        timeout_keep_alive=KEEP_ALIVE_S,
        backlog=BACKLOG,
        server_header=False,
        # The host that counts is the signed one, not the one in a proxy's header.
        proxy_headers=False,
        timeout_graceful_shutdown=settings.shutdown_s,
    )
    return _Server(config, settings)


class _Server(uvicorn.Server):
    """Announces what it listens on, and where page and console are.

    uvicorn does not know the scheme that is spoken: connections start TLS themselves.
    """

    def __init__(self, config: uvicorn.Config, settings: Settings) -> None:
        super().__init__(config)
        self._scheme = "http" if settings.tls_certificate is None else "https"
        self._public_url = settings.public_url

    def _log_started_message(self, listeners: Any) -> None:
        host, port = listeners[0].getsockname()[:2]
        own = f"{self._scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        _log.info("listening on %s", own)
        _log.info("page %s/", self._public_url or own)
        _log.info("console %s/docs", self._public_url or own)


def _serve(
    data_dir: _DataDir = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    public_url: Annotated[str | None, typer.Option(help="URL that hospitals use.")] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="PEM file with the certificate chain.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file with the private key.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option(help="text or json.")] = None,
    config: _Config = None,
    *,
    sample: Annotated[
        bool, typer.Option("--sample", help="Add sample sessions and a sample model.")
    ] = False,
) -> None:
    """Run the coordinator; the first start prints the admin token, which is never shown again."""
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
        _allow_open_files(settings)
        running = server(settings)
        running.run()
    if not running.started:
        raise typer.Exit(1)


def _allow_open_files(settings: Settings) -> None:
    """Raise this process's limit of open files, often 1024, to what its connections need."""
    needed = settings.max_connections + BACKLOG + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise SettingsError(
            f"max_connections = {settings.max_connections} needs {needed} open files, and this "
            f"process may have {hard}: raise its limit (LimitNOFILE in systemd, ulimit -n) or "
            "lower max_connections."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _about_tokens() -> None:
    """Manage the admin token."""


def _reset(data_dir: _DataDir = None, config: _Config = None) -> None:
    """Print a new admin token and revoke all older ones."""
    settings = _settings({"data_dir": data_dir}, config)
    database = _database(settings)
    with database.changing() as connection:
        issued = tokens.reset_admin(connection, now=time.time())
        _show(issued)
    database.close()


def _doctor(data_dir: _DataDir = None, config: _Config = None) -> None:
    """Check settings, data directory, disk, database, clock, TLS and public URL, one line each."""
    found = list(_checked(data_dir, config))
    for check in found:
        typer.echo(check.line())
    if not all(check.is_well for check in found):
        raise typer.Exit(1)


def _checked(data_dir: Path | None, config: Path | None) -> Iterator[Check]:
    try:
        settings = _settings({"data_dir": data_dir}, config)
    except SettingsError as error:
        yield Check("settings", str(error), "correct the setting named here")
        return
    yield Check("settings", "all settings are valid")
    yield from readiness.everything(settings, now=time.time())


def _announce_first(settings: Settings) -> None:
    database = _database(settings)
    with database.changing() as connection:
        issued = tokens.first_admin(connection, now=time.time())
        # Printed before it is committed: after a crash in between, the next start makes another
        # token. There is never a valid token that nobody has seen.
        if issued is not None:
            _show(issued)
    database.close()


def _seed(settings: Settings) -> None:
    from service.sample import seed as seed_sample

    database = _database(settings)
    with database.changing() as connection:
        seed_sample(connection, now=time.time())
    database.close()


def _show(issued: tokens.Issued) -> None:
    typer.echo(f"Admin token (keep it safe; it is not shown again):\n\n    {issued.secret}\n")


def _database(settings: Settings) -> Database:
    data_directory.prepare(settings.data_dir)
    database = Database(settings.url)
    database.migrate()
    return database


def _settings(flags: dict[str, Any], config: Path | None) -> Settings:
    given = {name: value for name, value in flags.items() if value is not None}
    return load(given, config=config)


def _run(app: typer.Typer, name: str, arguments: Sequence[str]) -> None:
    # Only the owner may read the coordinator's files, in whichever directory they are.
    os.umask(0o077)
    try:
        app(list(arguments), prog_name=name)
    except ServiceError as error:
        typer.echo(f"{error} [{error.code}]", err=True)
        raise typer.Exit(1) from None

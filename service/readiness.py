"""Health checks of a coordinator, for `/readyz` and `veilgp doctor coordinator`.

Each check is one line: what was checked, the result and, if it failed, what to do.
"""

import os
import shutil
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from privacy.health_check import Check
from service.database import schema_version
from service.database.database import Database
from service.settings import Settings

LEAST_FREE = 512 << 20
"""Bytes of free disk below which a coordinator is not ready: uploads are spooled to disk."""
_SOON_DAYS = 14
_RELEASED = datetime(2026, 1, 1, tzinfo=UTC)
"""A correct clock is never before this date."""


def readiness(settings: Settings, database: Database, *, engine_alive: bool) -> Iterator[Check]:
    """Check what every request needs."""
    yield from of_database(database)
    yield of_disk(settings)
    yield Check(
        "engine",
        "the engine is running" if engine_alive else "the engine has stopped",
        None if engine_alive else "restart the coordinator; its log says why the engine stopped",
    )


def everything(settings: Settings, *, now: float) -> Iterator[Check]:
    """Run all checks of a coordinator, which need not be running; nothing is created."""
    directory = of_directory(settings)
    yield directory
    if directory.is_well or settings.data_dir.is_dir():
        yield of_disk(settings)
    file = make_url(settings.url).database
    if settings.is_sqlite and not (file and Path(file).is_file()):
        fix = "start the coordinator once with `veilgp serve`, or correct the setting data_dir"
        yield Check("database", f"{file} does not exist", fix)
    else:
        database = Database(settings.url)
        yield from of_database(database)
        database.close()
    yield of_clock(now)
    yield from of_tls(settings, now=now)
    yield of_public_url(settings)


def of_database(database: Database) -> Iterator[Check]:
    """Check that the database answers and has the schema of this version."""
    head = schema_version.newest()
    try:
        with database.reading() as connection:
            connection.execute(text("SELECT 1"))
            found = schema_version.revision(connection)
    except SQLAlchemyError as error:
        yield Check(
            "database",
            f"the database does not answer ({type(error).__name__})",
            "start the database; check the setting database_url and the database's access rules",
        )
        return
    yield Check("database", f"{database.engine.dialect.name} answers")
    if found == head:
        yield Check("migrations", f"at {head}")
    else:
        yield Check(
            "migrations",
            f"the database has schema {found or 'none'}, this version of veilgp needs {head}",
            "start the coordinator once with `veilgp serve`, which migrates the database"
            if schema_version.is_known(found)
            else "run the version of veilgp that created it, or start with an empty database",
        )


def of_disk(settings: Settings) -> Check:
    """Check that there is enough free disk for uploads."""
    try:
        free = shutil.disk_usage(settings.data_dir).free
    except OSError as error:
        return Check("disk", f"{settings.data_dir}: {error.strerror}", "check the setting data_dir")
    said = f"{free >> 20:,} MiB free in {settings.data_dir}"
    fix = f"free at least {LEAST_FREE >> 20} MiB" if free < LEAST_FREE else None
    return Check("disk", said, fix)


def of_directory(settings: Settings) -> Check:
    """Check that the data directory exists, is writable, and is closed to other users."""
    directory = settings.data_dir
    if not directory.is_dir():
        fix = "start the coordinator once, or correct the setting data_dir"
        return Check("data directory", f"{directory} does not exist", fix)
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        fix = "run as the user who owns it, or make the current user its owner"
        return Check("data directory", f"{directory} is not writable", fix)
    if directory.stat().st_mode & 0o077:
        return Check(
            "data directory", f"other users have access to {directory}", f"chmod 700 {directory}"
        )
    return Check("data directory", f"only the owner has access to {directory}")


def of_clock(now: float) -> Check:
    """Check that the clock is plausible: it must be within five minutes of the members' clocks."""
    moment = datetime.fromtimestamp(now, UTC)
    said = f"{moment:%Y-%m-%d %H:%M:%S} UTC"
    return Check("clock", said, None if moment >= _RELEASED else "set the clock and enable NTP")


def of_tls(settings: Settings, *, now: float) -> Iterator[Check]:
    """Check certificate and key, or state why none are needed."""
    if settings.tls_certificate is None or settings.tls_key is None:
        who = (
            "handled by a proxy (behind_tls_proxy)"
            if settings.behind_tls_proxy
            else "off: only this machine can connect"
        )
        yield Check("TLS", who)
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            settings.tls_certificate, settings.tls_key
        )
        found = x509.load_pem_x509_certificates(settings.tls_certificate.read_bytes())[0]
    except (OSError, ssl.SSLError, ValueError):
        yield Check(
            "TLS",
            f"{settings.tls_certificate} and {settings.tls_key} are not matching PEM files",
            "set tls_certificate to the certificate chain and tls_key to its private key",
        )
        return
    days = (found.not_valid_after_utc - datetime.fromtimestamp(now, UTC)).days
    said = f"the certificate is valid until {found.not_valid_after_utc:%Y-%m-%d}"
    fix = "renew it and restart the coordinator" if days < _SOON_DAYS else None
    yield Check("TLS", said, fix)
    if settings.tls_key.stat().st_mode & 0o007:
        yield Check("TLS key", "every user can read it", f"chmod 600 {settings.tls_key}")


def of_public_url(settings: Settings) -> Check:
    """Check that join links will work at the hospitals."""
    url = settings.public_url
    if url is None:
        return Check("public URL", "not set: only this machine can connect")
    if url.startswith("http://"):
        return Check("public URL", f"{url} is not https", "set an https URL: hospitals refuse http")
    return Check("public URL", url)

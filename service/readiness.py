"""Whether a coordinator has what it needs; for `/readyz` and for `veilgp doctor coordinator`.

Each check is a line: what was looked at, whether it is well, and if not, what to do.
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
"""Octets of disk below which a coordinator should get no new work: uploads are spooled."""
_SOON_DAYS = 14
_RELEASED = datetime(2026, 1, 1, tzinfo=UTC)
"""No clock that is right is before this."""


def readiness(settings: Settings, database: Database, *, engine_alive: bool) -> Iterator[Check]:
    """Check what every request needs."""
    yield from of_database(database)
    yield of_disk(settings)
    yield Check(
        "engine",
        "runs are worked on" if engine_alive else "nothing works on runs",
        None if engine_alive else "restart the coordinator; its log says what ended the engine",
    )


def everything(settings: Settings, *, now: float) -> Iterator[Check]:
    """Check a coordinator that need not run; nothing is made that is not there."""
    directory = of_directory(settings)
    yield directory
    if directory.is_well or settings.data_dir.is_dir():
        yield of_disk(settings)
    file = make_url(settings.url).database
    if settings.is_sqlite and not (file and Path(file).is_file()):
        fix = "start the coordinator once with `veilgp serve`, or correct the setting data_dir"
        yield Check("database", f"{file} is not there", fix)
    else:
        database = Database(settings.url)
        yield from of_database(database)
        database.close()
    yield of_clock(now)
    yield from of_tls(settings, now=now)
    yield of_public_url(settings)


def of_database(database: Database) -> Iterator[Check]:
    """Check that the database answers, and has the form that this version knows."""
    head = schema_version.newest()
    try:
        with database.reading() as connection:
            connection.execute(text("SELECT 1"))
            found = schema_version.revision(connection)
    except SQLAlchemyError as error:
        yield Check(
            "database",
            f"it does not answer ({type(error).__name__})",
            "start it, and check the setting database_url and what may connect to it",
        )
        return
    yield Check("database", f"{database.engine.dialect.name} answers")
    if found == head:
        yield Check("migrations", f"at {head}")
    else:
        yield Check(
            "migrations",
            f"the database is at {found or 'nothing'}, this version at {head}",
            "start the coordinator once with `veilgp serve`, which migrates"
            if schema_version.is_known(found)
            else "run the version of veilgp that wrote it, or begin with an empty database",
        )


def of_disk(settings: Settings) -> Check:
    """Check that there is room for uploads."""
    try:
        free = shutil.disk_usage(settings.data_dir).free
    except OSError as error:
        return Check("disk", f"{settings.data_dir}: {error.strerror}", "check the setting data_dir")
    said = f"{free >> 20:,} MiB free in {settings.data_dir}"
    fix = f"make room: at least {LEAST_FREE >> 20} MiB" if free < LEAST_FREE else None
    return Check("disk", said, fix)


def of_directory(settings: Settings) -> Check:
    """Check that the data directory is there, is ours, and is nobody else's."""
    directory = settings.data_dir
    if not directory.is_dir():
        fix = "start the coordinator once, or correct the setting data_dir"
        return Check("data directory", f"{directory} is not there", fix)
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        fix = "run as the user who owns it, or give it to this one"
        return Check("data directory", f"{directory} cannot be written", fix)
    if directory.stat().st_mode & 0o077:
        return Check(
            "data directory", f"others may look into {directory}", f"chmod 700 {directory}"
        )
    return Check("data directory", f"{directory} is its owner's alone")


def of_clock(now: float) -> Check:
    """Check that the clock can be right: members' requests are refused five minutes off."""
    moment = datetime.fromtimestamp(now, UTC)
    said = f"it is {moment:%Y-%m-%d %H:%M:%S} UTC here"
    return Check("clock", said, None if moment >= _RELEASED else "set it, and run NTP")


def of_tls(settings: Settings, *, now: float) -> Iterator[Check]:
    """Check certificate and key, or say who else speaks TLS."""
    if settings.tls_certificate is None or settings.tls_key is None:
        who = (
            "a proxy speaks it" if settings.behind_tls_proxy else "none: only this machine listens"
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
            f"{settings.tls_certificate} and {settings.tls_key} are no pair of PEM files",
            "give the chain's file as tls_certificate, and the key that belongs to it as tls_key",
        )
        return
    days = (found.not_valid_after_utc - datetime.fromtimestamp(now, UTC)).days
    said = f"the certificate is valid until {found.not_valid_after_utc:%Y-%m-%d}"
    fix = "renew it, and restart the coordinator" if days < _SOON_DAYS else None
    yield Check("TLS", said, fix)
    if settings.tls_key.stat().st_mode & 0o007:
        yield Check("TLS key", "every user may read it", f"chmod 600 {settings.tls_key}")


def of_public_url(settings: Settings) -> Check:
    """Check that join links will work elsewhere than here."""
    url = settings.public_url
    if url is None:
        if settings.behind_tls_proxy:
            return Check(
                "public URL",
                "join links would begin with http, as the proxy asks",
                "set public_url to the https address that hospitals use",
            )
        return Check("public URL", "not set: join links begin as the admin's own requests do")
    if url.startswith("http://"):
        return Check("public URL", f"{url} is not https", "hospitals refuse it: give an https one")
    return Check("public URL", url)

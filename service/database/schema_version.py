"""The schema revision of a database, and its upgrade to the newest.

A database of another version of veilgp is refused, and nothing in it changes.
"""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection

from service.errors import DatabaseOfAnotherVersion

_MIGRATIONS = Path(__file__).parent / "migrations"


def newest() -> str:
    """Return the revision of `service.database.tables`."""
    head = _scripts().get_current_head()
    if head is None:
        raise RuntimeError("there are no migrations")
    return head


def revision(connection: Connection) -> str | None:
    """Return the revision of a database; None if it has none, such as an empty database."""
    return MigrationContext.configure(connection).get_current_revision()


def is_known(found: str | None) -> bool:
    """Whether migrations lead from a revision to the newest."""
    if found is None:
        return True
    try:
        return _scripts().get_revision(found) is not None
    except CommandError:
        return False


def upgrade(connection: Connection) -> None:
    """Upgrade a database to the newest revision; the caller commits."""
    found = revision(connection)
    if not is_known(found):
        raise DatabaseOfAnotherVersion(
            f"The database has the schema revision {found!r:.40}, but this version of veilgp needs "
            f"{newest()!r}: another version created it. Nothing was changed. Run the version that "
            "created it, or start with an empty database: set another data_dir or database_url."
        )
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(_MIGRATIONS))

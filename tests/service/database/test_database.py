"""The database has the schema that the code expects, from the first table on."""

import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import insert, inspect, select, text
from sqlalchemy.exc import IntegrityError, OperationalError

from service.database import schema_version
from service.database.database import Database
from service.database.tables import metadata, public_sets
from service.errors import DatabaseOfAnotherVersion
from service.readiness import of_database
from service.settings import Settings
from tests.service.coordinator import Coordinator
from tests.stores import EVERY_STORE, Store

pytestmark = EVERY_STORE


@pytest.fixture
def database(tmp_path: Path, store: Store) -> Iterator[Database]:
    database = Database(Settings(data_dir=tmp_path, **store).url)
    database.migrate()
    yield database
    database.close()


def test_migrations_lead_to_the_tables_of_the_code(database: Database) -> None:
    with database.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_migrating_again_changes_nothing(database: Database) -> None:
    row = {"name": "a", "columns": "{}", "created_at": 0.0}
    with database.changing() as connection:
        connection.execute(insert(public_sets).values(row))
    database.migrate()
    with database.reading() as connection:
        assert connection.execute(select(public_sets.c.name)).scalars().all() == ["a"]


@pytest.mark.parametrize("revision", ["0001", "0004", "of_a_later_version"])
def test_a_database_of_another_version_is_refused_by_name_and_left_as_it_is(
    database: Database, revision: str
) -> None:
    with database.changing() as connection:
        connection.exec_driver_sql("DROP TABLE leases")
        written = text("UPDATE alembic_version SET version_num = :revision")
        connection.execute(written, {"revision": revision})
    with pytest.raises(DatabaseOfAnotherVersion, match=f"'{revision}'.*empty database") as refused:
        database.migrate()
    assert refused.value.code == "database.other_version"
    with database.reading() as connection:
        assert "leases" not in inspect(connection).get_table_names()
        assert schema_version.revision(connection) == revision
    with database.changing() as connection:  # nothing is held
        connection.execute(select(public_sets))
    fixes = {each.name: each.fix for each in of_database(database)}
    assert "the version of veilgp that created it" in (fixes["migrations"] or "")


def test_a_change_that_fails_changes_nothing(database: Database) -> None:
    row = {"name": "a", "columns": "{}", "created_at": 0.0}
    with pytest.raises(IntegrityError), database.changing() as connection:
        connection.execute(insert(public_sets), [row, row])
    with database.reading() as connection:
        assert connection.execute(select(public_sets)).all() == []


def test_a_database_that_stays_locked_is_an_error_of_the_database(database: Database) -> None:
    if not database.is_sqlite:
        pytest.skip("PostgreSQL has no lock on the whole of it")
    with database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA busy_timeout=1")
    other = sqlite3.connect(str(database.engine.url.database), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(OperationalError, match="locked"), database.changing():
        pass
    other.close()
    with database.changing() as connection:
        connection.execute(select(public_sets))


def test_a_view_is_that_of_one_moment(database: Database) -> None:
    row = {"name": "a", "columns": "{}", "created_at": 0.0}
    with database.reading() as connection:
        assert connection.execute(select(public_sets)).all() == []
        with database.changing() as other:
            other.execute(insert(public_sets).values(row))
        assert connection.execute(select(public_sets)).all() == []


def test_what_a_change_has_read_stays_true_until_it_commits(
    database: Database, tmp_path: Path, store: Store
) -> None:
    """For instance if two replicas take one name: both check first, and one finds it taken."""
    other = Database(Settings(data_dir=tmp_path, **store).url)
    together = Barrier(2)

    def take(own: Database) -> bool:
        together.wait()
        with own.changing() as connection:
            if connection.execute(select(public_sets)).first() is not None:
                return False
            time.sleep(0.05)  # when the other change could interfere
            row = {"name": str(id(own)), "columns": "{}", "created_at": 0.0}
            connection.execute(insert(public_sets).values(row))
            return True

    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(take, (database, other))) == [False, True]
    other.close()


def test_replicas_that_start_together_migrate_once(tmp_path: Path, store: Store) -> None:
    databases = [Database(Settings(data_dir=tmp_path, **store).url) for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(Database.migrate, databases))
    with databases[0].reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    for database in databases:
        database.close()


def test_a_character_that_the_database_has_not_is_refused(coordinator: Coordinator) -> None:
    response = coordinator.admin("DELETE", "/callers/%00")
    assert (response.status_code, response.json()["code"]) in (
        (404, "not_found"),
        (422, "request.fields"),
    )

"""The database has the form that the code expects, from the first table on."""

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

from service.database import Database
from service.tables import metadata, public_sets


@pytest.fixture
def database(tmp_path: Path) -> Database:
    database = Database(f"sqlite:///{tmp_path}/veilgp.sqlite")
    database.migrate()
    return database


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


def test_a_change_that_fails_changes_nothing(database: Database) -> None:
    row = {"name": "a", "columns": "{}", "created_at": 0.0}
    with pytest.raises(IntegrityError), database.changing() as connection:
        connection.execute(insert(public_sets), [row, row])
    with database.reading() as connection:
        assert connection.execute(select(public_sets)).all() == []

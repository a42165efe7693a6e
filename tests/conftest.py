"""For every test: no timing assertions on noisy machines, and databases for those that ask."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.postgres import Postgres
from tests.stores import Store

settings.register_profile("veilgp", deadline=None)
settings.load_profile("veilgp")


@pytest.fixture(scope="session")
def postgres(testrun_uid: str) -> Postgres:
    return Postgres(testrun_uid)


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """SQLite in the data directory, unless the test is parametrised by `EVERY_STORE`."""
    if getattr(request, "param", "sqlite") == "sqlite":
        yield {}
    else:
        postgres: Postgres = request.getfixturevalue("postgres")
        with postgres.database() as url:
            yield {"database_url": url}

"""For every test: three speeds, no timing assertions on noisy machines, and databases on request.

`make test-fast` (`--fast`): what a developer runs before a commit, within 90 seconds on two cores.
    Left out are the folders and files of `FULL`, every test on PostgreSQL, and single tests marked
    `full`: whatever takes more than two seconds, or starts processes. Hypothesis tries fewer
    examples.
`make test`: everything but what is marked `slow`, within ten minutes on two cores.
`make slow`: what is marked `slow`, and the mutations.

Where `CI` is set, hypothesis tries the same examples in every run: what lands does not depend on
chance. Everywhere else it tries new ones.

A new test needs no mark. One over a second or two gets `full`, one over ten seconds `slow`.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.postgres import Postgres
from tests.stores import Store

HERE = Path(__file__).parent
FULL = frozenset(
    HERE / name
    for name in (
        "adversary",  # attacks on whole sessions
        "benchmarks",
        "client_sdk/conversation/test_hostile_coordinator.py",
        "client_sdk/conversation/test_session.py",  # whole sessions
        "client_sdk/home/test_ledger.py",  # whole private sessions
        "conformance/test_declarations.py",  # every algorithm, run with random parameters
        "e2e",  # processes and browsers
        "kernels/rounds/kernel/test_distillation.py",
        "kernels/rounds/test_private.py",  # conformance of every private algorithm
        "kernels/rounds/test_private_programs.py",
        "kernels/samplers",  # statistics of chains
        "privacy/securesum/test_machine.py",  # long random protocols
        "service/contract/test_contract_fuzzed.py",
        "service/database",  # several databases, backups
        "service/http/test_access.py",
        "service/http/test_connections.py",  # waits for real sockets
        "service/http/test_uploads.py",
        "service/page",
        "service/runs",  # whole runs
        "service/sessions",
    )
)
"""What `--fast` leaves out and does not even import."""

collect_ignore = ["added_algorithm.py"]
"""Runs only in the copy of the repository that `tests/test_contributing.py` makes."""

# Half of hypothesis's own number: `make test` has ten minutes.
settings.register_profile("veilgp", deadline=None, max_examples=50, derandomize="CI" in os.environ)
settings.register_profile("fast", deadline=None, max_examples=20)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="leave out what tests/conftest.py names")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("fast" if config.getoption("--fast") else "veilgp")
    missing = [str(path) for path in FULL if not path.exists()]
    if missing:
        raise pytest.UsageError(f"tests/conftest.py names what is not there: {missing}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    # None: others decide. pytest does not ask about paths that are named on the command line.
    return True if config.getoption("--fast") and collection_path in FULL else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--fast"):
        left_out = [item for item in items if _is_full(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def _is_full(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    on_postgres = callspec is not None and callspec.params.get("store") == "postgresql"
    asks_for_it = "postgres" in getattr(item, "fixturenames", ())
    return on_postgres or asks_for_it or item.get_closest_marker("full") is not None


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

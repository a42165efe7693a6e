"""A backup is taken while the coordinator works, and restored as docs/operations.md says."""

import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from privacy.securesum.errors import SlotAbandoned
from tests.postgres import Postgres
from tests.service.coordinator import Coordinator
from tests.service.programs import TINY, model_bytes, simulated
from tests.service.sites import Site, advance, session_of, start, stored_model, until, work
from tests.stores import Store


def _go_back(old: Coordinator, new: Callable[[], Coordinator], back_up: Callable[[], None]) -> None:
    """Restore what was saved in the middle of a run that has gone on since."""
    with old:
        old.app.state.engine.stop()
        sites = session_of(old)
        run = start(old, sites[0].session)
        until(sites, "task", run)
        back_up()
        until(sites, "certificate", run)
        for site in sites:
            site.work()
        advance(old, run)
        until(sites, "task", run)
    with new() as restored:
        for site in sites:
            site.coordinator = restored
            _refuses_to_go_back(site)
        assert restored.admin("POST", f"/runs/{run}/cancel").status_code == 200
        for site in sites:
            assert site.work()
        start(restored, sites[0].session)
        work(sites)
        assert stored_model(restored, sites[0]) == model_bytes(simulated(TINY))


def _refuses_to_go_back(site: Site) -> None:
    """What it has closed it does not answer again, whoever has forgotten the answer."""
    before = len(site.sent)
    with pytest.raises(SlotAbandoned):
        site.work()
    assert len(site.sent) == before


def test_sqlite_is_backed_up_while_the_coordinator_works(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    new.mkdir()

    def back_up() -> None:
        connection = sqlite3.connect(old / "veilgp.sqlite")
        connection.execute("VACUUM INTO ?", (str(new / "veilgp.sqlite"),))
        connection.close()

    _go_back(Coordinator(old), lambda: Coordinator(new), back_up)


def test_postgresql_is_backed_up_while_the_coordinator_works(
    tmp_path: Path, postgres: Postgres
) -> None:
    dump = tmp_path / "veilgp.dump"
    with postgres.database() as url, postgres.database() as empty:
        settings: Store = {"database_url": url}

        def back_up() -> None:
            command = [postgres.program("pg_dump"), "--format=custom", f"--file={dump}", url]
            subprocess.run(command, check=True)

        def restored() -> Coordinator:
            command = [postgres.program("pg_restore"), "--no-owner", f"--dbname={empty}", str(dump)]
            subprocess.run(command, check=True)
            return Coordinator(tmp_path / "new", database_url=empty)

        _go_back(Coordinator(tmp_path / "old", **settings), restored, back_up)

"""A backup is taken while the coordinator works, and restored as docs/operations.md describes."""

import re
import shlex
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from privacy.securesum.errors import SlotAbandoned
from service.http.tokens import Role, issue
from tests.postgres import Postgres
from tests.service.coordinator import Coordinator, Hospital
from tests.service.programs import TINY, model_bytes, simulated
from tests.service.sites import Site, advance, session_of, start, stored_model, until, work
from tests.stores import Store

PAGE = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()


def _run(program: str, path: str, instead: Mapping[str, object]) -> None:
    """Run a command from the page, with its example values replaced."""
    (line,) = re.findall(rf"(?:^ {{4}}|`)({program} [^`\n]+)", PAGE, re.MULTILINE)
    _, *words = shlex.split(line)
    for example, word in instead.items():
        assert any(example in each for each in words), example
        words = [each.replace(example, str(word)) for each in words]
    subprocess.run([path, *words], check=True)


def _back_up_sqlite(directory: Path, backup: Path) -> None:
    instead = {"veilgp-data/veilgp.sqlite": directory / "veilgp.sqlite", "backup.sqlite": backup}
    _run("python", sys.executable, instead)


def _go_back(old: Coordinator, new: Callable[[], Coordinator], back_up: Callable[[], None]) -> None:
    """Restore a backup from the middle of a run that has since continued."""
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
    """A hospital does not repeat answers to closed sums after the coordinator has lost them."""
    before = len(site.sent)
    with pytest.raises(SlotAbandoned):
        site.work()
    assert len(site.sent) == before


def test_sqlite_is_backed_up_while_the_coordinator_works(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    new.mkdir()
    _go_back(
        Coordinator(old),
        lambda: Coordinator(new),
        lambda: _back_up_sqlite(old, new / "veilgp.sqlite"),
    )


def test_postgresql_is_backed_up_while_the_coordinator_works(
    tmp_path: Path, postgres: Postgres
) -> None:
    dump = tmp_path / "veilgp.dump"
    with postgres.database() as url, postgres.database() as empty:
        settings: Store = {"database_url": url}

        def back_up() -> None:
            instead = {"veilgp.dump": dump, "postgresql://user@host/veilgp": url}
            _run("pg_dump", postgres.program("pg_dump"), instead)

        def restored() -> Coordinator:
            instead = {"veilgp.dump": dump, "…": empty}
            _run("pg_restore", postgres.program("pg_restore"), instead)
            return Coordinator(tmp_path / "new", database_url=empty)

        _go_back(Coordinator(tmp_path / "old", **settings), restored, back_up)


def test_a_backup_has_no_token_no_secret_key_and_no_patients_row(tmp_path: Path) -> None:
    with Coordinator(tmp_path) as coordinator:
        sites = session_of(coordinator)
        until(sites, "certificate", start(coordinator, sites[0].session))
        _back_up_sqlite(tmp_path, tmp_path / "backup.sqlite")
        secrets = [coordinator.token.encode()]
    for site in sites:
        secrets.append(site.identity.to_bytes())
        cells = [float(cell) for name in ("age", "stay") for cell in site.table[name]]
        secrets += [form for cell in cells for form in (struct.pack("<d", cell), b"%r" % cell)]
    kept = (tmp_path / "backup.sqlite").read_bytes()
    assert sites[0].identity.key in kept
    assert not any(secret in kept for secret in secrets)


def test_what_was_taken_back_since_the_backup_counts_again(tmp_path: Path) -> None:
    """This is why the page lists what to check."""
    old, new = tmp_path / "old", tmp_path / "new"
    new.mkdir()
    with Coordinator(old) as coordinator:
        session = coordinator.session()
        hospital = coordinator.approved(session, "Kiel")
        used = coordinator.invite(session, "Lübeck")
        with coordinator.context.database.changing() as connection:
            caller = issue(connection, Role.CALLER, "ward", now=coordinator.clock(), models=["m"])
        _back_up_sqlite(old, new / "veilgp.sqlite")
        assert coordinator.admin("DELETE", f"/callers/{caller.id}").status_code == 204
        suspended = {"status": "suspended"}
        coordinator.admin("PATCH", f"/sessions/{session}/members/Kiel", suspended)
        assert Hospital(coordinator).enrol(session, used).status_code == 201
        assert hospital.membership(session).status_code == 403
    with Coordinator(new) as restored:
        (listed,) = restored.admin("GET", "/callers").json()
        assert (listed["id"], listed["revoked_at"]) == (caller.id, None)
        hospital.coordinator = restored
        assert hospital.membership(session).status_code == 200
        assert Hospital(restored).enrol(session, used).status_code == 201

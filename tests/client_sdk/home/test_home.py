"""A hospital's home: one identity, one journal, one process, nothing lost after kill -9."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from client_sdk.errors import HomeDamaged, HomeExposed, HomeInUse, HomeNotWritten
from client_sdk.home.home import Home
from client_sdk.home.journal_file import VERSION
from client_sdk.home.remembered import Departure, KnownRun
from client_sdk.home.store import Store
from privacy.identity import Pins
from privacy.securesum.errors import JournalError, JournalLost, JournalRolledBack, VaultLost
from privacy.securesum.records import Step
from privacy.securesum.terms import default_terms


def run_python(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True
    )


def test_an_identity_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    first = home.identity()
    assert home.identity().key == first.key
    for name in ("identity.key", "dealing.key", "journal.sqlite"):
        assert (tmp_path / "home" / name).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
    with home.open() as opened:
        assert opened.identity.key == first.key
        assert first.to_bytes().hex() not in repr(opened)


def test_the_home_is_where_the_variable_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VEILGP_HOME", str(tmp_path / "elsewhere"))
    assert Home().path == tmp_path / "elsewhere"
    assert Home(tmp_path / "named").path == tmp_path / "named"


def test_an_identity_that_others_can_read_is_refused(tmp_path: Path) -> None:
    Home(tmp_path).identity()
    (tmp_path / "identity.key").chmod(0o644)
    with pytest.raises(HomeExposed, match="chmod 600"):
        Home(tmp_path).identity()


def test_a_second_process_is_refused_and_told_which_one_is_there(tmp_path: Path) -> None:
    code = (
        "import sys; from client_sdk.home.home import Home\n"
        "with Home(sys.argv[1]).open(): print('open', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(HomeInUse, match=f"process {other.pid}"), Home(tmp_path).open():
            pass
    finally:
        other.kill()
        other.communicate()
    with Home(tmp_path).open():
        pass


def test_a_hospital_killed_while_it_writes_has_whole_steps_or_none(tmp_path: Path) -> None:
    code = (
        "import sys, os; from client_sdk.home.home import Home\n"
        "from privacy.securesum.terms import default_terms\n"
        "with Home(sys.argv[1]).open() as home:\n"
        "    for i in range(100000):\n"
        "        home.keep(home.client.join(default_terms(os.urandom(16), 5)))\n"
        "        print(i, flush=True)\n"
    )
    process = run_python(code, str(tmp_path))
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(20)]
    process.send_signal(signal.SIGKILL)
    acknowledged = int((said + process.stdout.readlines())[-1])
    process.wait()
    process.stdout.close()
    with Home(tmp_path).open() as home:
        assert len(home.client.journal.sessions) >= acknowledged + 1


def joined(path: Path, sessions: int) -> None:
    with Home(path).open() as home:
        for _ in range(sessions):
            home.keep(home.client.join(default_terms(os.urandom(16), 5)))


def spoiled(path: Path, *statements: str) -> None:
    with sqlite3.connect(path / "journal.sqlite") as db:
        for statement in statements:
            db.execute(statement)
    db.close()


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        ("DELETE FROM records WHERE number = (SELECT max(number) FROM records)", JournalRolledBack),
        ("DELETE FROM records", JournalLost),
        ("DELETE FROM vault", VaultLost),
        ("UPDATE records SET data = x'0102' WHERE number = 2", JournalError),
    ],
)
def test_a_journal_that_has_forgotten_anything_is_refused(
    tmp_path: Path, damage: str, error: type[Exception]
) -> None:
    joined(tmp_path, 3)
    spoiled(tmp_path, damage)
    with pytest.raises(error), Home(tmp_path).open():
        pass


def test_the_journal_of_another_identity_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        joined(tmp_path / name, 1)
    shutil.copy(tmp_path / "a" / "journal.sqlite", tmp_path / "b" / "journal.sqlite")
    with pytest.raises(JournalError, match="not the journal of this identity"):
        joined(tmp_path / "b", 1)


def test_key_and_journal_need_each_other(tmp_path: Path) -> None:
    joined(tmp_path / "no_journal", 1)
    (tmp_path / "no_journal" / "journal.sqlite").unlink()
    with pytest.raises(HomeDamaged, match="no journal"), Home(tmp_path / "no_journal").open():
        pass
    joined(tmp_path / "no_key", 1)
    (tmp_path / "no_key" / "identity.key").unlink()
    with pytest.raises(HomeDamaged, match="no identity"), Home(tmp_path / "no_key").open():
        pass


@pytest.mark.parametrize("files_written", range(4))
def test_a_crash_while_the_home_is_made_leaves_nothing_in_the_way(
    files_written: int, tmp_path: Path
) -> None:
    Home(tmp_path).identity()
    # Before each rename, and before the journal.
    (tmp_path / "identity.key").rename(tmp_path / "identity.new")
    if files_written < 3:
        (tmp_path / "identity.new").unlink()
    if files_written < 2:
        (tmp_path / "dealing.key").rename(tmp_path / "dealing.new")
        (tmp_path / "dealing.new").write_bytes(b"half")
    if files_written < 1:
        (tmp_path / "journal.sqlite").unlink()
    joined(tmp_path, 1)
    assert len(Home(tmp_path).dealing().secret) == 32
    assert not [*tmp_path.glob("*.new")]


def test_files_that_are_no_journal_are_refused_by_name(tmp_path: Path) -> None:
    Home(tmp_path).identity()
    (tmp_path / "journal.sqlite").write_bytes(b"<html>" * 1000)
    with pytest.raises(HomeDamaged), Home(tmp_path).open():
        pass
    (tmp_path / "identity.key").write_bytes(b"short")
    with pytest.raises(HomeDamaged), Home(tmp_path).open():
        pass


def test_a_step_that_cannot_be_written_is_not_written_in_part(tmp_path: Path) -> None:
    with Home(tmp_path).open() as home:
        before = home.store.journal()
        step = Step(None, (b"a record",), {"good": b"secret", "bad": object()})
        with pytest.raises(HomeNotWritten, match="nothing was sent"):
            home.store.commit(step)
        assert home.store.journal() == before


def test_facts_survive(tmp_path: Path) -> None:
    Home(tmp_path).identity()
    store = Home(tmp_path).read()
    run = KnownRun("run", "session", "train", "{}")
    departure = Departure(
        "now", "session", "run", 0, 0, 1, "exact/1", '["scatter"]', 7, 64, "ab", 1
    )
    store.commit(Step(None), run=run, departure=departure)
    store.commit(Step(None), run=KnownRun("run", "session", "train", "{}", "done", model="m"))
    pins = Pins(confirmed={"A": Home(tmp_path).identity().key})
    store.keep_pins("session", pins)
    store.close()
    store = Home(tmp_path).read()
    assert store.last_run("session") == KnownRun("run", "session", "train", "{}", "done", model="m")
    assert store.pins("session") == pins
    assert store.pins("another") == Pins()
    (line,) = [each.line() for each in store.departures()]
    assert "scatter: 7 numbers, 64 bytes, masked" in line
    store.close()


def test_two_processes_that_make_one_journal_are_one(tmp_path: Path) -> None:
    """As `withdraw` does, which needs no lock, during a `join`."""
    for number in range(5):
        path, together = tmp_path / f"{number}.sqlite", Barrier(4)

        def opened(path: Path = path, together: Barrier = together) -> None:
            together.wait()
            Store.open(path).close()

        with ThreadPoolExecutor(4) as pool:
            for each in [pool.submit(opened) for _ in range(4)]:
                each.result()
        store = Store.open(path)
        assert store.samples() == []
        store.close()


@pytest.mark.parametrize("version", range(1, VERSION))
def test_a_journal_of_an_earlier_version_is_refused_by_name(tmp_path: Path, version: int) -> None:
    Home(tmp_path).identity()
    spoiled(tmp_path, f"PRAGMA user_version={version}")
    with pytest.raises(HomeDamaged, match=r"another version.*Move the home away"):
        Store.open(tmp_path / "journal.sqlite")


def test_a_journal_of_a_newer_version_says_what_to_upgrade(tmp_path: Path) -> None:
    Home(tmp_path).identity()
    spoiled(tmp_path, "PRAGMA user_version=99")
    with pytest.raises(HomeDamaged, match="upgrade veilgp"):
        Store.open(tmp_path / "journal.sqlite")

"""The hospital's memory on disk: one SQLite file, in which a step is one transaction.

    records     the journal of privacy/securesum, for ever, in order
    vault       its secrets, overwritten when they are erased (secure_delete)
    departures  what has left, a line for each vector, for people
    sessions    address, program and seed of each session, as they were when it was joined
    runs        program and kind of each run, how it ended, and whether its model was fetched
    pins        keys of other members, met or confirmed, in each session
    charges     what each vector with noise has spent of a data source's privacy budget
    samples     those of this hospital's own model that a run asked for, and what became of them

`commit` returns when everything is on the disk (WAL with synchronous=FULL): only then may anything
be sent. Whether a journal is whole, ours and not from a backup is decided by privacy/securesum.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from client_sdk.errors import HomeDamaged, HomeNotWritten
from client_sdk.home.remembered import Charge, Departure, KnownRun, KnownSession, UnmaskedSamples
from privacy.identity import Pins
from privacy.ledger import Budget, Ledger
from privacy.securesum.records import Joined, Step
from privacy.securesum.terms import Terms

_VERSION = 5
_TABLES = """
CREATE TABLE records (number INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;
CREATE TABLE vault (name TEXT PRIMARY KEY, content BLOB NOT NULL) STRICT;
CREATE TABLE departures (
    at TEXT NOT NULL, session TEXT NOT NULL, run TEXT NOT NULL, epoch INTEGER NOT NULL,
    slot INTEGER NOT NULL, stage INTEGER NOT NULL, algorithm TEXT NOT NULL, blocks TEXT NOT NULL,
    elements INTEGER NOT NULL, octets INTEGER NOT NULL, sha256 TEXT NOT NULL,
    rows TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, run, epoch, slot)
) STRICT;
CREATE TABLE sessions (
    session TEXT PRIMARY KEY, address TEXT NOT NULL, name TEXT NOT NULL, member TEXT NOT NULL,
    program TEXT NOT NULL, seed INTEGER NOT NULL
) STRICT;
CREATE TABLE runs (
    run TEXT PRIMARY KEY, session TEXT NOT NULL, kind TEXT NOT NULL, program TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'running', code TEXT NOT NULL DEFAULT '',
    detail TEXT NOT NULL DEFAULT '', model TEXT, fetched INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE pins (
    session TEXT NOT NULL, name TEXT NOT NULL, key BLOB NOT NULL, confirmed INTEGER NOT NULL,
    PRIMARY KEY (session, name)
) STRICT;
"""
_CHARGES = """
CREATE TABLE charges (
    source TEXT NOT NULL, at REAL NOT NULL, session TEXT NOT NULL, run TEXT NOT NULL,
    epoch INTEGER NOT NULL, slot INTEGER NOT NULL, release TEXT NOT NULL,
    rows TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, run, epoch, slot)
) STRICT;
"""
_SAMPLES = """
CREATE TABLE samples (
    run TEXT PRIMARY KEY, session TEXT NOT NULL, epoch INTEGER NOT NULL, slot INTEGER NOT NULL,
    samples INTEGER NOT NULL, elements INTEGER NOT NULL, octets INTEGER NOT NULL,
    sha256 TEXT NOT NULL, rows TEXT NOT NULL, left_at TEXT, withdrawn_at TEXT, refused TEXT,
    body BLOB
) STRICT;
"""
_FORGET_WAITING = "DELETE FROM samples WHERE run = ? AND left_at IS NULL AND withdrawn_at IS NULL"
_WAITING_TO_LEAVE = (
    "SELECT * FROM samples "
    "WHERE run = ? AND body IS NOT NULL AND withdrawn_at IS NULL AND refused IS NULL"
)

_STEPS = {
    0: _TABLES + _CHARGES + _SAMPLES,
    1: "ALTER TABLE departures ADD COLUMN rows TEXT NOT NULL DEFAULT '';" + _CHARGES + _SAMPLES,
    2: _CHARGES + _SAMPLES,
    3: "ALTER TABLE charges ADD COLUMN rows TEXT NOT NULL DEFAULT '';" + _SAMPLES,
    4: _SAMPLES,
}
"""From each version that this one brings up to its own."""


class Store:
    """The open file. One process at a time writes the journal; the home's lock sees to that."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    @classmethod
    def open(cls, path: Path) -> "Store":
        """Open the file, or make it; refuse one that is none, or of a newer version."""
        try:
            # The async edge computes in threads, one at a time.
            db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
            db.execute("PRAGMA secure_delete=ON")
            db.execute("PRAGMA trusted_schema=OFF")
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version in _STEPS:
                version = _brought_up(db)
        except sqlite3.DatabaseError as error:
            raise HomeDamaged(
                f"{path} cannot be opened as this hospital's journal ({error}). Do not replace it "
                "with a copy from a backup: make a new identity and have it confirmed."
            ) from error
        if version != _VERSION:
            db.close()
            raise HomeDamaged(
                f"{path} was written by another version of veilgp ({version}, not {_VERSION}): "
                "upgrade veilgp on this machine"
            )
        return cls(db)

    def close(self) -> None:
        """Close the file; the log that SQLite kept beside it goes into it and is removed."""
        self._db.close()

    # -- the journal

    def journal(self) -> tuple[list[bytes], dict[str, bytes | memoryview]]:
        """Read records and vault, as `Client.restore` takes them."""
        with self._reading():
            ordered = self._db.execute("SELECT data FROM records ORDER BY number")
            records = [data for (data,) in ordered]
            vault = dict(self._db.execute("SELECT name, content FROM vault").fetchall())
        return records, vault

    def commit(
        self,
        step: Step[Any],
        *,
        departure: Departure | None = None,
        charge: Charge | None = None,
        run: KnownRun | None = None,
        samples: UnmaskedSamples | None = None,
    ) -> None:
        """Make a step durable, with what people will want to read about it; then it may be sent."""
        if not (step.records or step.vault or departure or charge or run or samples):
            return
        with self._writing():
            self._db.executemany(
                "INSERT INTO records (data) VALUES (?)", [(data,) for data in step.records]
            )
            for name, content in step.vault.items():
                if content is None:
                    self._db.execute("DELETE FROM vault WHERE name = ?", (name,))
                else:
                    self._db.execute("INSERT OR REPLACE INTO vault VALUES (?, ?)", (name, content))
            if departure is not None:
                self._insert("OR IGNORE", "departures", departure)
            if charge is not None:  # never a second time: each sum is charged once
                self._insert("", "charges", charge)
            if samples is not None:  # in place of those of a sum that was lost; not of withdrawn
                self._db.execute(_FORGET_WAITING, (samples.run,))
                self._insert("OR IGNORE", "samples", samples)
            if run is not None:
                self._insert("OR IGNORE", "runs", run)
                self._db.execute(
                    "UPDATE runs SET status = ?, code = ?, detail = ?, model = ?, fetched = ? "
                    "WHERE run = ?",
                    (run.status, run.code, run.detail, run.model, run.fetched, run.run),
                )

    def erase_traces(self) -> None:
        """Empty SQLite's own log: secrets that were erased from the vault are not left in it."""
        with self._writing_alone():
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    # -- what people read, and what a restart needs

    def departures(self) -> Iterator[Departure]:
        """Give what has left, in the order in which it did."""
        with self._reading():
            rows = self._db.execute("SELECT * FROM departures ORDER BY rowid").fetchall()
        return (Departure(*row) for row in rows)

    def ledger(self, source: str, budget: Budget, *, rows: bytes = b"") -> Ledger:
        """Give what has been spent on a data source, over all sessions and coordinators.

        Sources that were ever charged for the very rows of this one are the same table by another
        name, and what was spent on them counts. rows: the digest of those at hand, if they are.
        """
        query = (
            "SELECT * FROM charges WHERE source = :source OR source IN (SELECT source FROM charges "
            "WHERE rows <> '' AND (rows = :rows OR rows IN (SELECT rows FROM charges WHERE "
            "source = :source))) ORDER BY rowid"
        )
        with self._reading():
            charged = self._db.execute(query, {"source": source, "rows": rows.hex()}).fetchall()
        return Ledger(budget, tuple(Charge(*row).entry for row in charged))

    def charged_sources(self) -> list[str]:
        """Give the data sources that anything has been spent on."""
        with self._reading():
            rows = self._db.execute("SELECT DISTINCT source FROM charges ORDER BY source")
            return [source for (source,) in rows]

    def uncharged(self) -> list[tuple[str, int]]:
        """Give how many vectors have left without noise, exact sums, in each session."""
        query = (
            "SELECT session, COUNT(*) FROM departures WHERE (session, run, epoch, slot) NOT IN "
            "(SELECT session, run, epoch, slot FROM charges) GROUP BY session ORDER BY session"
        )
        with self._reading():
            return list(self._db.execute(query))

    def terms(self) -> dict[str, Terms]:
        """Give the terms of every session that was joined."""
        records, _ = self.journal()
        joined = (Joined.decode(data) for data in records if data[1] == Joined.kind)
        return {str(UUID(bytes=record.terms.session)): record.terms for record in joined}

    # -- samples of this hospital's own model

    def samples(self) -> list[UnmaskedSamples]:
        """Give those that have left, in the order in which they were asked for."""
        query = "SELECT * FROM samples WHERE left_at IS NOT NULL ORDER BY rowid"
        with self._reading():
            return [UnmaskedSamples(*row) for row in self._db.execute(query)]

    def samples_to_send(self, run: str) -> UnmaskedSamples | None:
        """Give a run's samples that wait to leave, or to be acknowledged."""
        row = self._row(_WAITING_TO_LEAVE, run)
        return None if row is None else UnmaskedSamples(*row)

    def samples_leave(self, run: str, at: str) -> bool:
        """Write down that they leave now, the first time; say whether they still may."""
        with self._writing():
            leaving = self._db.execute(
                "UPDATE samples SET left_at = COALESCE(left_at, ?) "
                "WHERE run = ? AND withdrawn_at IS NULL",
                (at, run),
            )
        return leaving.rowcount > 0

    def samples_taken(self, run: str, *, refused: str | None = None) -> None:
        """Forget the octets: the coordinator has them, or has refused them with this code."""
        query = "UPDATE samples SET body = NULL, refused = ? WHERE run = ?"
        with self._writing():
            self._db.execute(query, (refused, run))

    def samples_not_needed(self, run: str) -> None:
        """Forget the samples of a run that made no model, and those that may no longer leave.

        That they were withdrawn is not forgotten: a coordinator may open such a run once more.
        """
        with self._writing():
            self._db.execute(_FORGET_WAITING, (run,))
            self._db.execute("UPDATE samples SET body = NULL WHERE run = ?", (run,))

    def withdraw_samples(self, session: str, at: str) -> None:
        """Take all samples of a session back: of every run so far none leaves from now on."""
        with self._writing():
            self._db.execute(
                "INSERT OR IGNORE INTO samples "
                "SELECT run, session, 0, 0, 0, 0, 0, '', '', NULL, NULL, NULL, NULL "
                "FROM runs WHERE session = ?",
                (session,),
            )
            self._db.execute(
                "UPDATE samples SET body = NULL, withdrawn_at = COALESCE(withdrawn_at, ?) "
                "WHERE session = ?",
                (at, session),
            )

    def session(self, session: str) -> KnownSession | None:
        """Give what is known of a session."""
        row = self._row("SELECT * FROM sessions WHERE session = ?", session)
        return None if row is None else KnownSession(*row)

    def remember_session(self, session: KnownSession) -> None:
        """Keep a session as it is when it is joined."""
        with self._writing():
            self._insert("OR REPLACE", "sessions", session)

    def run(self, run: str) -> KnownRun | None:
        """Give what is known of a run."""
        row = self._row("SELECT * FROM runs WHERE run = ?", run)
        return None if row is None else _run(row)

    def last_run(self, session: str) -> KnownRun | None:
        """Give the run of a session that was entered last."""
        row = self._row("SELECT * FROM runs WHERE session = ? ORDER BY rowid DESC LIMIT 1", session)
        return None if row is None else _run(row)

    def pins(self, session: str, *, trust_first_use: bool = False) -> Pins:
        """Give the keys that this site has pinned in a session."""
        query = "SELECT name, key, confirmed FROM pins WHERE session = ?"
        with self._reading():
            rows = self._db.execute(query, (session,)).fetchall()
        return Pins(
            confirmed={name: key for name, key, confirmed in rows if confirmed},
            met={name: key for name, key, confirmed in rows if not confirmed},
            trust_first_use=trust_first_use,
        )

    def keep_pins(self, session: str, pins: Pins) -> None:
        """Keep pins, in place of those that were kept for the session before."""
        rows = [(session, name, key, 0) for name, key in pins.met.items()]
        rows += [(session, name, key, 1) for name, key in pins.confirmed.items()]
        with self._writing():
            self._db.execute("DELETE FROM pins WHERE session = ?", (session,))
            self._db.executemany("INSERT INTO pins VALUES (?, ?, ?, ?)", rows)

    def sessions_that_met(self, name: str) -> list[str]:
        """Give the sessions in which a member of this name waits for confirmation."""
        query = "SELECT session FROM pins WHERE name = ? AND NOT confirmed"
        with self._reading():
            return [session for (session,) in self._db.execute(query, (name,))]

    # -- SQLite

    def _row(self, query: str, *values: str) -> tuple[Any, ...] | None:
        with self._reading():
            row: tuple[Any, ...] | None = self._db.execute(query, values).fetchone()
        return row

    def _insert(self, conflict: str, table: str, row: Any) -> None:
        names = [field.name for field in fields(row)]
        marks = ", ".join("?" for _ in names)
        # Table and columns are this module's own words.
        query = f"INSERT {conflict} INTO {table} ({', '.join(names)}) VALUES ({marks})"  # noqa: S608
        self._db.execute(query, astuple(row))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise HomeDamaged(f"the journal cannot be read: {error}") from error

    @contextmanager
    def _writing_alone(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OverflowError) as error:
            raise HomeNotWritten(
                f"the journal could not be written ({error}), so nothing was sent. Make room on "
                "the disk and join again: it goes on where it was."
            ) from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._writing_alone():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")


def _brought_up(db: sqlite3.Connection) -> int:
    """Bring the file to this version, unless another process has meanwhile; return which it is."""
    db.execute("BEGIN IMMEDIATE")
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version in _STEPS:
        for statement in _STEPS[version].split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA user_version={_VERSION}")
        version = _VERSION
    db.execute("COMMIT")
    return int(version)


def _run(row: tuple[Any, ...]) -> KnownRun:
    return replace(KnownRun(*row), fetched=bool(row[-1]))

"""The one SQLite file of a home: its tables, and how anything is read from and written to it.

    records     the journal of privacy/securesum, for ever, in order
    vault       its secrets, overwritten when they are erased (secure_delete)
    departures  what has left, a line for each vector, for people
    sessions    address, program and seed of each session, as they were when it was joined
    runs        program and kind of each run, how it ended, and whether its model was fetched
    pins        keys of other members, met or confirmed, in each session
    charges     what each vector with noise has spent of a data source's privacy budget
    samples     those of this hospital's own model that a run asked for, and what became of them

A transaction is on the disk when it ends (WAL with synchronous=FULL). There is no migration: no
version of this file was ever released but the present one.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from client_sdk.errors import HomeDamaged, HomeNotWritten

VERSION = 6
_TABLES = """
CREATE TABLE records (number INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;
CREATE TABLE vault (name TEXT PRIMARY KEY, content BLOB NOT NULL) STRICT;
CREATE TABLE departures (
    at TEXT NOT NULL, session TEXT NOT NULL, run TEXT NOT NULL, epoch INTEGER NOT NULL,
    slot INTEGER NOT NULL, stage INTEGER NOT NULL, algorithm TEXT NOT NULL, blocks TEXT NOT NULL,
    elements INTEGER NOT NULL, octets INTEGER NOT NULL, sha256 TEXT NOT NULL, rows TEXT NOT NULL,
    PRIMARY KEY (session, run, epoch, slot)
) STRICT;
CREATE TABLE sessions (
    session TEXT PRIMARY KEY, address TEXT NOT NULL, name TEXT NOT NULL, member TEXT NOT NULL,
    program TEXT NOT NULL, seed INTEGER NOT NULL
) STRICT;
CREATE TABLE runs (
    run TEXT PRIMARY KEY, session TEXT NOT NULL, kind TEXT NOT NULL, program TEXT NOT NULL,
    status TEXT NOT NULL, code TEXT NOT NULL, detail TEXT NOT NULL, model TEXT,
    fetched INTEGER NOT NULL
) STRICT;
CREATE TABLE pins (
    session TEXT NOT NULL, name TEXT NOT NULL, key BLOB NOT NULL, confirmed INTEGER NOT NULL,
    PRIMARY KEY (session, name)
) STRICT;
CREATE TABLE charges (
    source TEXT NOT NULL, at REAL NOT NULL, session TEXT NOT NULL, run TEXT NOT NULL,
    epoch INTEGER NOT NULL, slot INTEGER NOT NULL, release TEXT NOT NULL, rows TEXT NOT NULL,
    PRIMARY KEY (session, run, epoch, slot)
) STRICT;
CREATE TABLE samples (
    run TEXT PRIMARY KEY, session TEXT NOT NULL, epoch INTEGER NOT NULL, slot INTEGER NOT NULL,
    samples INTEGER NOT NULL, elements INTEGER NOT NULL, octets INTEGER NOT NULL,
    sha256 TEXT NOT NULL, rows TEXT NOT NULL, left_at TEXT, withdrawn_at TEXT, refused TEXT,
    body BLOB
) STRICT;
"""


class JournalFile:
    """The open file. One process at a time writes the journal; the home's lock sees to that."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    @classmethod
    def open(cls, path: Path) -> "JournalFile":
        """Open the file, or make it; refuse one that is none, or of another version."""
        try:
            # The async edge computes in threads, one at a time.
            db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
            db.row_factory = sqlite3.Row
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
            db.execute("PRAGMA secure_delete=ON")
            db.execute("PRAGMA trusted_schema=OFF")
            version = _version(db) or _made(db)
        except sqlite3.DatabaseError as error:
            raise HomeDamaged(
                f"{path} cannot be opened as this hospital's journal ({error}). Do not replace it "
                "with a copy from a backup: make a new identity and have it confirmed."
            ) from error
        if version != VERSION:
            db.close()
            what = (
                "upgrade veilgp on this machine"
                if version > VERSION
                else "no release has written that. Move the home away, and have a new identity "
                "confirmed"
            )
            raise HomeDamaged(
                f"{path} was written by another version of veilgp ({version}, not {VERSION}): "
                f"{what}"
            )
        return cls(db)

    def close(self) -> None:
        """Close the file; the log that SQLite kept beside it goes into it and is removed."""
        self.connection.close()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Name what goes wrong while something is read."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise HomeDamaged(f"the journal cannot be read: {error}") from error

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write all of it or nothing; it is on the disk when the block ends."""
        with _named():
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self.connection.execute("ROLLBACK")
                raise
            self.connection.execute("COMMIT")

    def empty_log(self) -> None:
        """Empty SQLite's own log: what was erased from the file is not left in it."""
        with _named():
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OverflowError) as error:
        raise HomeNotWritten(
            f"the journal could not be written ({error}), so nothing was sent. Make room on "
            "the disk and join again: it goes on where it was."
        ) from error


def _version(db: sqlite3.Connection) -> int:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return int(version)


def _made(db: sqlite3.Connection) -> int:
    """Make the tables, unless another process has meanwhile; return which version there is."""
    db.execute("BEGIN IMMEDIATE")
    version = _version(db)
    if version == 0:
        for statement in _TABLES.split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA user_version={VERSION}")
        version = VERSION
    db.execute("COMMIT")
    return version

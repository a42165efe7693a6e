"""The SQLite file of a home: its tables, and how they are read and written.

    records     the journal of privacy/securesum, kept permanently, in order
    vault       its secrets, overwritten when they are erased (secure_delete)
    departures  what has left the hospital, one row per vector, for people
    sessions    address, program and terms of each session, as they were when it was first seen
    runs        program and kind of each run, how it ended, and whether its model was fetched
    pins        keys of other members, seen or confirmed, in each session
    charges     what each noisy vector has spent of a data source's privacy budget
    disclosures the disclosure ledger: each run that was entered, and what it makes known
    failures    sums that this hospital could not compute, with the reason, for people
    row_bands   the row band of each data source, and who chose it (`gate.row_band`)
    answer_times, trials
                how long answers take, and programs that were tried over a table (`answer_times`)
    positions   where this hospital is in its runs: the newest state and the one before
    samples     samples of this hospital's own model that runs requested, and their status

A transaction is on disk when it ends (WAL with synchronous=FULL). There is no migration, because
no other version of this file has been released.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from client_sdk.errors import HomeDamaged, HomeNotWritten

VERSION = 14
_WAIT_S = 30
"""For another process that has the file locked."""
_TABLES = """
CREATE TABLE records (number INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;
CREATE TABLE vault (name TEXT PRIMARY KEY, content BLOB NOT NULL) STRICT;
CREATE TABLE departures (
    at TEXT NOT NULL, session TEXT NOT NULL, run TEXT NOT NULL, epoch INTEGER NOT NULL,
    slot INTEGER NOT NULL, stage INTEGER NOT NULL, algorithm TEXT NOT NULL, blocks TEXT NOT NULL,
    elements INTEGER NOT NULL, octets INTEGER NOT NULL, sha256 TEXT NOT NULL,
    sum_number INTEGER NOT NULL, rows TEXT NOT NULL, PRIMARY KEY (session, run, epoch, slot)
) STRICT;
CREATE TABLE sessions (
    session TEXT PRIMARY KEY, address TEXT NOT NULL, name TEXT NOT NULL, member TEXT NOT NULL,
    program TEXT NOT NULL, terms BLOB NOT NULL
) STRICT;
CREATE TABLE runs (
    run TEXT PRIMARY KEY, session TEXT NOT NULL, kind TEXT NOT NULL, program TEXT NOT NULL,
    status TEXT NOT NULL, code TEXT NOT NULL, detail TEXT NOT NULL, model TEXT,
    fetched INTEGER NOT NULL, parent TEXT, replayed INTEGER NOT NULL, certificate BLOB
) STRICT;
CREATE TABLE pins (
    session TEXT NOT NULL, name TEXT NOT NULL, key BLOB NOT NULL, confirmed INTEGER NOT NULL,
    PRIMARY KEY (session, name)
) STRICT;
CREATE TABLE charges (
    source TEXT NOT NULL, at REAL NOT NULL, session TEXT NOT NULL, run TEXT NOT NULL,
    epoch INTEGER NOT NULL, slot INTEGER NOT NULL, release TEXT NOT NULL, rows TEXT NOT NULL,
    noise TEXT NOT NULL, PRIMARY KEY (session, run, epoch, slot)
) STRICT;
CREATE TABLE disclosures (
    run TEXT PRIMARY KEY, session TEXT NOT NULL, source TEXT NOT NULL, at TEXT NOT NULL,
    program TEXT NOT NULL, dealt TEXT NOT NULL, rows TEXT NOT NULL, exact INTEGER NOT NULL,
    coordinator INTEGER NOT NULL, hospitals INTEGER NOT NULL, sums INTEGER NOT NULL
) STRICT;
CREATE TABLE failures (
    at TEXT NOT NULL, session TEXT NOT NULL, run TEXT NOT NULL, epoch INTEGER NOT NULL,
    slot INTEGER NOT NULL, stage INTEGER NOT NULL, algorithm TEXT NOT NULL, reason TEXT NOT NULL,
    sum_number INTEGER NOT NULL, rows TEXT NOT NULL, PRIMARY KEY (session, run, epoch, slot)
) STRICT;
CREATE TABLE row_bands (
    source TEXT PRIMARY KEY, rows INTEGER NOT NULL, chosen_by TEXT NOT NULL
) STRICT;
CREATE TABLE answer_times (
    program TEXT NOT NULL, band INTEGER NOT NULL, stage INTEGER NOT NULL, seconds REAL NOT NULL,
    PRIMARY KEY (program, band, stage)
) STRICT;
CREATE TABLE trials (program TEXT NOT NULL, rows TEXT NOT NULL, PRIMARY KEY (program, rows)) STRICT;
CREATE TABLE positions (
    run TEXT NOT NULL, sum_index INTEGER NOT NULL, stage INTEGER NOT NULL, digest BLOB NOT NULL,
    state BLOB NOT NULL, epoch INTEGER, slot INTEGER, deviations INTEGER NOT NULL,
    PRIMARY KEY (run, sum_index)
) STRICT;
CREATE TABLE samples (
    run TEXT PRIMARY KEY, session TEXT NOT NULL, epoch INTEGER NOT NULL, slot INTEGER NOT NULL,
    samples INTEGER NOT NULL, elements INTEGER NOT NULL, octets INTEGER NOT NULL,
    sha256 TEXT NOT NULL, rows TEXT NOT NULL, left_at TEXT, withdrawn_at TEXT, refused TEXT,
    body BLOB
) STRICT;
"""


class JournalFile:
    """The open file. The home's lock ensures that one process at a time writes the journal."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    @classmethod
    def open(cls, path: Path) -> "JournalFile":
        """Open or create the file; refuse a file that is not a journal or of another version."""
        try:
            # The asynchronous driver computes in threads, one at a time.
            db = sqlite3.connect(
                path, isolation_level=None, check_same_thread=False, timeout=_WAIT_S
            )
            db.row_factory = sqlite3.Row
            _write_ahead(db)
            db.execute("PRAGMA synchronous=FULL")
            db.execute("PRAGMA secure_delete=ON")
            db.execute("PRAGMA trusted_schema=OFF")
            version = _version(db) or _made(db)
        except sqlite3.DatabaseError as error:
            raise HomeDamaged(
                f"cannot open {path} as this hospital's journal ({error}). Do not replace it with "
                "a copy from a backup: create a new identity and have it confirmed."
            ) from error
        if version != VERSION:
            db.close()
            what = (
                "upgrade veilgp on this machine"
                if version > VERSION
                else "no release has used this version. Move the home away, and have a new "
                "identity confirmed"
            )
            raise HomeDamaged(
                f"{path} was written by another version of veilgp ({version}, not {VERSION}): "
                f"{what}"
            )
        return cls(db)

    def close(self) -> None:
        """Close the file; SQLite merges its write-ahead log into it and removes the log."""
        self.connection.close()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn database errors while reading into `HomeDamaged`."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise HomeDamaged(f"cannot read the journal: {error}") from error

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write everything in the block or nothing; it is on disk when the block ends."""
        with _named():
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self.connection.execute("ROLLBACK")
                raise
            self.connection.execute("COMMIT")

    def empty_log(self) -> None:
        """Empty SQLite's write-ahead log, so that it does not keep what was erased."""
        with _named():
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OverflowError) as error:
        raise HomeNotWritten(
            f"cannot write the journal ({error}), so nothing was sent. Free some disk space and "
            "join again: the run continues from the journal."
        ) from error


def _write_ahead(db: sqlite3.Connection) -> None:
    """Switch to WAL; SQLite does not wait for other processes here, so this does."""
    for last in (*[False] * (_WAIT_S * 100), True):
        try:
            db.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if last or error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            time.sleep(0.01)
        else:
            return


def _version(db: sqlite3.Connection) -> int:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return int(version)


def _made(db: sqlite3.Connection) -> int:
    """Create the tables, unless another process just has; return the file's version."""
    db.execute("BEGIN IMMEDIATE")
    version = _version(db)
    if version == 0:
        for statement in _TABLES.split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA user_version={VERSION}")
        version = VERSION
    db.execute("COMMIT")
    return version

"""The hospital's store: what is written with each step, and what people and a restart read.

`commit` returns when everything is on disk (`journal_file`): only then may anything be sent.
privacy/securesum checks that a journal is complete, belongs to this hospital, and is not a backup.
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from client_sdk.home.journal_file import JournalFile
from client_sdk.home.remembered import Charge, Departure, KnownRun, KnownSession, UnmaskedSamples
from privacy.identity import Pins
from privacy.ledger import Budget, Ledger
from privacy.securesum.records import Joined, Step
from privacy.securesum.terms import Terms

_ADD_DEPARTURE = (
    "INSERT OR IGNORE INTO departures (at, session, run, epoch, slot, stage, algorithm, "
    "blocks, elements, octets, sha256, rows) VALUES (:at, :session, :run, :epoch, :slot, "
    ":stage, :algorithm, :blocks, :elements, :octets, :sha256, :rows)"
)
_ADD_CHARGE = (
    "INSERT INTO charges (source, at, session, run, epoch, slot, release, rows) VALUES "
    "(:source, :at, :session, :run, :epoch, :slot, :release, :rows)"
)
_ADD_SAMPLES = (
    "INSERT OR IGNORE INTO samples (run, session, epoch, slot, samples, elements, octets, "
    "sha256, rows, left_at, withdrawn_at, refused, body) VALUES (:run, :session, :epoch, "
    ":slot, :samples, :elements, :octets, :sha256, :rows, :left_at, :withdrawn_at, :refused, "
    ":body)"
)
_ADD_RUN = (
    "INSERT OR IGNORE INTO runs (run, session, kind, program, status, code, detail, model, "
    "fetched) VALUES (:run, :session, :kind, :program, :status, :code, :detail, :model, "
    ":fetched)"
)
_ADD_SESSION = (
    "INSERT OR REPLACE INTO sessions (session, address, name, member, program, seed) VALUES "
    "(:session, :address, :name, :member, :program, :seed)"
)
_FORGET_WAITING = "DELETE FROM samples WHERE run = ? AND left_at IS NULL AND withdrawn_at IS NULL"
_WAITING_TO_LEAVE = (
    "SELECT * FROM samples "
    "WHERE run = ? AND body IS NOT NULL AND withdrawn_at IS NULL AND refused IS NULL"
)


class Store:
    """The open store. The home's lock ensures that one process at a time writes the journal."""

    def __init__(self, file: JournalFile) -> None:
        self._file = file
        self._db = file.connection

    @classmethod
    def open(cls, path: Path) -> "Store":
        """Open or create the file; refuse a file that is not a journal or of another version."""
        return cls(JournalFile.open(path))

    def close(self) -> None:
        """Close the file; SQLite merges its write-ahead log into it and removes the log."""
        self._file.close()

    # -- the journal

    def journal(self) -> tuple[list[bytes], dict[str, bytes | memoryview]]:
        """Return records and vault, as `Client.restore` takes them."""
        with self._file.reading():
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
        """Write a step to disk, with the rows that people read about it; then it may be sent."""
        if not (step.records or step.vault or departure or charge or run or samples):
            return
        with self._file.writing():
            self._db.executemany(
                "INSERT INTO records (data) VALUES (?)", [(data,) for data in step.records]
            )
            for name, content in step.vault.items():
                if content is None:
                    self._db.execute("DELETE FROM vault WHERE name = ?", (name,))
                else:
                    self._db.execute("INSERT OR REPLACE INTO vault VALUES (?, ?)", (name, content))
            if departure is not None:
                self._db.execute(_ADD_DEPARTURE, asdict(departure))
            if charge is not None:  # each sum is charged only once
                self._db.execute(_ADD_CHARGE, asdict(charge))
            if samples is not None:  # replace samples of a lost sum, but not withdrawn ones
                self._db.execute(_FORGET_WAITING, (samples.run,))
                self._db.execute(_ADD_SAMPLES, asdict(samples))
            if run is not None:
                self._db.execute(_ADD_RUN, asdict(run))
                self._db.execute(
                    "UPDATE runs SET status = ?, code = ?, detail = ?, model = ?, fetched = ? "
                    "WHERE run = ?",
                    (run.status, run.code, run.detail, run.model, run.fetched, run.run),
                )

    def erase_traces(self) -> None:
        """Empty SQLite's write-ahead log, so that it keeps no secrets erased from the vault."""
        self._file.empty_log()

    # -- what people read, and what a restart needs

    def departures(self) -> Iterator[Departure]:
        """Return what has left the hospital, in order."""
        with self._file.reading():
            rows = self._db.execute("SELECT * FROM departures ORDER BY rowid").fetchall()
        return (Departure(**row) for row in rows)

    def ledger(self, source: str, budget: Budget, *, rows: bytes = b"") -> Ledger:
        """Return what has been spent on a data source, over all sessions and coordinators.

        A source that was ever charged for exactly the same rows is the same table under another
        name, and what was spent on it counts too. rows: the digest of the current rows, if known.
        """
        query = (
            "SELECT * FROM charges WHERE source = :source OR source IN (SELECT source FROM charges "
            "WHERE rows <> '' AND (rows = :rows OR rows IN (SELECT rows FROM charges WHERE "
            "source = :source))) ORDER BY rowid"
        )
        with self._file.reading():
            charged = self._db.execute(query, {"source": source, "rows": rows.hex()}).fetchall()
        return Ledger(budget, tuple(Charge(**row).entry for row in charged))

    def charged_sources(self) -> list[str]:
        """Return the data sources on which anything has been spent."""
        with self._file.reading():
            rows = self._db.execute("SELECT DISTINCT source FROM charges ORDER BY source")
            return [source for (source,) in rows]

    def uncharged(self) -> list[tuple[str, int]]:
        """Return, for each session, the number of vectors sent without noise (exact sums)."""
        query = (
            "SELECT session, COUNT(*) FROM departures WHERE (session, run, epoch, slot) NOT IN "
            "(SELECT session, run, epoch, slot FROM charges) GROUP BY session ORDER BY session"
        )
        with self._file.reading():
            return [(session, count) for session, count in self._db.execute(query)]

    def terms(self) -> dict[str, Terms]:
        """Return the terms of every session that was joined."""
        records, _ = self.journal()
        joined = (Joined.decode(data) for data in records if data[1] == Joined.kind)
        return {str(UUID(bytes=record.terms.session)): record.terms for record in joined}

    # -- samples of this hospital's own model

    def samples(self) -> list[UnmaskedSamples]:
        """Return those that were sent, in the order in which they were requested."""
        query = "SELECT * FROM samples WHERE left_at IS NOT NULL ORDER BY rowid"
        with self._file.reading():
            return [UnmaskedSamples(**row) for row in self._db.execute(query)]

    def samples_to_send(self, run: str) -> UnmaskedSamples | None:
        """Return a run's samples that are not sent or not acknowledged yet, if any."""
        row = self._row(_WAITING_TO_LEAVE, run)
        return None if row is None else UnmaskedSamples(**row)

    def samples_leave(self, run: str, at: str) -> bool:
        """Record when a run's samples are first sent; return whether they may still be sent."""
        with self._file.writing():
            leaving = self._db.execute(
                "UPDATE samples SET left_at = COALESCE(left_at, ?) "
                "WHERE run = ? AND withdrawn_at IS NULL",
                (at, run),
            )
        return leaving.rowcount > 0

    def samples_taken(self, run: str, *, refused: str | None = None) -> None:
        """Delete the bytes: the coordinator has accepted them, or refused them with a code."""
        query = "UPDATE samples SET body = NULL, refused = ? WHERE run = ?"
        with self._file.writing():
            self._db.execute(query, (refused, run))

    def samples_not_needed(self, run: str) -> None:
        """Delete a run's samples if it produced no model or they may no longer be sent.

        The record of a withdrawal is kept: a coordinator may open the run again.
        """
        with self._file.writing():
            self._db.execute(_FORGET_WAITING, (run,))
            self._db.execute("UPDATE samples SET body = NULL WHERE run = ?", (run,))

    def withdraw_samples(self, session: str, at: str) -> None:
        """Withdraw all samples of a session: those of any run so far are not sent from now on."""
        with self._file.writing():
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
        """Return a session as it was stored, or None."""
        row = self._row("SELECT * FROM sessions WHERE session = ?", session)
        return None if row is None else KnownSession(**row)

    def remember_session(self, session: KnownSession) -> None:
        """Store a session as it is when it is joined."""
        with self._file.writing():
            self._db.execute(_ADD_SESSION, asdict(session))

    def run(self, run: str) -> KnownRun | None:
        """Return a run as it was stored, or None."""
        row = self._row("SELECT * FROM runs WHERE run = ?", run)
        return None if row is None else _run(row)

    def last_run(self, session: str) -> KnownRun | None:
        """Return the run of a session that was entered last, or None."""
        row = self._row("SELECT * FROM runs WHERE session = ? ORDER BY rowid DESC LIMIT 1", session)
        return None if row is None else _run(row)

    def pins(self, session: str, *, trust_first_use: bool = False) -> Pins:
        """Return the keys that this site has pinned in a session."""
        query = "SELECT name, key, confirmed FROM pins WHERE session = ?"
        with self._file.reading():
            rows = self._db.execute(query, (session,)).fetchall()
        return Pins(
            confirmed={name: key for name, key, confirmed in rows if confirmed},
            met={name: key for name, key, confirmed in rows if not confirmed},
            trust_first_use=trust_first_use,
        )

    def keep_pins(self, session: str, pins: Pins) -> None:
        """Store a session's pins, replacing its earlier ones."""
        rows = [(session, name, key, 0) for name, key in pins.met.items()]
        rows += [(session, name, key, 1) for name, key in pins.confirmed.items()]
        with self._file.writing():
            self._db.execute("DELETE FROM pins WHERE session = ?", (session,))
            self._db.executemany("INSERT INTO pins VALUES (?, ?, ?, ?)", rows)

    def sessions_that_met(self, name: str) -> list[str]:
        """Return the sessions in which a member of this name waits for confirmation."""
        query = "SELECT session FROM pins WHERE name = ? AND NOT confirmed"
        with self._file.reading():
            return [session for (session,) in self._db.execute(query, (name,))]

    def _row(self, query: str, *values: str) -> sqlite3.Row | None:
        with self._file.reading():
            row: sqlite3.Row | None = self._db.execute(query, values).fetchone()
        return row


def _run(row: sqlite3.Row) -> KnownRun:
    return replace(KnownRun(**row), fetched=bool(row["fetched"]))

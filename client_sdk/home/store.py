"""The hospital's memory: what is written with each step, and what people and a restart read back.

`commit` returns when everything is on the disk (`journal_file`): only then may anything be sent.
Whether a journal is whole, ours and not from a backup is decided by privacy/securesum.
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
    """The open file. One process at a time writes the journal; the home's lock sees to that."""

    def __init__(self, file: JournalFile) -> None:
        self._file = file
        self._db = file.connection

    @classmethod
    def open(cls, path: Path) -> "Store":
        """Open the file, or make it; refuse one that is none, or of another version."""
        return cls(JournalFile.open(path))

    def close(self) -> None:
        """Close the file; the log that SQLite kept beside it goes into it and is removed."""
        self._file.close()

    # -- the journal

    def journal(self) -> tuple[list[bytes], dict[str, bytes | memoryview]]:
        """Read records and vault, as `Client.restore` takes them."""
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
        """Make a step durable, with what people will want to read about it; then it may be sent."""
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
            if charge is not None:  # never a second time: each sum is charged once
                self._db.execute(_ADD_CHARGE, asdict(charge))
            if samples is not None:  # in place of those of a sum that was lost; not of withdrawn
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
        """Empty SQLite's own log: secrets that were erased from the vault are not left in it."""
        self._file.empty_log()

    # -- what people read, and what a restart needs

    def departures(self) -> Iterator[Departure]:
        """Give what has left, in the order in which it did."""
        with self._file.reading():
            rows = self._db.execute("SELECT * FROM departures ORDER BY rowid").fetchall()
        return (Departure(**row) for row in rows)

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
        with self._file.reading():
            charged = self._db.execute(query, {"source": source, "rows": rows.hex()}).fetchall()
        return Ledger(budget, tuple(Charge(**row).entry for row in charged))

    def charged_sources(self) -> list[str]:
        """Give the data sources that anything has been spent on."""
        with self._file.reading():
            rows = self._db.execute("SELECT DISTINCT source FROM charges ORDER BY source")
            return [source for (source,) in rows]

    def uncharged(self) -> list[tuple[str, int]]:
        """Give how many vectors have left without noise, exact sums, in each session."""
        query = (
            "SELECT session, COUNT(*) FROM departures WHERE (session, run, epoch, slot) NOT IN "
            "(SELECT session, run, epoch, slot FROM charges) GROUP BY session ORDER BY session"
        )
        with self._file.reading():
            return [(session, count) for session, count in self._db.execute(query)]

    def terms(self) -> dict[str, Terms]:
        """Give the terms of every session that was joined."""
        records, _ = self.journal()
        joined = (Joined.decode(data) for data in records if data[1] == Joined.kind)
        return {str(UUID(bytes=record.terms.session)): record.terms for record in joined}

    # -- samples of this hospital's own model

    def samples(self) -> list[UnmaskedSamples]:
        """Give those that have left, in the order in which they were asked for."""
        query = "SELECT * FROM samples WHERE left_at IS NOT NULL ORDER BY rowid"
        with self._file.reading():
            return [UnmaskedSamples(**row) for row in self._db.execute(query)]

    def samples_to_send(self, run: str) -> UnmaskedSamples | None:
        """Give a run's samples that wait to leave, or to be acknowledged."""
        row = self._row(_WAITING_TO_LEAVE, run)
        return None if row is None else UnmaskedSamples(**row)

    def samples_leave(self, run: str, at: str) -> bool:
        """Write down that they leave now, the first time; say whether they still may."""
        with self._file.writing():
            leaving = self._db.execute(
                "UPDATE samples SET left_at = COALESCE(left_at, ?) "
                "WHERE run = ? AND withdrawn_at IS NULL",
                (at, run),
            )
        return leaving.rowcount > 0

    def samples_taken(self, run: str, *, refused: str | None = None) -> None:
        """Forget the octets: the coordinator has them, or has refused them with this code."""
        query = "UPDATE samples SET body = NULL, refused = ? WHERE run = ?"
        with self._file.writing():
            self._db.execute(query, (refused, run))

    def samples_not_needed(self, run: str) -> None:
        """Forget the samples of a run that made no model, and those that may no longer leave.

        That they were withdrawn is not forgotten: a coordinator may open such a run once more.
        """
        with self._file.writing():
            self._db.execute(_FORGET_WAITING, (run,))
            self._db.execute("UPDATE samples SET body = NULL WHERE run = ?", (run,))

    def withdraw_samples(self, session: str, at: str) -> None:
        """Take all samples of a session back: of every run so far none leaves from now on."""
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
        """Give what is known of a session."""
        row = self._row("SELECT * FROM sessions WHERE session = ?", session)
        return None if row is None else KnownSession(**row)

    def remember_session(self, session: KnownSession) -> None:
        """Keep a session as it is when it is joined."""
        with self._file.writing():
            self._db.execute(_ADD_SESSION, asdict(session))

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
        with self._file.reading():
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
        with self._file.writing():
            self._db.execute("DELETE FROM pins WHERE session = ?", (session,))
            self._db.executemany("INSERT INTO pins VALUES (?, ?, ?, ?)", rows)

    def sessions_that_met(self, name: str) -> list[str]:
        """Give the sessions in which a member of this name waits for confirmation."""
        query = "SELECT session FROM pins WHERE name = ? AND NOT confirmed"
        with self._file.reading():
            return [session for (session,) in self._db.execute(query, (name,))]

    def _row(self, query: str, *values: str) -> sqlite3.Row | None:
        with self._file.reading():
            row: sqlite3.Row | None = self._db.execute(query, values).fetchone()
        return row


def _run(row: sqlite3.Row) -> KnownRun:
    return replace(KnownRun(**row), fetched=bool(row["fetched"]))

"""The hospital's store: what is written with each step, and what people and a restart read.

`commit` returns when everything is on disk (`journal_file`): only then may anything be sent.
privacy/securesum checks that a journal is complete, belongs to this hospital, and is not a backup.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from client_sdk.home.disclosures import DisclosureLedger, EnteredRun
from client_sdk.home.journal_file import JournalFile
from client_sdk.home.remembered import (
    Charge,
    Departure,
    Failure,
    Holding,
    KnownRun,
    KnownSession,
    UnmaskedSamples,
)
from privacy.identity import Pins
from privacy.ledger import Budget, Ledger
from privacy.securesum.records import Joined, Step
from privacy.securesum.terms import Terms

if TYPE_CHECKING:
    from kernels.rounds.position import Position
    from kernels.rounds.program import Program

_ADD_DEPARTURE = (
    "INSERT OR IGNORE INTO departures (at, session, run, epoch, slot, stage, algorithm, "
    "blocks, elements, octets, sha256, sum_number, rows) VALUES (:at, :session, :run, :epoch, "
    ":slot, :stage, :algorithm, :blocks, :elements, :octets, :sha256, :sum_number, :rows)"
)
_ADD_CHARGE = (
    "INSERT INTO charges (source, at, session, run, epoch, slot, release, rows, noise) VALUES "
    "(:source, :at, :session, :run, :epoch, :slot, :release, :rows, :noise) "
    "ON CONFLICT (session, run, epoch, slot) DO UPDATE SET noise = :noise"
)
_ADD_FAILURE = (
    "INSERT OR IGNORE INTO failures (at, session, run, epoch, slot, stage, algorithm, reason, "
    "sum_number, rows) VALUES (:at, :session, :run, :epoch, :slot, :stage, :algorithm, :reason, "
    ":sum_number, :rows)"
)
_ADD_SAMPLES = (
    "INSERT OR IGNORE INTO samples (run, session, epoch, slot, samples, elements, octets, "
    "sha256, rows, left_at, withdrawn_at, refused, body) VALUES (:run, :session, :epoch, "
    ":slot, :samples, :elements, :octets, :sha256, :rows, :left_at, :withdrawn_at, :refused, "
    ":body)"
)
_ADD_RUN = (
    "INSERT OR IGNORE INTO runs (run, session, kind, program, status, code, detail, model, "
    "fetched, parent, replayed, certificate) VALUES (:run, :session, :kind, :program, :status, "
    ":code, :detail, :model, :fetched, :parent, :replayed, :certificate)"
)
_ADD_ENTERED = (
    "INSERT INTO disclosures (run, session, source, at, program, dealt, rows, exact, coordinator, "
    "hospitals, sums) VALUES (:run, :session, :source, :at, :program, :dealt, :rows, :exact, "
    ":coordinator, :hospitals, :sums)"
)
_ENTERED = (
    "SELECT * FROM disclosures WHERE source = :source OR source IN (SELECT source FROM disclosures "
    "WHERE rows <> '' AND (rows = :rows OR rows IN (SELECT rows FROM disclosures WHERE "
    "source = :source))) ORDER BY rowid"
)
_VECTORS = (
    "SELECT COUNT(*) FROM departures WHERE run IN (SELECT run FROM disclosures WHERE exact AND "
    "(source = :source OR source IN (SELECT source FROM disclosures WHERE rows <> '' AND "
    "(rows = :rows OR rows IN (SELECT rows FROM disclosures WHERE source = :source)))))"
)
_ADD_SESSION = (
    "INSERT OR REPLACE INTO sessions (session, address, name, member, program, terms) VALUES "
    "(:session, :address, :name, :member, :program, :terms)"
)
_ADD_POSITION = (
    "INSERT OR REPLACE INTO positions (run, sum_index, stage, digest, state, epoch, slot, "
    "deviations) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
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
        run: KnownRun | None = None,
        samples: UnmaskedSamples | None = None,
        entered: EnteredRun | None = None,
        failure: Failure | None = None,
        holding: Holding | None = None,
    ) -> None:
        """Write a step to disk, with the rows that people read about it; then it may be sent."""
        rows = departure or run or samples or entered or failure or holding
        if not (step.records or step.vault or rows):
            return
        with self._file.writing():
            self._db.executemany(
                "INSERT INTO records (data) VALUES (?)", [(data,) for data in step.records]
            )
            held = {} if holding is None else holding.vault
            for name, content in {**held, **step.vault}.items():
                if content is None:
                    self._db.execute("DELETE FROM vault WHERE name = ?", (name,))
                else:
                    self._db.execute("INSERT OR REPLACE INTO vault VALUES (?, ?)", (name, content))
            if departure is not None:
                self._db.execute(_ADD_DEPARTURE, asdict(departure))
            if failure is not None:
                self._db.execute(_ADD_FAILURE, asdict(failure))
            if samples is not None:  # replace samples of a lost sum, but not withdrawn ones
                self._db.execute(_FORGET_WAITING, (samples.run,))
                self._db.execute(_ADD_SAMPLES, asdict(samples))
            if entered is not None:  # a run is entered only once
                self._db.execute(_ADD_ENTERED, asdict(entered))
            if holding is not None:
                self._hold(holding)
            if run is not None:
                self._db.execute(_ADD_RUN, asdict(run))
                self._db.execute(
                    "UPDATE runs SET status = :status, code = :code, detail = :detail, "
                    "model = :model, fetched = :fetched, replayed = :replayed, "
                    "certificate = :certificate WHERE run = :run "
                    # What was replayed under one model's name never passes to another model.
                    "AND NOT (replayed AND model IS NOT :model)",
                    asdict(run),
                )

    def _hold(self, holding: Holding) -> None:
        """Write the positions that are not on disk yet, and delete older ones."""
        query = "SELECT sum_index, digest FROM positions WHERE run = ?"
        known = dict(self._db.execute(query, (holding.run,)).fetchall())
        kept = [each for each in (holding.before, holding.newest) if each is not None]
        for position in kept:
            if known.get(position.sum_index) == position.digest:
                continue
            made_by = holding.made_by if position is holding.newest else None
            self._db.execute(
                _ADD_POSITION,
                (
                    holding.run,
                    position.sum_index,
                    position.stage,
                    position.digest,
                    position.encoded,
                    *(made_by or (None, None)),
                    holding.deviations,
                ),
            )
        # The count is of the run: going back to a position does not give its deviations back.
        self._db.execute(
            "UPDATE positions SET deviations = ? WHERE run = ?", (holding.deviations, holding.run)
        )
        marks = ", ".join("?" * len(kept))
        self._db.execute(
            f"DELETE FROM positions WHERE run = ? AND sum_index NOT IN ({marks})",  # noqa: S608
            (holding.run, *(each.sum_index for each in kept)),
        )

    def holding(self, run: str, program: "Program") -> Holding | None:
        """Return where this hospital is in a run, as it was last written."""
        query = "SELECT * FROM positions WHERE run = ? ORDER BY sum_index DESC"
        with self._file.reading():
            rows = self._db.execute(query, (run,)).fetchall()
        if not rows:
            return None
        newest, before = rows[0], rows[1] if len(rows) > 1 else None
        made_by = None if newest["epoch"] is None else (newest["epoch"], newest["slot"])
        return Holding(
            run,
            _position(program, newest),
            None if before is None else _position(program, before),
            made_by,
            newest["deviations"],
        )

    def forget_positions(self, run: str) -> None:
        """Delete the positions of a run that is over."""
        with self._file.writing():
            self._db.execute("DELETE FROM positions WHERE run = ?", (run,))

    def erase_traces(self) -> None:
        """Empty SQLite's write-ahead log, so that it keeps no secrets erased from the vault."""
        self._file.empty_log()

    # -- what people read, and what a restart needs

    def departures(self) -> Iterator[Departure]:
        """Return what has left the hospital, in order."""
        with self._file.reading():
            rows = self._db.execute("SELECT * FROM departures ORDER BY rowid").fetchall()
        return (Departure(**row) for row in rows)

    # -- answer times

    def row_band(self, source: str) -> int | None:
        """Return the row band of a data source, or None."""
        row = self._row("SELECT rows FROM row_bands WHERE source = ?", source)
        return None if row is None else int(row["rows"])

    def keep_row_band(self, source: str, rows: int, *, by: str) -> None:
        """Store the row band of a data source, replacing an earlier one, and who chose it."""
        with self._file.writing():
            self._db.execute(
                "INSERT OR REPLACE INTO row_bands VALUES (?, ?, ?)", (source, rows, by)
            )

    def answer_times(self, program: str, band: int) -> tuple[float, ...]:
        """Return what was measured for a program's digest and a row band; empty if nothing was."""
        query = "SELECT seconds FROM answer_times WHERE program = ? AND band = ? ORDER BY stage"
        with self._file.reading():
            return tuple(seconds for (seconds,) in self._db.execute(query, (program, band)))

    def keep_answer_times(self, program: str, band: int, times: Sequence[float]) -> None:
        """Store what was measured."""
        rows = [(program, band, stage, seconds) for stage, seconds in enumerate(times)]
        with self._file.writing():
            self._db.executemany("INSERT OR REPLACE INTO answer_times VALUES (?, ?, ?, ?)", rows)

    def tried(self, program: str, rows: str) -> bool:
        """Return whether a program, by its digest, was tried over these rows, by theirs."""
        query = "SELECT * FROM trials WHERE program = ? AND rows = ?"
        return self._row(query, program, rows) is not None

    def keep_tried(self, program: str, rows: str) -> None:
        """Store that a program was tried over these rows without a failure."""
        with self._file.writing():
            self._db.execute("INSERT OR IGNORE INTO trials VALUES (?, ?)", (program, rows))

    # -- failures and charges

    def failures(self) -> list[Failure]:
        """Return the sums that this hospital could not compute, in order."""
        with self._file.reading():
            rows = self._db.execute("SELECT * FROM failures ORDER BY rowid").fetchall()
        return [Failure(**row) for row in rows]

    def charge(self, charge: Charge) -> None:
        """Write a charge to disk, before any row is read for it; each sum is charged only once.

        A sum that was charged before, and is computed again after a crash, has another draw of
        noise.
        """
        with self._file.writing():
            self._db.execute(_ADD_CHARGE, asdict(charge))

    def charge_of(self, session: str, run: str, epoch: int, slot: int) -> Charge | None:
        """Return the charge for a sum, if there is one."""
        query = "SELECT * FROM charges WHERE session = ? AND run = ? AND epoch = ? AND slot = ?"
        with self._file.reading():
            row = self._db.execute(query, (session, run, epoch, slot)).fetchone()
        return None if row is None else Charge(**row)

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

    def disclosures(self, source: str, *, rows: bytes = b"") -> DisclosureLedger:
        """Return what exact sums of a data source have made known, over all sessions.

        As for `ledger`, a source that ever had exactly the same rows counts too.
        """
        which = {"source": source, "rows": rows.hex()}
        with self._file.reading():
            found = self._db.execute(_ENTERED, which).fetchall()
            (vectors,) = self._db.execute(_VECTORS, which).fetchone()
        entries = (EnteredRun(**{**row, "exact": bool(row["exact"])}) for row in found)
        return DisclosureLedger(tuple(entries), vectors)

    def disclosing_sources(self) -> list[str]:
        """Return the data sources over which a run was entered."""
        with self._file.reading():
            rows = self._db.execute("SELECT DISTINCT source FROM disclosures ORDER BY source")
            return [source for (source,) in rows]

    def obtained(self, model: str) -> bool:
        """Return whether a model, by its id, is one that this hospital has computed in a run."""
        return self._row("SELECT run FROM runs WHERE model = ? AND replayed", model) is not None

    def obtained_models(self) -> frozenset[str]:
        """Return the ids of all models that this hospital has computed in a run."""
        query = "SELECT model FROM runs WHERE model IS NOT NULL AND replayed"
        with self._file.reading():
            return frozenset(model for (model,) in self._db.execute(query))

    def rows_of(self, run: str) -> str | None:
        """Return the digest of the rows, changes included, with which a run was entered."""
        row = self._row("SELECT dealt FROM disclosures WHERE run = ?", run)
        return None if row is None else str(row["dealt"])

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

    def address(self, session: str) -> str | None:
        """Return the address that a session is known by: as approved, or as first seen."""
        approved = self._row("SELECT address FROM addresses WHERE session = ?", session)
        seen = self.session(session)
        if approved is not None:
            return str(approved["address"])
        return None if seen is None else seen.address

    def keep_address(self, session: str, address: str, *, by: str, at: str) -> bool:
        """Store the address that `by` has approved; return whether the session was forgotten.

        It is if this hospital has entered none of its runs: what was seen at the other address may
        not have been the session. Otherwise program and terms stay as they were first seen.
        """
        forget = self.last_run(session) is None
        with self._file.writing():
            self._db.execute(
                "INSERT OR REPLACE INTO addresses VALUES (?, ?, ?, ?)", (session, address, by, at)
            )
            if forget:
                self._db.execute("DELETE FROM sessions WHERE session = ?", (session,))
        return forget

    def session_names(self) -> dict[str, str]:
        """Return the names of all sessions by their id, as the coordinator stated them."""
        with self._file.reading():
            return dict(self._db.execute("SELECT session, name FROM sessions").fetchall())

    def remember_session(self, session: KnownSession) -> None:
        """Store a session as it is when it is first seen."""
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
    return replace(KnownRun(**row), fetched=bool(row["fetched"]), replayed=bool(row["replayed"]))


def _position(program: "Program", row: sqlite3.Row) -> "Position":
    # Both need torch. Most commands read no position, and should not wait for it.
    from kernels.rounds.position import Position
    from kernels.rounds.registry import restore

    return Position(program, row["stage"], row["sum_index"], restore(row["state"]))

"""The privacy ledger of each session, stored as rows: its budget and every charge.

A sum is charged in the transaction that starts it, before any member receives its task. Charges are
never refunded: the total of a lost sum may have been seen.
"""

import json

from sqlalchemy import Connection, insert, select

from privacy.accounting.events import Release
from privacy.ledger import Budget, Entry, Ledger
from service.database.tables import charges, sessions


def load(connection: Connection, session_id: str) -> Ledger | None:
    """Return a session's ledger; None without differential privacy."""
    row = connection.execute(
        select(sessions.c.epsilon, sessions.c.delta).where(sessions.c.id == session_id)
    ).one()
    if row.epsilon is None:
        return None
    query = select(charges).where(charges.c.session_id == session_id).order_by(charges.c.id)
    return Ledger(
        Budget(row.epsilon, row.delta),
        tuple(
            Entry(
                at=each.at,
                session=each.session_id,
                run=each.run_id,
                epoch=each.epoch,
                slot=each.slot,
                release=Release.from_json(json.loads(each.release)),
            )
            for each in connection.execute(query)
        ),
    )


def add(connection: Connection, entry: Entry) -> None:
    """Store a charge."""
    connection.execute(
        insert(charges).values(
            session_id=entry.session,
            run_id=entry.run,
            at=entry.at,
            epoch=entry.epoch,
            slot=entry.slot,
            release=json.dumps(entry.release.to_json()),
        )
    )

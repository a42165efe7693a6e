"""Which members are present: those that have signed a request within the last 75 seconds.

A waiting member sends a new request every 25 s. The nonces of requests are stored for some minutes
anyway, and shared by all replicas, so presence needs no record of its own.
"""

from sqlalchemy import Connection, select

from service.database.tables import members, nonces

WITHIN_S = 75.0


def present(connection: Connection, session_id: str, *, now: float) -> frozenset[str]:
    """Return the names of a session's members that are present."""
    lately = nonces.c.time_ms >= int((now - WITHIN_S) * 1000)
    query = (
        select(members.c.name)
        .where(members.c.session_id == session_id)
        .where(members.c.key.in_(select(nonces.c.key).where(lately)))
    )
    return frozenset(connection.execute(query).scalars())

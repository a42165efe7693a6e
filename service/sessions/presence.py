"""Which members are there now: those that have signed a request within the last minute or so.

A member that waits asks again every 25 s. The nonces of requests are remembered anyway, for minutes
and by all replicas together, so being present needs no record of its own, and leaves none.
"""

from sqlalchemy import Connection, select

from service.database.tables import members, nonces

WITHIN_S = 75.0


def present(connection: Connection, session_id: str, *, now: float) -> frozenset[str]:
    """Give the names of a session's members that are there."""
    lately = nonces.c.time_ms >= int((now - WITHIN_S) * 1000)
    query = (
        select(members.c.name)
        .where(members.c.session_id == session_id)
        .where(members.c.key.in_(select(nonces.c.key).where(lately)))
    )
    return frozenset(connection.execute(query).scalars())

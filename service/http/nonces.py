"""Nonces of members' requests, stored for as long as a request could be replayed."""

from sqlalchemy import Connection, delete, insert
from sqlalchemy.exc import IntegrityError

from privacy.errors import Replayed
from privacy.requests import WINDOW_MS, SignedRequest
from service.database.tables import nonces

_TAKE = insert(nonces)  # built once: every request of a member runs it


def remember(connection: Connection, request: SignedRequest, *, now_ms: int) -> None:
    """Store a request's nonce, or refuse a nonce that is already stored.

    A request is accepted until `WINDOW_MS` after its time, so older nonces can be deleted. They are
    kept for twice as long, in case the clock is set back. One request in 256 deletes old nonces.
    """
    try:
        connection.execute(
            _TAKE, {"key": request.key, "nonce": request.nonce, "time_ms": request.time_ms}
        )
    except IntegrityError as error:
        raise Replayed(
            "A request with this nonce has already been answered; sign each request with a new one."
        ) from error
    if request.nonce[0] == 0:
        connection.execute(delete(nonces).where(nonces.c.time_ms < now_ms - 2 * WINDOW_MS))

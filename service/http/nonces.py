"""Nonces of members' requests, remembered for as long as a request may be sent again."""

from sqlalchemy import Connection, delete, insert
from sqlalchemy.exc import IntegrityError

from privacy.errors import Replayed
from privacy.requests import WINDOW_MS, SignedRequest
from service.database.tables import nonces

_TAKE = insert(nonces)  # built once: every request of a member asks it


def remember(connection: Connection, request: SignedRequest, *, now_ms: int) -> None:
    """Take a request's nonce, or refuse one that was taken.

    A request is accepted until `WINDOW_MS` after its time, so older nonces can go. They are kept
    for twice as long, for a clock that is set back. One request in 256 pays for the cleaning.
    """
    try:
        connection.execute(
            _TAKE, {"key": request.key, "nonce": request.nonce, "time_ms": request.time_ms}
        )
    except IntegrityError as error:
        raise Replayed(
            "A request with this nonce has been answered already; sign each one anew."
        ) from error
    if request.nonce[0] == 0:
        connection.execute(delete(nonces).where(nonces.c.time_ms < now_ms - 2 * WINDOW_MS))

"""The address of a session: a hospital knows a session by its id and the address it was seen at.

A session's id is in every link, so anyone who has seen one can make another link with that id and
an address of their own. Whoever answers there could show another program and other terms before the
coordinator does, so that the coordinator's are refused as changed; or a hospital that is enrolled
could be made to take part there. Coordinators have no key that hospitals know them by: who answers
at an address is proven by TLS, so the address is what is kept.

A link with another address is refused before anything is sent. A coordinator that has really moved
is accepted by a named person (`client_sdk.approval.approve_address`).
"""

from client_sdk.errors import SessionElsewhere
from client_sdk.home.store import Store


def check_address(store: Store, session: str, address: str) -> None:
    """Refuse a link with another address than the one that this hospital knows the session by."""
    known = store.address(session)
    if known not in (None, address):
        raise SessionElsewhere(
            f"this hospital knows the session by the address {known}, and the link says "
            f"{address}: nothing was sent there. One of the two may belong to somebody who "
            "pretends to be the session. Ask the coordinator's operator by telephone. If the "
            "coordinator is at the link's address now, run: veilgp approve-address LINK --by NAME; "
            "otherwise use a link with the address that is known"
        )

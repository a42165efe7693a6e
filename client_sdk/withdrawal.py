"""`withdraw`: take the samples of this hospital's own model back, at any time.

It needs neither the table nor the home's lock: a hospital that is in a run, or has long left, or
that was suspended, withdraws all the same. First it is written here, so that nothing more leaves
whatever becomes of the network; then the coordinator is told, whose answer says that the samples
are gone from every prediction from then on. Asked again it is the same.
"""

import os

from client_sdk.errors import SessionError
from client_sdk.home.home import Home
from client_sdk.network.exchange import Clock, Exchange, Patience
from client_sdk.network.links import Link
from client_sdk.network.transport import Transport, run
from privacy.requests import host_of


def withdraw(
    session: str,
    *,
    home: str | os.PathLike[str] | None = None,
    outage_s: float = 60.0,
    ca: str | os.PathLike[str] | None = None,
    allow_http: bool = False,
    transport: Transport | None = None,
) -> int:
    """Withdraw from the open ensembles of a session's runs so far; return how many had samples.

    The sums that this hospital took part in stay: they are not its own. A later run asks anew, and
    gets samples if the policy then still says open_ensemble = true. What the coordinator computed
    or copied before cannot be called back.

    outage_s: give up after so long without an answer; what is written here stays written.
    """
    link = Link.parse(session, allow_http=allow_http)
    place, clock = Home(home), Clock()
    store = place.read()
    try:
        if store.session(str(link.session)) is None:
            raise SessionError("this hospital has not joined that session: there is nothing of it")
        store.withdraw_samples(str(link.session), clock.now().isoformat(timespec="seconds"))
        left = sum(own.session == str(link.session) for own in store.samples())
    finally:
        store.close()
    exchange = Exchange(
        place.identity(),
        host=host_of(link.origin),
        patience=Patience(outage_s=outage_s),
        clock=clock,
    )
    run(
        exchange.delete(f"/sessions/{link.session}/samples"),
        link.origin,
        ca=ca,
        transport=transport,
    )
    return left

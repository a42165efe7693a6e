"""`withdraw`: withdraw the samples of this hospital's own model, at any time.

It needs neither the table nor the home's lock: a hospital can withdraw during a run, long after it
has left, or while it is suspended. The withdrawal is first written to the home, so that nothing
more leaves even if the network fails. Then the coordinator is told; its response confirms that the
samples are not used in any later prediction. Calling it again has no further effect.
"""

import os

from client_sdk.errors import SessionError
from client_sdk.home.addresses import check_address
from client_sdk.home.home import Home
from client_sdk.network.exchange import Clock, Exchange, Patience
from client_sdk.network.links import SessionLink
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

    The sums that this hospital took part in remain: they are not its own numbers. A later run
    requests samples again and gets them if the policy then still has open_ensemble = true. What the
    coordinator has already computed or copied cannot be undone.

    outage_s: give up after this many seconds without a response; the withdrawal stays recorded
        here.
    """
    link = SessionLink.parse(session, allow_http=allow_http)
    place, clock = Home(home), Clock()
    store = place.read()
    try:
        if store.session(str(link.session)) is None:
            raise SessionError(
                "this hospital has not joined this session: there is nothing to withdraw"
            )
        check_address(store, str(link.session), link.address)
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

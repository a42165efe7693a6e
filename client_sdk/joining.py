"""`join`: take part in a session with a table, and get the global model.

Both functions run the same conversation (`conversation.session`): `join` blocks, `join_async` is
for an event loop. After any interruption, calling them again continues from the journal.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from client_sdk.conversation.hospital_side import HospitalSide
from client_sdk.conversation.offer import (
    Offer,
    OfferReview,
    read_invitation,
    read_membership,
    remember,
)
from client_sdk.conversation.session import Finished, take_part
from client_sdk.errors import SessionError
from client_sdk.events import EventWatch, Trouble
from client_sdk.gate.policy import Policy, policy_of
from client_sdk.home.addresses import check_address
from client_sdk.home.home import Home, OpenHome
from client_sdk.home.policies import Policies
from client_sdk.home.roster_file import read_roster
from client_sdk.home.store import Store
from client_sdk.model.gain_shown import showing_gains
from client_sdk.model.known_members import members_of_store
from client_sdk.model.model import GlobalModel
from client_sdk.network.exchange import Clock, Effects, Exchange, Patience
from client_sdk.network.links import SessionLink
from client_sdk.network.transport import AsyncTransport, Transport, run, run_async
from client_sdk.progress import watching
from client_sdk.tables.hospital_table import Changes
from kernels.rounds.order import whole_program
from privacy.requests import host_of

PathLike = str | os.PathLike[str]


def join(
    session: str,
    data: object,
    policy: Policy | str | Path | None = None,
    *,
    added: object = None,
    removed: object = None,
    source: str = "table",
    home: PathLike | None = None,
    roster: PathLike | Mapping[str, bytes] | None = None,
    once: bool = True,
    on_model: Callable[[GlobalModel], None] | None = None,
    progress: str | EventWatch | None = None,
    deadline_s: float | None = None,
    outage_s: float = 3600.0,
    ca: PathLike | None = None,
    allow_http: bool = False,
    transport: Transport | None = None,
) -> GlobalModel:
    """Take part in a session's current or next run, and return the global model.

    session: a join link, or https://host/sessions/<id> once enrolled.
    data: the hospital's table; only masked sums that the policy allows leave the hospital.
    policy: what this site allows, or the path of its TOML file; None allows nothing.
    added, removed: tables of the rows that an update run adds and removes. If only one hospital has
        such rows, their sum is that hospital's own numbers, so `consents` in the policy must list
        `update`. With differential privacy `removed` is refused.
    source: this table's name in the journal. Without differential privacy, a source is summed only
        with one set of members and one state of its table. With differential privacy, a source has
        one budget. The same rows, read with the same schema under a second name, share this budget.
        With an additional row, another schema or another home the rows would get a second budget,
        which cannot be detected here.
    home: the folder of identity and journal; by default VEILGP_HOME or ~/.veilgp.
    roster: a file with the keys of all members, confirmed out of band.
    once: return after one run. Otherwise stay for all later runs; `on_model` gets each model.
    progress: auto, rich, plain, silent, or a function that is called with every event.
    deadline_s: give up after this many seconds in total.
    outage_s: give up after this many seconds without any response.
    ca: a file with your organisation's certificate authority.
    transport: an httpx transport, for tests.
    """
    link = SessionLink.parse(session, allow_http=allow_http)
    patience = Patience(deadline_s, outage_s)
    plan = _Plan(link, policy_of(policy), home, _pinned(roster), progress, patience)
    effects = plan.joined(data, Changes(added, removed), source, once=once, on_model=on_model)
    return run(effects, link.origin, ca=ca, transport=transport)


async def join_async(
    session: str,
    data: object,
    policy: Policy | str | Path | None = None,
    *,
    added: object = None,
    removed: object = None,
    source: str = "table",
    home: PathLike | None = None,
    roster: PathLike | Mapping[str, bytes] | None = None,
    once: bool = True,
    on_model: Callable[[GlobalModel], None] | None = None,
    progress: str | EventWatch | None = None,
    deadline_s: float | None = None,
    outage_s: float = 3600.0,
    ca: PathLike | None = None,
    allow_http: bool = False,
    transport: AsyncTransport | None = None,
) -> GlobalModel:
    """Do the same as `join` in an event loop: requests are awaited, computation is in a thread."""
    link = SessionLink.parse(session, allow_http=allow_http)
    patience = Patience(deadline_s, outage_s)
    plan = _Plan(link, policy_of(policy), home, _pinned(roster), progress, patience)
    effects = plan.joined(data, Changes(added, removed), source, once=once, on_model=on_model)
    return await run_async(effects, link.origin, ca=ca, transport=transport)


def offered(
    session: str,
    *,
    home: PathLike | None = None,
    deadline_s: float | None = None,
    ca: PathLike | None = None,
    allow_http: bool = False,
    transport: Transport | None = None,
) -> Offer:
    """Return what a session asks of its members; nobody is enrolled.

    session: a join link, which needs no home, or https://host/sessions/<id> once enrolled. If there
        is a home, it remembers the session: one that changes later is refused.
    """
    link = SessionLink.parse(session, allow_http=allow_http)
    place, patience = Home(home), Patience(deadline_s, _READ_OUTAGE_S)
    with _store_of(place) as store:
        if store is not None:
            check_address(store, str(link.session), link.address)
        seen = None if store is None else store.session(str(link.session))
        if link.secret is not None and (seen is None or not seen.member):
            exchange = Exchange(None, host=host_of(link.origin), patience=patience)
            effects = read_invitation(exchange, link)
        elif store is None:
            raise SessionError(
                f"{place.path} has no identity, so it is no member: read the session with a join "
                "link, https://host/join/<id>#<secret>"
            )
        else:
            identity = place.identity()
            exchange = Exchange(identity, host=host_of(link.origin), patience=patience)
            effects = read_membership(exchange, link, identity.key)
        offer = run(effects, link.origin, ca=ca, transport=transport)
        if store is None:
            whole_program.check(offer.program)
        else:
            remember(store, link, offer)
    return offer


def enrol(
    session: str,
    *,
    home: PathLike | None = None,
    progress: str | EventWatch | None = None,
    deadline_s: float | None = None,
    ca: PathLike | None = None,
    allow_http: bool = False,
    transport: Transport | None = None,
) -> Offer:
    """Enrol this hospital's key with a join link, and return the offer; nothing else is sent."""
    link = SessionLink.parse(session, allow_http=allow_http)
    plan = _Plan(link, Policy(), home, {}, progress, Patience(deadline_s))
    return run(plan.enrolled(), link.origin, ca=ca, transport=transport)


_READ_OUTAGE_S = 60.0
"""How long to try to read an offer; a person waits for it."""


@contextmanager
def _store_of(home: Home) -> Iterator[Store | None]:
    """Yield the journal of a home, without its lock; None if there is no home."""
    if not home.exists():
        yield None
        return
    store = home.read()
    try:
        yield store
    finally:
        store.close()


@dataclass(frozen=True)
class _Plan:
    """The arguments of `join`, `join_async` and `enrol`."""

    link: SessionLink
    policy: Policy
    home: PathLike | None
    roster: Mapping[str, bytes]
    progress: str | EventWatch | None
    patience: Patience
    clock: Clock = field(default_factory=Clock)

    def joined(
        self,
        data: object,
        changes: Changes,
        source: str,
        *,
        once: bool,
        on_model: Callable[[GlobalModel], None] | None,
    ) -> Effects[GlobalModel]:
        """Take part, with the home open and events shown until the end."""
        models: list[GlobalModel] = []

        def finished(done: Finished) -> None:
            model = GlobalModel.from_artifact(
                done.artifact,
                done.card,
                certificate=done.certificate,
                expected_id=done.model,
                home=self.home,
                names={
                    **members_of_store(home.store, home.identity.key, str(self.home)).names,
                    **{key: name for name, key in self.roster.items()},
                },
            )
            models[:] = [model]
            if on_model is not None:
                on_model(model)
            gains.show(model, done.site, home.dealing)

        with (
            watching(self.progress) as watch,
            showing_gains(watch) as gains,
            Home(self.home).open() as home,
        ):
            side = replace(
                self._side(home, watch),
                data=data,
                changes=changes,
                source=source,
                roster=self.roster,
                reviewed=Policies(Home(self.home)).is_approved(str(self.link.session)),
            )
            yield from take_part(side, once=once, finished=finished)
        return models[0]

    def enrolled(self) -> Effects[Offer]:
        """Enrol, and read the offer."""
        with watching(self.progress) as watch, Home(self.home).open() as home:
            return (yield from OfferReview(self._side(home, watch)).read())

    def _side(self, home: OpenHome, watch: EventWatch) -> HospitalSide:
        exchange = Exchange(
            home.identity,
            host=host_of(self.link.origin),
            patience=self.patience,
            clock=self.clock,
            notice=lambda reason, again_in_s: watch(Trouble(reason, again_in_s)),
        )
        return HospitalSide(home, exchange, self.link, self.policy, watch)


def _pinned(roster: PathLike | Mapping[str, bytes] | None) -> Mapping[str, bytes]:
    if roster is None:
        return {}
    return roster if isinstance(roster, Mapping) else read_roster(roster)

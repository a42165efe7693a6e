"""A session's offer, and its review by this hospital before anything about its table leaves.

    enrol → read the offer → disclose what would leave → check policy, table and budget → approved

An invitation can be read before that, by anyone who has its link and any number of times, with
nobody enrolled and nothing signed (`read_invitation`). Program and terms are stored when they are
first seen, which may be then: a session in which either changes later is refused. So is a link
with another address for a session that is known, before anything is sent there (`home.addresses`).
"""

from dataclasses import dataclass
from uuid import UUID

from client_sdk.conversation.answers import INVITED, Membership
from client_sdk.conversation.hospital_side import HospitalSide
from client_sdk.conversation.polling import Polling
from client_sdk.errors import MalformedAnswer, RowsNotRemoved, SessionChanged, Suspended, WrongRun
from client_sdk.events import (
    Approved,
    Disclosed,
    Enrolled,
    LeftOutWithoutTarget,
    ReadRowByRow,
    RunCost,
    UnmaskedSamplesAsked,
)
from client_sdk.gate.disclosure import Disclosure, known_under
from client_sdk.gate.refusal_report import about_own_rows
from client_sdk.home.addresses import check_address
from client_sdk.home.disclosures import EnteredRun
from client_sdk.home.remembered import KnownSession
from client_sdk.home.roster_file import check_own_name
from client_sdk.home.store import Store
from client_sdk.network.exchange import Effects, Exchange, plain_object
from client_sdk.network.links import SessionLink
from client_sdk.readable import readable
from client_sdk.tables.hospital_table import HospitalTable, site_of
from kernels.rounds.order import whole_program
from kernels.rounds.plan import check_fits, declared, release_plan
from kernels.rounds.program import Program
from kernels.rounds.run_kinds import Kind
from kernels.rounds.task import run_digest
from privacy.accounting.promises import promised
from privacy.securesum.terms import Terms

_IN_WORDS = {
    "max_colluders": "members that may collude (max_colluders)",
    "min_cohort": "least number of members in a sum (min_cohort)",
    "differential_privacy": "differential privacy",
    "blind": "blind sums",
    "members_only": "model for members only",
}


@dataclass(frozen=True)
class Offer:
    """What a session requests from its members."""

    membership: Membership
    program: Program

    @property
    def terms(self) -> Terms:
        """The parameters that every member accepts."""
        return self.membership.terms

    def disclosure(self, program: Program) -> Disclosure:
        """Return the disclosure of what a program of this session would send."""
        return Disclosure.of(program, self.terms, delta=self.membership.delta)


def read_invitation(exchange: Exchange, link: SessionLink) -> Effects[Offer]:
    """Read what an open invitation is to; nobody is enrolled."""
    body = yield from exchange.post(f"/sessions/{link.session}/offer", {"invitation": link.secret})
    return _offer(Membership.read_invitation(plain_object(body)), link)


def read_membership(exchange: Exchange, link: SessionLink, key: bytes) -> Effects[Offer]:
    """Read the session as one of its members, by a signed request."""
    plain = yield from exchange.get_json(f"/sessions/{link.session}/membership")
    membership = Membership.read(plain)
    _check_key(membership, key)
    return _offer(membership, link)


def remember(store: Store, link: SessionLink, offer: Offer) -> None:
    """Store a session as it is first seen; refuse one that has changed since, or cannot succeed.

    Until this hospital has enrolled its member's name is not stored.
    """
    membership, seen = offer.membership, store.session(str(link.session))
    _check_unchanged(seen, membership)
    # The coordinator has checked this too: a run that stops in the middle has spent what was sent.
    whole_program.check(offer.program)
    enrolled = membership.status != INVITED
    if seen is None or (enrolled and not seen.member):
        store.remember_session(
            KnownSession(
                session=str(link.session),
                address=link.address,
                name=membership.title,
                member=membership.name if enrolled else "",
                program=membership.program,
                terms=membership.terms.encode(),
            )
        )


def _offer(membership: Membership, link: SessionLink) -> Offer:
    _check_session(membership, link)
    return Offer(membership, Program.from_json(membership.program))


def _check_session(membership: Membership, link: SessionLink) -> None:
    if membership.session != link.session or membership.terms.session != link.session.bytes:
        raise MalformedAnswer("the coordinator's response is about another session")


def _check_key(membership: Membership, key: bytes) -> None:
    if membership.key != key:
        raise MalformedAnswer("the coordinator's response contains another member's key")


class OfferReview:
    """The steps before a hospital takes part: read the offer, check it, wait for approval."""

    def __init__(self, side: HospitalSide) -> None:
        self._side = side

    def read(self) -> Effects[Offer]:
        """Enrol if this is a join link, and read the session's offer."""
        side, store = self._side, self._side.home.store
        check_address(store, side.session, side.link.address)
        seen = store.session(side.session)
        if side.link.secret is not None and (seen is None or not seen.member):
            yield from side.exchange.post(
                f"/sessions/{side.session}/members", {"invitation": side.link.secret}
            )
        own = side.home.identity.key
        offer = yield from read_membership(side.exchange, side.link, own)
        check_own_name(side.roster, own, offer.membership.name)
        remember(store, side.link, offer)
        return offer

    def checked(self, offer: Offer) -> HospitalTable:
        """Disclose what would leave, then check policy and table before anything leaves."""
        side, program = self._side, offer.program
        if offer.terms.differential_privacy != (program.privacy is not None):
            raise WrongRun(
                "the session's terms and its program disagree about differential privacy"
            )
        if program.privacy is not None and side.changes.removed is not None:
            raise RowsNotRemoved(
                "the session has differential privacy, so rows can be added but not removed: "
                "what was released about them cannot be undone. Join without `removed`, with a "
                "table that does not contain these rows, and ask for a `linear` run."
            )
        disclosed = offer.disclosure(program)
        side.watch(Disclosed(disclosed.short if side.reviewed else str(disclosed)))
        if disclosed.samples:
            allowed = side.policy.allows_unmasked_samples(program, today=side.today)
            side.watch(UnmaskedSamplesAsked(allowed))
        text = offer.membership.program
        side.policy.check_session(program, offer.terms, today=side.today, text=text)
        with about_own_rows():
            side.policy.check_dictionary(program)
            table = site_of(
                program,
                side.data,
                side.home.dealing,
                changes=side.changes,
            )
            _show_left_out(side, table)
            check_fits(program, table.counts)
            side.policy.check_table(program, table.summary)
        if side.home.store.last_run(side.session) is None:
            check_spending(side, program, offer, table)
            with about_own_rows():
                digest = run_digest(text, run_kind=Kind.TRAIN, parent=None)
                check_disclosure(side, offer, table, program, digest, run=None)
        return table

    def approved(self, membership: Membership) -> Effects[None]:
        """Wait until the session's admin has decided."""
        side, polling = self._side, Polling(self._side.exchange, self._side.session)
        if membership.status == "pending":
            side.watch(Enrolled(membership.name, side.home.identity.fingerprint))
        while membership.status == "pending":
            side.exchange.check_deadline()
            plain = yield from polling.decision()
            membership = Membership.read(plain)
            _check_session(membership, side.link)
            _check_key(membership, side.home.identity.key)
            check_own_name(side.roster, side.home.identity.key, membership.name)
            _check_unchanged(side.home.store.session(side.session), membership)
        if membership.status == "suspended":
            raise Suspended(
                "the session's admin has suspended this hospital: ask the admin for the reason"
            )
        side.watch(Approved(membership.name))


def _show_left_out(side: HospitalSide, table: HospitalTable) -> None:
    """Show what was left out of the table, before its rows are found too few."""
    found = table.row_by_row
    if found is not None and (found.clipped or found.left_out):
        side.watch(ReadRowByRow(found.clipped, found.left_out))
    if table.without_target:
        side.watch(LeftOutWithoutTarget(table.without_target))


def _check_unchanged(seen: KnownSession | None, membership: Membership) -> None:
    """Refuse another program, other terms or another name than this hospital knows."""
    if seen is None:
        return
    if membership.status != INVITED and seen.member not in ("", membership.name):
        raise SessionChanged(
            f"this hospital is enrolled in the session as {readable(seen.member)}, and the "
            f"coordinator now calls it {readable(membership.name)}: ask the session's admin"
        )
    if seen.program != membership.program:
        raise SessionChanged(
            "the session's program has changed since this hospital first saw it. A session's "
            "program must not change: ask the session's admin for a new session."
        )
    if seen.terms != membership.terms.encode():
        raise SessionChanged(
            "the session's terms have changed since this hospital first saw it "
            f"({_differing(Terms.decode(seen.terms), membership.terms)}). A session's terms must "
            "not change: ask the session's admin for a new session, and review it again."
        )


def _differing(seen: Terms, shown: Terms) -> str:
    """Return in words the terms that differ."""
    return "; ".join(
        f"{words}: {_yes_or_no(getattr(seen, name))} before, {_yes_or_no(getattr(shown, name))} now"
        for name, words in _IN_WORDS.items()
        if getattr(seen, name) != getattr(shown, name)
    )


def _yes_or_no(value: object) -> str:
    return {"True": "yes", "False": "no"}.get(str(value), str(value))


def check_disclosure(
    side: HospitalSide,
    offer: Offer,
    table: HospitalTable,
    program: Program,
    digest: str,
    run: UUID | None,
) -> EnteredRun:
    """Refuse a run that would make more known than this hospital allows for its data source.

    Return the run's entry in the ledger, to be stored when it is entered.
    """
    made_known = known_under(offer.terms, program)
    entering = EnteredRun(
        run=str(run),
        session=side.session,
        source=side.source,
        at=side.exchange.clock.now().isoformat(timespec="seconds"),
        program=digest,
        dealt=table.journalled.hex(),
        rows=table.rows.hex(),
        exact=program.privacy is None,
        coordinator=made_known.coordinator,
        hospitals=made_known.hospitals,
        sums=sum(stage.sums for stage in declared(program)),
    )
    ledger = side.home.store.disclosures(side.source, rows=table.rows)
    side.policy.check_ledger(ledger, entering, made_known)
    return entering


def check_spending(
    side: HospitalSide, program: Program, offer: Offer, table: HospitalTable
) -> None:
    """Refuse a run whose total cost exceeds what this hospital's own ledger has left."""
    if program.privacy is None:
        return
    ledger = side.home.store.ledger(side.source, side.policy.budget, rows=table.rows)
    plan = release_plan(program, table.dealing)
    releases = promised(plan, honest=offer.terms.honest)
    side.watch(RunCost(ledger.spent, ledger.after(releases), ledger.budget))
    side.policy.check_spending(ledger, releases)

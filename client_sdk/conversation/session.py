"""The hospital's half of a session, as one conversation without a network (`exchange.Effects`).

    enrol → what would leave, table and policy checked → approved → join the terms
    → next? → answer → next? → … → ended → the model

The coordinator says what is next and is believed nothing: `privacy.securesum.client.Client` checks
every message against this hospital's own journal, the door every task against the run's program
and the site's policy. Every answer is on the disk before it is sent. A hospital that was killed
begins here again, and the journal answers as before.

What this hospital refuses it tells the coordinator by a code and a sentence without data, and then
raises.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from uuid import UUID

from client_sdk.conversation.answers import Item, Membership, Outcome
from client_sdk.conversation.asking import Asking
from client_sdk.conversation.exchange import (
    MAX_ARTIFACT,
    MAX_BROADCAST,
    SAID,
    Effects,
    Exchange,
    Sent,
    TooLate,
)
from client_sdk.conversation.links import Link
from client_sdk.conversation.rosters import confirmed_by
from client_sdk.errors import (
    SITE_REFUSED,
    AnotherRun,
    ClientError,
    MalformedAnswer,
    NoModel,
    PolicyError,
    RowsNotRemoved,
    RunFailed,
    SessionChanged,
    Suspended,
    WrongRun,
    WrongTask,
    about_the_table,
    public_code,
    public_detail,
)
from client_sdk.gate.agreed_run import check_run
from client_sdk.gate.disclosure import Disclosure, releases_of
from client_sdk.gate.door import Door, RunInHand, runs_of
from client_sdk.gate.policy import Policy
from client_sdk.home.home import OpenHome
from client_sdk.home.remembered import KnownRun, KnownSession
from client_sdk.tables.hospital_table import Changes, HospitalTable, site_of
from client_sdk.terminal.progress import (
    Approved,
    Disclosed,
    Enrolled,
    ReadRowByRow,
    RefusalReported,
    RunEnded,
    RunOpened,
    SamplesAsked,
    Spending,
    Unpinned,
    Waiting,
    Watch,
)
from kernels.errors import KernelsError
from kernels.rounds.program import Program
from privacy.errors import PrivacyError
from privacy.securesum.errors import AlreadySigned
from privacy.securesum.messages import (
    AbandonProof,
    AbandonRequest,
    Adverts,
    Certificate,
    Delivery,
    Opening,
    Proposal,
    RepairRequest,
    Task,
)
from privacy.securesum.records import Step
from privacy.securesum.terms import Terms
from privacy.securesum.wire import Message

_REFUSALS = (PolicyError, SessionChanged, WrongRun, AnotherRun, WrongTask)


@dataclass(frozen=True)
class Finished:
    """A run that made a model: its id, octets and card."""

    run: str
    model: str
    artifact: bytes
    card: Mapping[str, Any]


@dataclass(frozen=True)
class Offer:
    """What a session asks of its members."""

    membership: Membership
    program: Program

    @property
    def terms(self) -> Terms:
        """The parameters that every member accepts."""
        return self.membership.terms

    def disclosure(self, program: Program) -> Disclosure:
        """Say what a program of this session would take out of the building."""
        return Disclosure.of(program, self.terms, delta=self.membership.delta)


class Member:
    """A hospital in one session."""

    def __init__(
        self,
        home: OpenHome,
        exchange: Exchange,
        link: Link,
        *,
        policy: Policy,
        data: object = None,
        changes: Changes | None = None,
        source: str = "table",
        roster: Mapping[str, bytes] | None = None,
        watch: Watch,
    ) -> None:
        self._home = home
        self._client = home.client
        self._exchange = exchange
        self._link = link
        self._id = str(link.session)
        self._policy = policy
        self._data = data
        self._changes = changes
        self._source = source
        self._roster = roster or {}
        self._watch = watch
        self._at_run: str | None = None
        self._asking = Asking(exchange, self._id)

    # -- the conversation

    def take_part(self, *, once: bool, finished: Callable[[Finished], None]) -> Effects[Finished]:
        """Take part in the session's runs: in one, whose model is the result, or in all to come."""
        try:
            offer = yield from self.offer()
            table = self._checked(offer.program, offer)
            yield from self._approved(offer.membership)
            self._home.keep(self._client.join(offer.terms))
            while True:
                over = yield from self._one_run(offer, table, once=once)
                if over.model is not None:
                    done = yield from self._fetched(over, over.model)
                    yield from self._door(over, offer, table).open()
                    finished(done)
                    self._home.store.commit(Step(None), run=replace(over, fetched=True))
                    if once:
                        return done
                elif once:
                    raise _why_no_model(over)
        except (*_REFUSALS, KernelsError, PrivacyError) as error:
            if SAID not in getattr(error, "__notes__", ()) and not self._must_keep_quiet(error):
                yield from self._report(error)
            raise

    def offer(self) -> Effects[Offer]:
        """Enrol if this is a join link, and read what the session asks for."""
        if self._link.secret is not None and self._home.store.session(self._id) is None:
            yield from self._exchange.post(
                f"/sessions/{self._id}/members", {"invitation": self._link.secret}
            )
        membership = yield from self._membership()
        program = Program.from_json(membership.program)
        known = self._home.store.session(self._id)
        if known is None:
            self._home.store.remember_session(
                KnownSession(
                    session=self._id,
                    address=self._link.address,
                    name=membership.title,
                    member=membership.name,
                    program=membership.program,
                    seed=membership.seed,
                )
            )
        elif (known.program, known.seed) != (membership.program, membership.seed):
            raise SessionChanged(
                "the session has another program or seed than when this hospital first saw it. A "
                "session's program does not change: ask for a new session."
            )
        return Offer(membership, program)

    def _membership(self) -> Effects[Membership]:
        plain = yield from self._exchange.get_json(f"/sessions/{self._id}/membership")
        return self._own(Membership.read(plain))

    def _own(self, membership: Membership) -> Membership:
        if membership.session != self._link.session or membership.terms.session != (
            self._link.session.bytes
        ):
            raise MalformedAnswer("the coordinator answered for another session")
        if membership.key != self._home.identity.key:
            raise MalformedAnswer("the coordinator answered with another member's key")
        return membership

    def _checked(self, program: Program, offer: Offer) -> HospitalTable:
        """Say what would leave; check table and policy before anything does."""
        if offer.terms.differential_privacy != (program.privacy is not None):
            raise WrongRun("the session's terms and its program disagree about noise")
        if program.privacy is not None and self._changes and self._changes.removed is not None:
            raise RowsNotRemoved(
                "the session has differential privacy, with which rows are added and not removed: "
                "what was released with them stays released. Join without `removed`, with a table "
                "that does not have them, and ask for a `linear` run."
            )
        disclosed = offer.disclosure(program)
        self._watch(Disclosed(str(disclosed)))
        if disclosed.samples:
            self._watch(SamplesAsked(self._policy.opens(program, today=self._today())))
        self._policy.check_session(program, offer.terms, today=self._today())
        with about_the_table():
            table = site_of(
                program,
                self._data,
                offer.membership.seed,
                consents=self._policy.consents,
                changes=self._changes,
            )
            self._policy.check_table(program, table.summary)
        found = table.row_by_row
        if found is not None and (found.clipped or found.left_out):
            self._watch(ReadRowByRow(found.clipped, found.left_out))
        if self._home.store.last_run(self._id) is None:
            self._check_spending(program, offer, table)
        return table

    def _check_spending(self, program: Program, offer: Offer, table: HospitalTable) -> None:
        """Refuse a run that this hospital's own ledger has not enough left for, as a whole."""
        if program.privacy is None:
            return
        ledger = self._home.store.ledger(self._source, self._policy.budget, rows=table.rows)
        seed = offer.membership.seed
        releases = releases_of(program, offer.terms, seed=seed, table=table.digest)
        self._watch(Spending(ledger.spent, ledger.after(releases), ledger.budget))
        self._policy.check_spending(ledger, releases)

    def _approved(self, membership: Membership) -> Effects[None]:
        if membership.status == "pending":
            self._watch(Enrolled(membership.name, self._home.identity.fingerprint))
        while membership.status == "pending":
            self._exchange.check_deadline()
            plain = yield from self._asking.decision()
            membership = self._own(Membership.read(plain))
        if membership.status == "suspended":
            raise Suspended("the session's admin has suspended this hospital: ask why")
        self._watch(Approved(membership.name))

    # -- runs

    def _one_run(self, offer: Offer, table: HospitalTable, *, once: bool) -> Effects[KnownRun]:
        """Take part until a run is over, whose model has not been fetched yet."""
        store, waiting = self._home.store, False
        while True:
            last = store.last_run(self._id)
            if last is not None and last.model is not None and not last.fetched:
                return last
            going = last is not None and last.status == "running"
            self._at_run = last.run if last is not None and going else None
            item = yield from self._asking.next(self._at_run)
            if item is None:
                if not (waiting or going):
                    self._watch(Waiting("the next run"))
                    waiting = True
                continue
            waiting, self._at_run = False, str(item.run)
            if item.kind == "ended":
                return self._ended(item)
            if item.kind == "opening":
                if once and last is not None and going and last.run != str(item.run):
                    raise AnotherRun(
                        f"run {item.run} is opened, and run {last.run}, which this hospital is in, "
                        "has not ended. It came for one run: ask the session's admin to end that "
                        "one, or stay for all runs to come (once=False; no --once)"
                    )
                yield from self._opening(item, offer, table)
            else:
                yield from self._answer(item, offer, table)

    def _opening(self, item: Item, offer: Offer, table: HospitalTable) -> Effects[None]:
        """Enter an epoch of a run, after checking what the run computes."""
        opening = Opening.decode(item.message)
        if (opening.run, opening.number) != (item.run.bytes, item.number):
            raise WrongRun("the coordinator opens another run than it says")
        run = RunInHand(
            session=self._link.session,
            run=item.run,
            kind=item.text("run_kind"),
            text=item.text("program"),
            program=Program.from_json(item.text("program")),
            seed=item.whole("seed"),
        )
        check_run(run, offer.program, offer.membership.program, seed=offer.membership.seed)
        known = self._home.store.run(str(item.run))
        if known is None:
            self._watch(RunOpened(str(item.run), run.kind))
            if run.text != offer.membership.program:
                self._watch(Disclosed(str(offer.disclosure(run.program))))
            self._policy.check_session(run.program, offer.terms, today=self._today())
            self._check_spending(run.program, offer, table)
            summed = runs_of(self._client.journal, self._source, self._link.session)
            self._policy.check_runs(len(summed | {item.run.bytes}))
            if self._changes:
                self._policy.check_changes(run.program)
            with about_the_table():
                self._policy.check_table(run.program, table.summary)
        elif (known.session, known.kind, known.program) != (self._id, run.kind, run.text):
            raise WrongRun("the run has another program than when this hospital entered it")
        self._end_epochs(lambda other: other != item.run.bytes)
        step = self._client.advertise(opening, self._source)
        begun = known or KnownRun(str(item.run), self._id, run.kind, run.text)
        self._home.store.commit(step, run=begun)
        yield from self._send(item, step.message)

    def _answer(self, item: Item, offer: Offer, table: HospitalTable) -> Effects[None]:
        """Answer anything that comes after the opening of a run."""
        known = self._home.store.run(str(item.run))
        if known is None or known.session != self._id:
            raise WrongRun("the coordinator speaks of a run that this hospital has not entered")
        match item.kind:
            case "adverts":
                yield from self._keep_and_send(item, self._agree(item, offer))
            case "task":
                yield from self._task(item, known, offer, table)
            case "proposal":
                proposal = self._of_run(item, Proposal.decode(item.message))
                self._check_survivors(proposal)
                yield from self._keep_and_send(item, self._client.certify(proposal))
            case "certificate":
                certificate = self._of_run(item, Certificate.decode(item.message))
                self._check_survivors(certificate)
                yield from self._keep_and_send(item, self._client.reveal(certificate))
            case "repair":
                request = self._of_run(item, RepairRequest.decode(item.message))
                yield from self._keep_and_send(item, self._client.repair(request))
            case "abandon":
                giving_up = self._of_run(item, AbandonRequest.decode(item.message))
                try:
                    step = self._client.abandon(giving_up)
                except AlreadySigned:  # an honest refusal: it has certified the slot
                    return
                yield from self._keep_and_send(item, step)
            case _:
                proof = self._of_run(item, AbandonProof.decode(item.message))
                self._home.keep(self._client.close(proof))

    def _agree(self, item: Item, offer: Offer) -> Step[Any]:
        """Settle who takes part: everyone's advert, checked against the pins of this site."""
        adverts, roster = Adverts.decode(item.message), item.roster
        expected = (self._link.session.bytes, item.run.bytes, item.number)
        for advert in adverts.adverts:
            if (advert.session, advert.run, advert.number) != expected:
                raise WrongTask("an advert is of another session, run or epoch")
        own, name = self._home.identity.key, offer.membership.name
        if own not in roster.keys:
            raise WrongTask(f"the run's roster does not have {name}, this hospital")
        store = self._home.store
        pins = store.pins(self._id, trust_first_use=self._policy.trust_first_use)
        pins = confirmed_by(pins, self._roster).meet(roster)
        store.keep_pins(self._id, pins)
        trusted = pins.trusted(roster) | {own}
        strangers = tuple(m.name for m in roster.members if m.key not in trusted)
        if strangers:
            self._watch(Unpinned(strangers))
        self._policy.check_members(offer.terms, len(adverts.adverts))
        self._policy.check_cohort(sum(advert.identity in trusted for advert in adverts.adverts))
        return self._client.agree(adverts, roster, pins)

    def _check_survivors(self, claim: Proposal | Certificate) -> None:
        """Ask of those whose vectors would be summed what the policy asked of those who began."""
        entry, _ = self._client.journal.entry(claim.epoch_id)
        self._policy.check_cohort(len(entry.trusted.intersection(claim.survivors)))

    def _task(
        self, item: Item, known: KnownRun, offer: Offer, table: HospitalTable
    ) -> Effects[None]:
        """Open the others' boxes, if they are there, and go through the door."""
        task = self._of_run(item, Task.decode(item.message))
        if item.delivery is not None:
            delivery = self._of_run(item, Delivery.decode(item.delivery))
            self._home.keep(self._client.receive(delivery))
        door = self._door(known, offer, table)
        try:
            sent = yield from door.leave(task, item.whole("stage"), lambda: self._broadcast(item))
        except TooLate as late:
            sent = Sent(conflict=late.error)
        yield from self._asking.sent(sent)

    def _door(self, known: KnownRun, offer: Offer, table: HospitalTable) -> Door:
        run = RunInHand(
            session=self._link.session,
            run=UUID(known.run),
            kind=known.kind,
            text=known.program,
            program=_program(known.program),
            seed=offer.membership.seed,
        )
        return Door(self._home, self._exchange, self._policy, table, run, self._watch)

    def _broadcast(self, item: Item) -> Effects[bytes]:
        data = item.broadcast_octets
        if data is None:
            data = yield from self._exchange.get_current(
                f"/sessions/{self._id}/runs/{item.run}/broadcasts/{item.broadcast}",
                limit=MAX_BROADCAST,
                timeout_s=600.0,
            )
        if hashlib.sha256(data).hexdigest() != item.broadcast:
            raise MalformedAnswer("a broadcast is not the one that was asked for")
        return data

    def _ended(self, item: Item) -> KnownRun:
        """Erase the secrets of a run that is over, and keep how it ended."""
        outcome = Outcome.read(item)
        known = self._home.store.run(str(item.run))
        if known is None or known.session != self._id:
            raise WrongRun("the coordinator ends a run that this hospital has not entered")
        self._end_epochs(lambda other: other == item.run.bytes)
        over = replace(
            known,
            status=outcome.status,
            code=outcome.code,
            detail=outcome.detail,
            model=outcome.model,
        )
        self._home.store.commit(Step(None), run=over)
        if over.model is None:
            self._home.store.samples_not_needed(over.run)
        self._home.store.erase_traces()
        self._watch(RunEnded(over.run, over.status, over.code, over.detail))
        return over

    def _fetched(self, run: KnownRun, model: str) -> Effects[Finished]:
        card = yield from self._exchange.get_json(f"/models/{model}")
        artifact = yield from self._exchange.get(
            f"/models/{model}/artifact", limit=MAX_ARTIFACT, timeout_s=600.0
        )
        return Finished(run.run, model, artifact, card)

    # -- small parts

    def _end_epochs(self, which: Callable[[bytes], bool]) -> None:
        """End the open epochs of runs of this session; what they shared is erased."""
        for entry in self._client.journal.of_session(self._link.session.bytes):
            if not entry.ended and which(entry.name[1]):
                self._home.keep(self._client.end(entry.name))

    def _of_run(self, item: Item, message: Any) -> Any:
        """Give a message that is about the epoch that the item names, of this session."""
        entry, _ = self._client.journal.entry(message.epoch_id)
        if entry.name != (self._link.session.bytes, item.run.bytes, item.number):
            raise WrongTask("the coordinator sent a message of another session, run or epoch")
        return message

    def _keep_and_send(self, item: Item, step: Step[Any]) -> Effects[None]:
        self._home.keep(step)
        if step.message is not None:
            yield from self._send(item, step.message)

    def _send(self, item: Item, message: Message) -> Effects[None]:
        sent = yield from self._exchange.send(
            f"/sessions/{self._id}/runs/{item.run}/messages", message.encode()
        )
        yield from self._asking.sent(sent)

    def _report(self, error: Exception) -> Effects[None]:
        """Tell the coordinator that this hospital refuses, by its code and without data."""
        code = public_code(error)
        body = {"run": self._at_run, "code": code, "detail": public_detail(error)}
        try:
            yield from self._exchange.post(f"/sessions/{self._id}/refusals", body, once=True)
        except (ClientError, KernelsError, PrivacyError):
            self._watch(RefusalReported(code, heard=False))
            return
        self._watch(RefusalReported(code, heard=True))
        known = None if self._at_run is None else self._home.store.run(self._at_run)
        if known is not None and known.session == self._id:
            # The run is over for this hospital, and without noise for all: what was shared for it
            # is erased, and the next call waits for the next run.
            self._end_epochs(lambda other: other == UUID(known.run).bytes)
            over = replace(known, status="refused", code=code)
            self._home.store.commit(Step(None), run=over)
            self._home.store.samples_not_needed(over.run)
            self._home.store.erase_traces()

    def _must_keep_quiet(self, error: Exception) -> bool:
        """Whether a refusal would tell something of the rows that no noise covers."""
        known = self._home.store.session(self._id)
        private = known is not None and _program(known.program).privacy is not None
        return private and public_code(error) == SITE_REFUSED

    def _today(self) -> Any:
        return self._exchange.clock.now().date()


@lru_cache(maxsize=2)
def _program(text: str) -> Program:
    """Read a run's program: the same one at every task."""
    return Program.from_json(text)


def _why_no_model(run: KnownRun) -> ClientError:
    if run.status == "done":
        return NoModel("the run is done and made no model: ask the session's admin what it was for")
    return RunFailed(run.status, run.code or "unknown", run.detail or "no reason was given")

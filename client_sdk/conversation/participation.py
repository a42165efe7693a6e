"""Participation in the runs of a session whose offer was accepted.

    next? → answer → next? → … → ended

The coordinator chooses what is next but is not trusted: `privacy.securesum.client.Client` checks
every message against this hospital's own journal, and the door checks every task against the run's
program and the site's policy. Every answer is on disk before it is sent.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any
from uuid import UUID

from client_sdk.conversation.answers import Item, RunOutcome
from client_sdk.conversation.entry import times_of, try_before_entry
from client_sdk.conversation.finishing import (
    FetchedModel,
    Finishing,
    check_certified,
    fetched_model,
)
from client_sdk.conversation.hospital_side import HospitalSide
from client_sdk.conversation.offer import Offer, check_disclosure, check_spending
from client_sdk.conversation.polling import Polling
from client_sdk.conversation.replay import (
    Downloads,
    Needed,
    Replay,
    check_model,
    encoding_at,
    is_named,
)
from client_sdk.conversation.rosters import confirmed_by
from client_sdk.errors import (
    AnotherRun,
    ClientError,
    DeadlinePassed,
    ModelDiffers,
    Unreachable,
    WrongRun,
    WrongTask,
)
from client_sdk.events import (
    Disclosed,
    ModelNotVerified,
    OwnModel,
    ParentNotCertified,
    RunOpened,
    RunOver,
    Unpinned,
    Waiting,
)
from client_sdk.gate.agreed_run import check_run, check_start
from client_sdk.gate.door import Door
from client_sdk.gate.refusal_report import about_own_rows
from client_sdk.gate.run_in_hand import RunInHand
from client_sdk.gate.unmasked_samples import send_unmasked_samples
from client_sdk.home.disclosures import EnteredRun
from client_sdk.home.remembered import Holding, KnownRun
from client_sdk.network.exchange import MAX_STATE, Effects, Pause, SendResult, TooLate
from client_sdk.software import software
from client_sdk.tables.hospital_table import HospitalTable
from kernels.errors import KernelsError
from kernels.model.model import Model
from kernels.rounds.plan import check_fits
from kernels.rounds.program import Program
from kernels.rounds.task import statistic_of
from privacy.errors import PrivacyError
from privacy.members.endorsement import ModelCertificate
from privacy.securesum.certificates import decode_proof
from privacy.securesum.errors import AlreadySigned, TableChanged
from privacy.securesum.item_kinds import ItemKind
from privacy.securesum.messages import (
    AbandonProof,
    AbandonRequest,
    Adverts,
    AuthorRequest,
    Certificate,
    Delivery,
    Opening,
    Proposal,
    RepairRequest,
    SumName,
    Task,
)
from privacy.securesum.records import Step
from privacy.securesum.sealing import public_key
from privacy.securesum.steady import check_table
from privacy.securesum.wire import Message


class Participation:
    """A hospital that has accepted a session's offer, with its table."""

    def __init__(self, side: HospitalSide, offer: Offer, table: HospitalTable) -> None:
        self._side = side
        self._offer = offer
        self._table = table
        self._home = side.home
        self._client = side.home.client
        self._times: dict[str, tuple[float, ...]] = {}
        self._polling = Polling(side.exchange, side.session)
        self._replay: Replay | None = None
        self._parents: dict[str, Model] = {}
        """The model that the current run starts from, as it was checked."""
        self._same_rows: str | None = None
        """The run whose rows are known to be those that it was entered with."""
        self.at_run: str | None = None
        """The run that this hospital is in, or the run of the last item."""

    def one_run(self, *, once: bool) -> Effects[KnownRun]:
        """Take part until a run is over and return it; its model has not been fetched yet.

        once: this hospital takes part in one run only and refuses to enter another.
        """
        waiting = False
        while True:
            last = self._home.store.last_run(self._side.session)
            if last is not None and last.model is not None and not last.fetched:
                return last
            going = last is not None and last.status == "running"
            self.at_run = last.run if last is not None and going else None
            item = yield from self._polling.next(self.at_run)
            if item is None:
                if not (waiting or going):
                    self._side.watch(Waiting("the next run"))
                    waiting = True
                continue
            waiting, self.at_run = False, str(item.run)
            if item.kind is ItemKind.ENDED:
                return (yield from self._ended(item))
            if item.kind is ItemKind.OPENING:
                if once and last is not None and going and last.run != str(item.run):
                    raise AnotherRun(
                        f"the coordinator opened run {item.run} before run {last.run} ended, in "
                        "which this hospital takes part. It joined for one run only: ask the "
                        f"session's admin to end run {last.run}, or join for all runs (once=False, "
                        "or without --once)"
                    )
                yield from self._opening(item)
            else:
                yield from self._answer(item)

    def send_unmasked_samples(self, run: KnownRun) -> Effects[None]:
        """Send the samples that a run with a model requested, if the policy still allows it."""
        side = self._side
        yield from send_unmasked_samples(
            self._home, side.exchange, side.policy, self._in_hand(run), side.watch
        )

    def give_up(self, code: str) -> None:
        """End the run that this hospital has refused to continue, and erase its secrets.

        The run is over for this hospital and, without differential privacy, for all members; the
        next call waits for the next run. A run that was over before stays as it ended.
        """
        known = None if self.at_run is None else self._home.store.run(self.at_run)
        if known is None or known.session != self._side.session or known.status != "running":
            return
        self._replay = None
        self._end_epochs(lambda other: other == UUID(known.run).bytes)
        self._home.keep(self._client.forget_group(UUID(known.run).bytes))
        self._home.store.commit(Step(None), run=replace(known, status="refused", code=code))
        self._home.store.forget_positions(known.run)
        self._home.store.samples_not_needed(known.run)
        self._home.store.erase_traces()

    # -- an item of the conversation

    def _opening(self, item: Item) -> Effects[None]:
        """Enter an epoch of a run, after checking what the run computes."""
        self._flush()
        opening = Opening.decode(item.message)
        if (opening.run, opening.number) != (item.run.bytes, item.number):
            raise WrongRun("the opening message is for another run than the coordinator announced")
        side, offer = self._side, self._offer
        run = RunInHand(
            session=side.link.session,
            run=item.run,
            kind=item.text("run_kind"),
            text=item.text("program"),
            program=Program.from_json(item.text("program")),
            parent=item.parent,
        )
        check_run(run, offer.program, offer.membership.program)
        known = self._home.store.run(str(item.run))
        entered = None
        if known is None:
            entered = yield from self._check_new_run(run)
            yield from try_before_entry(side, run.program, self._table)
        elif (known.session, known.kind, known.program, known.parent) != (
            side.session,
            run.kind,
            run.text,
            run.parent,
        ):
            raise WrongRun("the run's program has changed since this hospital entered it")
        else:
            self._check_open(known)
            self._check_same_rows(known)
        self._end_epochs(lambda other: other != item.run.bytes)
        step = self._client.advertise(
            opening, side.source, software(), public_key(side.home.archive_secret)
        )
        begun = known or KnownRun(
            str(item.run), side.session, run.kind, run.text, parent=run.parent
        )
        self._home.store.commit(step, run=begun, entered=entered)
        yield from self._send(item, step.message)

    def _check_new_run(self, run: RunInHand) -> Effects[EnteredRun]:
        """Check everything about a run that policy and table decide; return its ledger entry."""
        side, offer = self._side, self._offer
        side.watch(RunOpened(str(run.run), run.kind))
        if run.text != offer.membership.program:
            side.watch(Disclosed(str(offer.disclosure(run.program))))
        side.policy.check_session(run.program, offer.terms, today=side.today)
        check_spending(side, run.program, offer, self._table)
        if run.parent is not None and not self._is_known(run.parent):
            try:
                self._parents[run.parent] = yield from self._certified(run.parent)
            except (ClientError, KernelsError, PrivacyError) as error:
                if isinstance(error, Unreachable | DeadlinePassed):
                    raise
                side.watch(ParentNotCertified(run.parent, str(error)))
                side.policy.check_parent(run.parent, obtained=False)
        with about_own_rows():
            if side.changes:
                side.policy.check_changes(run.program)
            if run.program.privacy is None:
                check_table(self._client.journal, side.source, self._table.digest)
            check_fits(run.program, self._table.counts)
            side.policy.check_table(run.program, self._table.summary, session=offer.program)
            return check_disclosure(side, offer, self._table, run.program, run.digest, run.run)

    def _answer(self, item: Item) -> Effects[None]:
        """Answer any item that comes after the opening of a run."""
        known = self._home.store.run(str(item.run))
        if known is None or known.session != self._side.session:
            raise WrongRun("the coordinator refers to a run that this hospital has not entered")
        self._check_open(known)
        if item.kind is not ItemKind.TASK:
            self._flush()
        match item.kind:
            case ItemKind.ADVERTS:
                yield from self._keep_and_send(item, self._agree(item))
            case ItemKind.TASK:
                yield from self._task(item, known)
            case ItemKind.AUTHOR:
                yield from self._author(item, known)
            case ItemKind.SEAL:
                yield from self._seal(item, known)
            case ItemKind.ENDORSE:
                yield from self._endorse(item, known)
            case ItemKind.HANDOVER:
                yield from self._hand_over(item, known)
            case ItemKind.PROPOSAL:
                proposal = self._of_run(item, Proposal.decode(item.message))
                self._check_survivors(proposal)
                yield from self._keep_and_send(item, self._client.certify(proposal))
            case ItemKind.CERTIFICATE:
                certificate = self._of_run(item, Certificate.decode(item.message))
                self._check_survivors(certificate)
                yield from self._keep_and_send(item, self._client.reveal(certificate))
            case ItemKind.REPAIR:
                request = self._of_run(item, RepairRequest.decode(item.message))
                yield from self._keep_and_send(item, self._client.repair(request))
            case ItemKind.ABANDON:
                giving_up = self._of_run(item, AbandonRequest.decode(item.message))
                try:
                    step = self._client.abandon(giving_up)
                except AlreadySigned:  # an honest refusal: it has certified the slot
                    return
                yield from self._keep_and_send(item, step)
            case _:
                proof = self._of_run(item, AbandonProof.decode(item.message))
                self._home.keep(self._client.close(proof))

    def _agree(self, item: Item) -> Step[Any]:
        """Agree on who takes part: check every member's advert against this site's pins."""
        adverts, roster = Adverts.decode(item.message), item.roster
        side, store = self._side, self._home.store
        expected = (side.link.session.bytes, item.run.bytes, item.number)
        for advert in adverts.adverts:
            if (advert.session, advert.run, advert.number) != expected:
                raise WrongTask("an advert belongs to another session, run or epoch")
        own, name = self._home.identity.key, self._offer.membership.name
        if own not in roster.keys:
            raise WrongTask(f"the run's roster does not contain this hospital, {name}")
        pins = store.pins(side.session, trust_first_use=side.policy.trust_first_use)
        pins = confirmed_by(pins, side.roster).meet(roster)
        store.keep_pins(side.session, pins)
        trusted = pins.trusted(roster) | {own}
        strangers = tuple(m.name for m in roster.members if m.key not in trusted)
        if strangers:
            side.watch(Unpinned(strangers))
        side.policy.check_members(self._offer.terms, len(adverts.adverts))
        side.policy.check_cohort(len(adverts.adverts))
        return self._client.agree(adverts, roster, pins)

    def _check_survivors(self, claim: Proposal | Certificate) -> None:
        """Check the policy's cohort limit for the members whose vectors would be summed."""
        self._side.policy.check_cohort(len(claim.survivors))

    def _task(self, item: Item, known: KnownRun) -> Effects[None]:
        """Receive the other members' shares, if there are any, and answer through the door."""
        task = self._of_run(item, Task.decode(item.message))
        self._receive(item)
        self._close(task.proof)
        self._check_same_rows(known)
        side, run = self._side, self._in_hand(known)
        times = self._answer_times(known)
        door = Door(self._home, side.exchange, side.policy, self._table, run, side.watch, times)
        try:
            holding = None
            if not door.has_answered(task):
                found = yield from self._replayed(run).answering(task, item)
                if isinstance(found, Needed):
                    yield from self._need(item, task, found)
                    return
                holding = found
            sent = yield from door.send_masked_vector(task, holding)
            self._replayed(run).written()
        except TooLate as late:
            sent = SendResult(conflict=late.error)
        yield from self._polling.sent(sent)

    def _need(self, item: Item, task: Task, needed: Needed) -> Effects[None]:
        """Say that this hospital does not hold the state of a task, or wait for others' answers."""
        if needed.objection:
            self._side.watch(Waiting("the author of the task: this hospital has another state"))
            objection = self._client.object_to(task).message.encode()
            sent = yield from self._side.exchange.send(f"{self._at(item)}/messages", objection)
            # The task as it was, without its author's state, must not be objected to again: a
            # second objection says that this hospital has seen that state and does not hold it.
            yield from self._polling.sent(replace(sent, following=None))
            self._polling.await_state()
        if needed.witnesses:
            self._side.watch(Waiting("others to answer: this hospital missed a sum of this run"))
            self._polling.await_witnesses()

    def _author(self, item: Item, known: KnownRun) -> Effects[None]:
        """Write the next task of blind sums from this hospital's own replay, or endorse its end."""
        request = self._of_run(item, AuthorRequest.decode(item.message))
        self._receive(item)
        self._close(request.proof)
        run = self._in_hand(known)
        try:
            holding = yield from self._replayed(run).newest(request, item)
        except TooLate as late:
            yield from self._polling.sent(SendResult(conflict=late.error))
            return
        if holding is None:  # others write it
            self._side.watch(Waiting("others to go on: this hospital missed a sum of this run"))
            return
        if holding.newest.finished:
            yield from self._endorse(item, known)
            return
        position, (_, epoch) = holding.newest, self._client.journal.entry(request.epoch_id)
        encoding = encoding_at(position, epoch)
        made_by = holding.made_by
        step = self._client.draft(
            request,
            statistic=statistic_of(position.algorithm),
            parameters=run.parameters(position.stage, position.sum_index),
            length=encoding.layout.length,
            state=position.digest,
            encoding=encoding,
            applied=None if made_by is None else SumName(*made_by),
        )
        self._home.store.commit(step, holding=holding)
        self._replayed(run).written()
        yield from self._send(item, step.message)

    def _seal(self, item: Item, known: KnownRun) -> Effects[None]:
        """Send the state of a task that this hospital has written, sealed for the others."""
        task = self._of_run(item, Task.decode(item.message))
        _, epoch = self._client.journal.entry(task.epoch_id)
        if task.authors != (epoch.rank(self._home.identity.key),):
            raise WrongTask("the coordinator requests the state of a task by another member")
        run = self._in_hand(known)
        try:
            found = yield from self._replayed(run).answering(task, item)
        except TooLate as late:
            yield from self._polling.sent(SendResult(conflict=late.error))
            return
        if isinstance(found, Needed):  # it has lost the state that it wrote the task from
            return
        header, box = self._client.seal_state(task.epoch_id, task.slot, found.newest.encoded)
        head = header.encode()
        sent = yield from self._side.exchange.send(
            f"{self._at(item)}/states", len(head).to_bytes(4, "big"), head, box
        )
        yield from self._polling.sent(sent)

    def _endorse(self, item: Item, known: KnownRun) -> Effects[None]:
        """Sign the finished model that this hospital has computed itself."""
        request = self._of_run(item, AuthorRequest.decode(item.message))
        self._receive(item)
        self._close(request.proof)
        run = self._in_hand(known)
        try:
            if self._offer.terms.blind:
                holding = yield from self._replayed(run).newest(request, item)
            else:
                holding = yield from self._finished(item, run, request)
            if holding is None:  # it missed the last sum
                self._side.watch(Waiting("the end of the run, which this hospital cannot replay"))
                yield Pause(1.0)
                return
            if not holding.newest.finished:  # whoever endorsed first has lied
                yield from self._author(item, known)
                return
            step = yield from self._finishing(run).endorsed(item, holding)
        except TooLate as late:
            yield from self._polling.sent(SendResult(conflict=late.error))
            return
        self._home.store.commit(step, holding=holding)
        self._replayed(run).written()
        yield from self._send(item, step.message)

    def _hand_over(self, item: Item, known: KnownRun) -> Effects[None]:
        """Hand over the model that members have endorsed: as it is, or sealed to each member."""
        run = self._in_hand(known)
        holding = self._home.store.holding(known.run, run.program)
        if holding is None or not holding.newest.finished:
            return
        made = self._finishing(run).handed_over(item, holding)
        if made is None:
            self._side.watch(Waiting("others to hand over the model, which differs by rounding"))
            return
        query, parts = made
        sent = yield from self._side.exchange.send(f"{self._at(item)}/model", *parts, query=query)
        yield from self._polling.sent(sent)

    def _finishing(self, run: RunInHand) -> Finishing:
        return Finishing(self._side, self._offer.terms, run)

    def _receive(self, item: Item) -> None:
        """Open the other members' boxes, if the item has them."""
        if item.delivery is not None:
            delivery = self._of_run(item, Delivery.decode(item.delivery))
            self._home.keep(self._client.receive(delivery))

    def _close(self, proof: bytes) -> None:
        """Record that the slot before was abandoned, if that is what a request proves."""
        decoded = decode_proof(proof) if proof else None
        if isinstance(decoded, AbandonProof):
            self._home.keep(self._client.close(decoded))

    def _at(self, item: Item) -> str:
        return f"/sessions/{self._side.session}/runs/{item.run}"

    def _replayed(self, run: RunInHand) -> Replay:
        """Return this hospital's replay of a run, which stays in memory."""
        if self._replay is None or self._replay.run != str(run.run):
            at = f"/sessions/{self._side.session}/runs/{run.run}"

            def get(what: str) -> Effects[bytes]:
                return self._side.exchange.get_current(
                    f"{at}/{what}", limit=MAX_STATE, timeout_s=600.0
                )

            downloads = Downloads(
                state=lambda digest: get(f"states/{digest.hex()}"),
                total=lambda epoch, slot: get(f"totals/{epoch}/{slot}"),
                model=self._model,
            )
            self._replay = Replay(self._home, run, downloads, self._side.watch)
        return self._replay

    def _is_known(self, parent: str) -> bool:
        """Whether a run may start from a model without a certificate of its members."""
        return parent in self._side.policy.parents or self._home.store.obtained(parent)

    def _certified(self, parent: str) -> Effects[Model]:
        """Download a model that members known here have signed."""
        fetched = yield from fetched_model(self._side, self._offer.terms, parent)
        check_certified(self._side, self._offer.terms, fetched, starts=True)
        return self._start(fetched)

    def _start(self, fetched: FetchedModel) -> Model:
        model = fetched.read().model
        check_start(model, self._offer.program)
        return model

    def _model(self, parent: str) -> Effects[Model]:
        """Return the model that a run starts from: a certified one, or one that is known here."""
        if parent not in self._parents:
            if self._is_known(parent):
                fetched = yield from fetched_model(self._side, self._offer.terms, parent)
                self._parents = {parent: self._start(fetched)}
            else:
                self._parents = {parent: (yield from self._certified(parent))}
        return self._parents[parent]

    def check_same(self, run: KnownRun, artifact: bytes) -> None:
        """Refuse a model other than the one that this hospital has computed, if it has."""
        holding = self._home.store.holding(run.run, _program(run.program))
        if holding is not None and holding.newest.finished:
            check_model(holding, artifact)

    def check_model(self, run: KnownRun, artifact: bytes, card: Mapping[str, object]) -> KnownRun:
        """Compare a run's model with the one that this hospital has computed; return the run.

        A hospital that could not replay the run (it had dropped out, with differential privacy)
        takes the model as it is, and says so.
        """
        store = self._home.store
        holding = store.holding(run.run, _program(run.program))
        if holding is None or not holding.newest.finished:
            self._side.watch(ModelNotVerified(run.model or ""))
            return replace(run, fetched=True, replayed=False)
        try:
            check_model(holding, artifact)
        except (KernelsError, ModelDiffers) as error:
            store.commit(Step(None), run=replace(run, model=None, code=error.code))
            store.forget_positions(run.run)
            raise
        return replace(run, fetched=True, replayed=is_named(run.model, artifact, card))

    def fetched(self, run: KnownRun) -> None:
        """Record that a run's model was fetched and passed on."""
        self._home.store.commit(Step(None), run=run)
        self._home.store.forget_positions(run.run)

    def _ended(self, item: Item) -> Effects[KnownRun]:
        """Replay a run to its end, erase its secrets, and store how it ended."""
        outcome = RunOutcome.read(item)
        known = self._home.store.run(str(item.run))
        if known is None or known.session != self._side.session:
            raise WrongRun("the coordinator ended a run that this hospital has not entered")
        self._check_open(known)
        if outcome.model is not None:
            holding = yield from self._finished(item, self._in_hand(known), None)
            if holding is not None:
                self._home.store.commit(Step(None), holding=holding)
            known = self._with_certificate(item, known)
        self._replay = None
        self._end_epochs(lambda other: other == item.run.bytes)
        self._home.keep(self._client.forget_group(item.run.bytes))
        over = replace(
            known,
            status=outcome.status,
            code=outcome.code,
            detail=outcome.detail,
            model=outcome.model,
            fetched=False,
            replayed=False,
        )
        self._home.store.commit(Step(None), run=over)
        if over.model is None:
            self._home.store.samples_not_needed(over.run)
            self._home.store.forget_positions(over.run)
        self._home.store.erase_traces()
        self._side.watch(RunOver(over.run, over.status, over.code, over.detail))
        return over

    def _with_certificate(self, item: Item, known: KnownRun) -> KnownRun:
        """Store the certificate of a model for members only, while its salt can be derived.

        It is needed if the archive that a member has sealed turns out to be unusable.
        """
        data = item.part("certificate")
        if data is None or not self._offer.terms.members_only:
            return known
        try:
            certificate = ModelCertificate.decode(data)
            salted = self._finishing(self._in_hand(known)).with_own_salt(certificate)
        except PrivacyError:  # it is not about this run, or the key is gone
            return known
        known = replace(known, certificate=salted.encode())
        self._home.store.commit(Step(None), run=known)
        return known

    def own_model(self, run: KnownRun, reason: str) -> FetchedModel | None:
        """Return the model that this hospital has computed itself; None if it has not.

        It has a certificate if members have signed this very model.
        """
        in_hand = self._in_hand(run)
        holding = self._home.store.holding(run.run, in_hand.program)
        if holding is None or not holding.newest.finished:
            return None
        signed = None if run.certificate is None else ModelCertificate.decode(run.certificate)
        own = self._finishing(in_hand).own_model(holding, signed)
        self._side.watch(OwnModel(run.model or "", own.id, reason))
        return own

    def _finished(
        self, item: Item, run: RunInHand, request: AuthorRequest | None
    ) -> Effects[Holding | None]:
        """Replay a run to its end; None if that is not possible and need not be."""
        try:
            return (yield from self._replayed(run).finishing(item, request))
        except TooLate as late:  # the last total is no longer kept
            if run.program.privacy is None:
                raise late.error from None
            return None

    # -- small parts

    def _check_open(self, known: KnownRun) -> None:
        """Refuse to go on with a run that is over for this hospital, however it ended.

        Entered once more, it would replay from its start outside every count of the ledger, and
        its end could name another model than the one that was replayed.
        """
        if known.status != "running":
            raise WrongRun(
                f"the coordinator refers to run {known.run}, which is over for this hospital: "
                "another run is needed"
            )

    def _check_same_rows(self, known: KnownRun) -> None:
        """Refuse, without differential privacy, other rows than the run was entered with.

        The consent to sum added and removed rows, and what becomes known, were decided for those.
        """
        if _program(known.program).privacy is not None or known.run == self._same_rows:
            return
        with about_own_rows():
            entered = self._home.store.rows_of(known.run)
            if entered != self._table.journalled.hex():
                raise TableChanged(
                    "This hospital entered the run with another table, or with other rows to add "
                    "or remove. Join with those again, or wait for the next run."
                )
        self._same_rows = known.run

    def _answer_times(self, known: KnownRun) -> tuple[float, ...]:
        """Return the answer times of a run's stages, which were fixed when it was entered."""
        if known.run not in self._times:
            program = _program(known.program)
            self._times = {known.run: times_of(self._side, program, self._table)}
        return self._times[known.run]

    def _flush(self) -> None:
        """Write what the replay has verified before a step that may erase what it rests on."""
        if self._replay is not None:
            self._replay.flush()

    def _in_hand(self, known: KnownRun) -> RunInHand:
        return RunInHand(
            session=self._side.link.session,
            run=UUID(known.run),
            kind=known.kind,
            text=known.program,
            program=_program(known.program),
            parent=known.parent,
        )

    def _end_epochs(self, which: Callable[[bytes], bool]) -> None:
        """End the open epochs of the selected runs of this session; their secrets are erased."""
        runs = set()
        for entry in self._client.journal.of_session(self._side.link.session.bytes):
            if not entry.ended and which(entry.name[1]):
                self._home.keep(self._client.end(entry.name))
                runs.add(entry.name[1])
        for run in runs:
            self._home.keep(self._client.forget_group(run))

    def _of_run(self, item: Item, message: Any) -> Any:
        """Return the message if it is about the item's epoch in this session; refuse it if not."""
        entry, _ = self._client.journal.entry(message.epoch_id)
        if entry.name != (self._side.link.session.bytes, item.run.bytes, item.number):
            raise WrongTask("the coordinator sent a message for another session, run or epoch")
        return message

    def _keep_and_send(self, item: Item, step: Step[Any]) -> Effects[None]:
        self._home.keep(step)
        if step.message is not None:
            yield from self._send(item, step.message)

    def _send(self, item: Item, message: Message) -> Effects[None]:
        sent = yield from self._side.exchange.send(f"{self._at(item)}/messages", message.encode())
        yield from self._polling.sent(sent)


@lru_cache(maxsize=2)
def _program(text: str) -> Program:
    """Read a run's program; cached, because every task of a run has the same one."""
    return Program.from_json(text)

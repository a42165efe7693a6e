"""A member's side of the protocol: a state machine that takes messages and returns steps.

Every call first makes its checks, then decides what to store, then changes its memory, and returns
a `Step`: records and vault entries to make durable, and then a message to send. An error changes
nothing. Calls may be repeated: a caller that lost the answer gets the same bytes again. After a
crash, `Client.restore` continues from what is durable.

    begin · join                                      once, by the operator
    advertise → agree → receive                       an epoch
    draft · seal_state                                its task, if the sums are blind
    upload → certify → reveal → repair                a sum
    verify_total                                      its total
    object_to · open_state                            a task from another state than one's own
    endorse · seal_archive                            the finished model
    abandon · close                                   a sum that is abandoned
    consent · change_cohort · approve_table           what an operator may allow
    end · forget_group                                secrets are erased
"""

import os
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privacy.blinding import state_value
from privacy.encoding import Encoding
from privacy.framing import Label, derive, digest
from privacy.identity import Identity, Pins, Randomness, Roster
from privacy.members.archive import Archive, seal_archive
from privacy.members.endorsement import NO_SALT, Endorsement, statement_of
from privacy.members.sealed_state import open_state, seal_state
from privacy.securesum import checks, steady
from privacy.securesum.certificates import (
    Proof,
    abandon_parts,
    certify_parts,
    check_abandoned,
    check_certificate,
)
from privacy.securesum.epoch import (
    Epoch,
    PairSecrets,
    check_advert,
    check_members,
    check_own_advert,
    check_pinned,
    epoch_from,
    open_boxes,
    seal_boxes,
)
from privacy.securesum.errors import (
    ClosedOtherwise,
    EpochNotReady,
    SecondEndorsement,
    SecondEpoch,
    SecretsLost,
    StaleEpoch,
    TermsChanged,
    UnknownEpoch,
)
from privacy.securesum.journal import EpochEntry, EpochName, Journal, SlotEntry
from privacy.securesum.masking import FailedVector, make_upload, open_share, pair_key
from privacy.securesum.memory import (
    Memory,
    Vault,
    body_entry,
    epoch_entry,
    epoch_erased,
    group_entry,
    slot_entry,
    slot_erased,
)
from privacy.securesum.messages import (
    NO_ARCHIVE,
    UNNAMED,
    Abandonment,
    AbandonProof,
    AbandonRequest,
    Advert,
    Adverts,
    AuthorRequest,
    Boxes,
    Certificate,
    Certification,
    Consent,
    Delivery,
    Draft,
    Objection,
    Opening,
    Proposal,
    Repair,
    RepairRequest,
    Reveal,
    SealedState,
    SumName,
    Task,
    Total,
    Upload,
)
from privacy.securesum.records import (
    Abandoned,
    Advertised,
    AdvertSecrets,
    Agreed,
    Begun,
    Bound,
    Certified,
    Ended,
    Endorsed,
    GroupSecrets,
    Joined,
    PairsSecrets,
    SealSecrets,
    SignedAbandon,
    SignedCertify,
    SlotSecrets,
    Step,
    Uploaded,
    UploadStep,
    VaultChanges,
)
from privacy.securesum.sealing import KEM_SECRET_BYTES, check_kem_key, public_key
from privacy.securesum.terms import Terms
from privacy.securesum.verification import VerifiedTotal, verified
from privacy.securesum.wire import Message


class Client:
    """One member, over all its data sources, sessions and coordinators."""

    def __init__(self, identity: Identity, memory: Memory, random: Randomness) -> None:
        self._identity = identity
        self._memory = memory
        self._journal = memory.journal
        self._commit = memory.commit
        self._random = random

    @classmethod
    def begin(
        cls, identity: Identity, random: Randomness = os.urandom
    ) -> tuple["Client", Step[None]]:
        """Start the journal of a newly made identity; once per identity."""
        client = cls(identity, Memory(Journal(), {}), random)
        return client, client._commit(None, [Begun(identity.key)])

    @classmethod
    def restore(
        cls,
        identity: Identity,
        records: Iterable[bytes],
        vault: Vault,
        random: Randomness = os.urandom,
    ) -> "Client":
        """Continue from what is durable; refuse an empty, foreign or rolled-back journal."""
        return cls(identity, Memory.restore(identity.key, records, vault), random)

    def __repr__(self) -> str:
        return f"Client({self._identity.fingerprint}, {self._journal.count} records)"

    @property
    def journal(self) -> Journal:
        """What this client has done so far; read-only for callers."""
        return self._journal

    # -- sessions and epochs

    def join(self, terms: Terms) -> Step[None]:
        """Accept a session's terms; they are then fixed for this client."""
        known = self._journal.sessions.get(terms.session)
        if known is not None and known != terms:
            raise TermsChanged(
                "This client joined the session under other terms; changed terms need a new "
                "session."
            )
        return Step(None) if known is not None else self._commit(None, [Joined(terms)])

    def advertise(
        self, opening: Opening, source: str, software: str = "", archive_key: bytes = NO_ARCHIVE
    ) -> Step[Advert]:
        """Enter an epoch with one data source, and a fresh key for other members to seal to.

        A newer epoch of a run ends the older ones. `software` is logged by the others.
        `archive_key` is this member's lasting key, for models that are for members only.
        """
        terms = self._journal.terms(opening.terms.session)
        name: EpochName = (terms.session, opening.run, opening.number)
        entry = self._journal.epochs.get(name)
        if entry is not None:
            checks.check_open(entry)
            if entry.source != source:
                raise StaleEpoch(
                    f"This client entered epoch {opening.number} with another data source; use "
                    "that one, or a new epoch."
                )
            return Step(Advert.decode(entry.advert))
        checks.check_opening(self._journal, self._identity.key, opening, terms)
        secret = self._random(KEM_SECRET_BYTES)
        advert = Advert.signed(
            self._identity,
            session=terms.session,
            run=opening.run,
            number=opening.number,
            identity=self._identity.key,
            kem_key=public_key(secret),
            archive_key=archive_key,
            software=software,
        )
        records: list[Message] = []
        vault: dict[str, bytes | memoryview | None] = {}
        for older in self._journal.epochs.values():
            if older.name[:2] == name[:2] and not older.ended:
                records.append(Ended(*older.name))
                vault |= self._erased(older)
        records.append(Advertised(*name, source=source, advert=advert.encode()))
        vault[epoch_entry(name)] = AdvertSecrets(secret).encode()
        return self._commit(advert, records, vault)

    def agree(self, adverts: Adverts, roster: Roster, pins: Pins) -> Step[Boxes | None]:
        """Check all adverts, derive the epoch, and seal a seed to each other member."""
        name, entry = self._advertised(adverts)
        terms = self._journal.terms(name[0])
        for advert in adverts.adverts:
            check_advert(advert, *name, roster)
        check_own_advert(entry.advert, adverts)
        if terms.members_only:
            for advert in adverts.adverts:
                check_kem_key(advert.archive_key)
        trusted = pins.trusted(roster) | {self._identity.key}
        members = [advert.identity for advert in adverts.adverts]
        check_pinned(members, trusted)
        check_members(terms, members)
        epoch = epoch_from(terms, name[1], name[2], roster, adverts)
        if entry.epoch is not None:
            return self._boxes_again(entry, epoch)
        own = epoch.rank(self._identity.key)
        kem_secret = self._memory.secret(epoch_entry(name), AdvertSecrets).kem_secret
        seeds = {rank: self._random(32) for rank in epoch.everyone if rank != own}
        part = self._random(32)
        boxes = Boxes.signed(
            self._identity,
            epoch_id=epoch.epoch_id,
            sender=own,
            boxes=seal_boxes(epoch, self._identity, adverts, seeds, part),
        )
        secrets = SealSecrets(kem_secret, tuple(seeds), tuple(seeds.values()), part, boxes.encode())
        record = Agreed(
            *name,
            epoch_id=epoch.epoch_id,
            members=epoch.members,
            roster=epoch.roster,
        )
        return self._commit(boxes, [record], {epoch_entry(name): secrets.encode()})

    def receive(self, delivery: Delivery) -> Step[None]:
        """Open the boxes of all other members; from then on the epoch can sum."""
        entry, epoch = self._journal.entry(delivery.epoch_id)
        checks.check_open(entry)
        if self._memory.holds(epoch_entry(entry.name), PairsSecrets):
            return Step(None)
        secrets = self._memory.secret(epoch_entry(entry.name), SealSecrets)
        pairs, group = open_boxes(
            epoch,
            epoch.rank(self._identity.key),
            delivery.boxes,
            secrets.kem_secret,
            dict(zip(secrets.receivers, secrets.seeds, strict=True)),
            secrets.part,
        )
        kept = PairsSecrets(
            tuple(pairs),
            tuple(pair.seed for pair in pairs.values()),
            tuple(pair.channel for pair in pairs.values()),
        )
        secret = GroupSecrets(group.key, group.commitments, verified=0)
        vault = {epoch_entry(entry.name): kept.encode(), group_entry(entry.name): secret.encode()}
        return self._commit(None, [], vault)

    def end(self, name: EpochName) -> Step[None]:
        """End an epoch and erase its secrets; its open slots count as released."""
        entry = self._journal.epochs.get(name)
        if entry is None:
            raise UnknownEpoch("This client has not entered this epoch, so it cannot end it.")
        if entry.ended:
            return Step(None)
        return self._commit(None, [Ended(*entry.name)], self._erased(entry))

    def forget_group(self, run: bytes) -> Step[None]:
        """Erase the group keys of a run's ended epochs: the run is over."""
        kept = [
            group_entry(entry.name)
            for entry in self._journal.epochs.values()
            if entry.name[1] == run and entry.ended
        ]
        held = [name for name in kept if self._memory.holds(name, GroupSecrets)]
        return self._commit(None, [], dict.fromkeys(held))

    # -- sums

    def upload(
        self,
        task: Task,
        vector: NDArray[np.uint64] | FailedVector,
        *,
        table: bytes,
        state: bytes = UNNAMED,
        encoding: Encoding | None = None,
        noise: bytes = b"",
    ) -> UploadStep:
        """Answer a slot, once: mask the vector, share the self key, sign.

        A site that could not compute its vector answers with random numbers (`FailedVector`), and
        the sum says that a site has failed, without naming it. With differential privacy there
        is always a vector: failures contribute zero, under the noise that was charged.

        `table` and `state` are the digests of what the vector was computed from, and `encoding`
        is what encoded it. `noise` names the charged draw of noise in the vector, if the session
        has differential privacy.
        """
        entry, epoch = self._journal.entry(task.epoch_id)
        closing = self._check_slot(task)
        slot, group = entry.slots.get(task.slot), self._group(entry)
        if slot is not None and slot.uploaded is not None:
            return self._upload_again(entry, task.slot)
        bound = self._check_new(task, table, state, encoding)
        checks.check_noise(self._journal, epoch.terms, noise)
        checks.check_may_fail(epoch.terms, failed=isinstance(vector, FailedVector))
        context = task.context(group.commitments)
        made = make_upload(
            epoch,
            self._identity,
            task,
            context,
            vector,
            self._pairs(entry),
            group.key,
            self._random,
        )
        records = [*_closed(closing), *([] if bound is None else [bound])]
        records.append(
            Uploaded(epoch.epoch_id, task.slot, made.header.context, task.active, table, noise)
        )
        vault: dict[str, bytes | memoryview | None] = {
            slot_entry(entry.name): SlotSecrets(
                task.slot, made.self_key, made.header.encode()
            ).encode(),
            body_entry(entry.name): made.body,
        }
        step = self._commit(made.header, records, vault)
        return UploadStep(step.message, step.records, step.vault, made.body)

    def holds_group(self, epoch_id: bytes) -> bool:
        """Whether the group key of an epoch is here: totals and keyed values can be computed."""
        entry, _ = self._journal.entry(epoch_id)
        return self._memory.holds(group_entry(entry.name), GroupSecrets)

    def context_of(self, task: Task) -> bytes:
        """Return the context of a task in an epoch whose group key is still here."""
        entry, _ = self._journal.entry(task.epoch_id)
        return task.context(self._group(entry).commitments)

    def check_witnesses(self, task: Task, headers: Iterable[Upload]) -> None:
        """Refuse a task whose state this client would take from the members that answered it."""
        entry, epoch = self._journal.entry(task.epoch_id)
        checks.check_open(entry)
        own = epoch.rank(self._identity.key)
        checks.check_witnesses(epoch, own, task, self.context_of(task), headers)

    def check_upload(
        self, task: Task, *, table: bytes, state: bytes = UNNAMED, encoding: Encoding | None = None
    ) -> None:
        """Make the checks of `upload` that need no vector, so that none is computed in vain.

        They must come before the rows are read: whether and when a task is refused would otherwise
        depend on the rows.
        """
        self._check_slot(task)
        self._check_new(task, table, state, encoding)

    def _check_slot(self, task: Task) -> Proof | None:
        """Refuse a task that does not fit this client's journal; return the proof it carries."""
        entry, epoch = self._journal.entry(task.epoch_id)
        checks.check_open(entry)
        slot = entry.slots.get(task.slot)
        context = task.context(self._group(entry).commitments)
        checks.check_not_behind(entry, task.slot)
        closing = checks.check_before_closed(entry, epoch, task.slot, task.proof)
        checks.check_same_task(slot, context)
        checks.check_not_given_up(slot)
        return closing

    def _check_new(
        self, task: Task, table: bytes, state: bytes, encoding: Encoding | None
    ) -> Bound | None:
        """Refuse a task that must not be answered; return the record that binds the source."""
        entry, epoch = self._journal.entry(task.epoch_id)
        checks.check_author(epoch, task)
        named, encoding_named = self.named_in(task.epoch_id, task.slot, state, encoding)
        checks.check_state(task, named)
        checks.check_active(epoch, epoch.rank(self._identity.key), task)
        checks.check_encoding(task, encoding, encoding_named, epoch.terms)
        return steady.bind_for_upload(self._journal, entry, epoch, task.active, table)

    def certify(self, proposal: Proposal) -> Step[Certification]:
        """Sign, once, that these are the survivors of the slot."""
        entry, epoch = self._journal.entry(proposal.epoch_id)
        checks.check_open(entry)
        checks.check_not_behind(entry, proposal.slot)
        slot, own = entry.slots.get(proposal.slot), epoch.rank(self._identity.key)
        upload = checks.own_upload(slot, proposal)
        checks.check_survivors(epoch, own, proposal)
        steady.check_still_bound(self._journal, entry, epoch, upload, proposal.survivors)
        slot = entry.slots[proposal.slot]
        checks.check_may_certify(slot, proposal.survivors)
        records = []
        if slot.certify is None:
            signature = self._identity.sign(Label.CERTIFY, *certify_parts(epoch, proposal))
            records.append(
                SignedCertify(epoch.epoch_id, proposal.slot, proposal.survivors, signature)
            )
        else:
            signature = slot.certify.signature
        return self._commit(Certification(epoch.epoch_id, proposal.slot, own, signature), records)

    def reveal(self, certificate: Certificate) -> Step[Reveal]:
        """Reveal this member's keys of the masks that remain in the certified survivors' sum."""
        entry, epoch = self._journal.entry(certificate.epoch_id)
        checks.check_open(entry)
        checks.check_not_behind(entry, certificate.slot)
        own = epoch.rank(self._identity.key)
        upload = checks.own_upload(entry.slots.get(certificate.slot), certificate)
        checks.check_survivors(epoch, own, certificate)
        slot = entry.slots[certificate.slot]
        signed = slot.certify
        same = signed is not None and signed.survivors == certificate.survivors
        check_certificate(epoch, certificate, {own: signed.signature} if signed and same else None)
        checks.check_one_certificate(slot, certificate)
        steady.check_still_bound(self._journal, entry, epoch, upload, certificate.survivors)
        survivors = set(certificate.survivors)
        dropped = tuple(rank for rank in upload.active if rank not in survivors)
        pairs = self._pairs(entry) if dropped else {}
        reveal = Reveal(
            epoch_id=epoch.epoch_id,
            slot=certificate.slot,
            context=upload.context,
            rank=own,
            self_key=self._slot_secrets(entry, certificate.slot).self_key,
            dropped=dropped,
            pair_keys=tuple(pair_key(pairs[rank], upload.context) for rank in dropped),
        )
        if slot.certified is not None:
            return Step(reveal)
        return self._commit(reveal, _closed(certificate), {body_entry(entry.name): None})

    def repair(self, request: RepairRequest) -> Step[Repair]:
        """Open this member's shares of the self keys of silent survivors."""
        entry, epoch = self._journal.entry(request.epoch_id)
        checks.check_open(entry)
        checks.check_not_behind(entry, request.slot)
        own = epoch.rank(self._identity.key)
        slot = entry.slots.get(request.slot)
        certified = checks.check_repair(slot, request, own)
        upload = checks.own_upload(slot, _claim(certified))
        steady.check_still_bound(self._journal, entry, epoch, upload, certified.survivors)
        pairs = self._pairs(entry)
        opened = {
            rank: open_share(sealed, hashed, pairs[rank], certified.context, rank, own)
            for rank, sealed, hashed in zip(
                request.silent, request.sealed_shares, request.share_hashes, strict=True
            )
        }
        shares = {rank: share for rank, share in opened.items() if share is not None}
        repair = Repair.signed(
            self._identity,
            epoch_id=epoch.epoch_id,
            slot=request.slot,
            context=certified.context,
            rank=own,
            silent=tuple(shares),
            shares=tuple(shares.values()),
            unreadable=tuple(rank for rank, share in opened.items() if share is None),
        )
        return Step(repair)

    def verify_total(
        self, total: Total, body: bytes | memoryview, certificate: Certificate
    ) -> Step[VerifiedTotal]:
        """Return a slot's total if it is what the certified survivors' vectors add up to.

        Every member of the epoch can do this, in the sum or not, also after the epoch has ended
        here. Totals are verified in the order of their slots. The step erases the group key if the
        epoch has ended and this was its last total, so a caller that stores what it makes of the
        total does so in the same transaction.
        """
        entry, epoch = self._journal.entry(certificate.epoch_id)
        self._check_ready(entry)
        slot = entry.slots.get(certificate.slot) or SlotEntry()
        if slot.uploaded is not None:
            checks.own_upload(slot, certificate)
        if slot.certified is None or _claim(slot.certified) != claim_of(certificate):
            check_certificate(epoch, certificate)
        name = group_entry(entry.name)
        group = self._memory.secret(name, GroupSecrets)
        checks.check_total_in_order(group, certificate.slot)
        result = verified(total, body, certificate, group.key, blinded=epoch.terms.blind)
        done = replace(group, verified=certificate.slot + 1)
        kept = not entry.ended or entry.awaits_total(done.verified)
        return self._commit(result, [], {name: done.encode() if kept else None})

    # -- blind sums: members write the tasks

    def named_in(
        self, epoch_id: bytes, slot: int, state: bytes, encoding: Encoding | None
    ) -> tuple[bytes, bytes]:
        """Return what a task of a slot must say about the state and the encoding of its vectors.

        state: the digest of the state. With blind sums both are in one keyed value.
        """
        entry, epoch = self._journal.entry(epoch_id)
        hashed = UNNAMED if encoding is None else encoding.digest()
        if not epoch.terms.blind:
            return state, hashed
        key = self._group(entry).key
        return state_value(key, epoch_id, slot, state=state, encoding=hashed), UNNAMED

    def draft(
        self,
        request: AuthorRequest,
        *,
        statistic: str,
        parameters: bytes,
        length: int,
        state: bytes,
        encoding: Encoding | None,
        applied: SumName | None,
    ) -> Step[Draft]:
        """Write the task of the next slot, from this member's own state.

        applied: the sum whose total led to the state; None at the start, or if it was lost.
        """
        entry, epoch = self._journal.entry(request.epoch_id)
        checks.check_open(entry)
        checks.check_not_behind(entry, request.slot)
        proof = checks.check_before_closed(entry, epoch, request.slot, request.proof)
        checks.check_not_given_up(entry.slots.get(request.slot))
        named, _ = self.named_in(request.epoch_id, request.slot, state, encoding)
        draft = Draft.signed(
            self._identity,
            epoch_id=epoch.epoch_id,
            slot=request.slot,
            statistic=statistic,
            parameters=parameters,
            state=named,
            length=length,
            applied=() if applied is None else (applied,),
            rank=epoch.rank(self._identity.key),
        )
        return self._commit(draft, _closed(proof))

    def object_to(self, task: Task) -> Step[Objection]:
        """State that this member's own state is not the one that a task was written for."""
        entry, epoch = self._journal.entry(task.epoch_id)
        checks.check_open(entry)
        checks.check_author(epoch, task)
        objection = Objection.signed(
            self._identity,
            epoch_id=epoch.epoch_id,
            slot=task.slot,
            context=self.context_of(task),
            rank=epoch.rank(self._identity.key),
        )
        return Step(objection)

    def seal_state(self, epoch_id: bytes, slot: int, data: bytes) -> tuple[SealedState, bytes]:
        """Return this member's state at a slot, sealed for the other members of the epoch."""
        entry, epoch = self._journal.entry(epoch_id)
        key = self._group(entry).key
        return seal_state(epoch, self._identity, key, slot, data, self._random)

    def open_state(self, header: SealedState, box: bytes) -> bytes:
        """Return the state that another member has sealed at a slot."""
        entry, epoch = self._journal.entry(header.epoch_id)
        return open_state(epoch, self._group(entry).key, header, box)

    # -- the finished model

    def model_salt(self, epoch_id: bytes, context: bytes) -> bytes:
        """Return the salt of the commitments to a run's model; members alone know it."""
        entry, _ = self._journal.entry(epoch_id)
        return derive(self._group(entry).key, Label.MODEL_SALT, context)

    def endorse(
        self,
        certificate: Certificate,
        *,
        program: bytes,
        parent: str | None,
        data: bytes,
        state: bytes,
        results: bytes,
    ) -> Step[Endorsement]:
        """Sign, once per run, that this is its model, and that these are its results.

        certificate: of the run's last sum. program: the digest of what the run computes. data: the
        artifact's model section. state: the digest of the final state.
        """
        entry, epoch = self._journal.entry(certificate.epoch_id)
        check_certificate(epoch, certificate)
        checks.check_newest(entry, certificate.slot)
        salt = self.model_salt(epoch.epoch_id, certificate.context)
        key = self._group(entry).key
        statement = statement_of(
            epoch.terms,
            run=epoch.run,
            epoch_id=epoch.epoch_id,
            members=epoch.size,
            program=program,
            roster=epoch.roster,
            parent=parent,
            salt=salt,
            data=data,
            state_salt=derive(key, Label.STATE_SALT, certificate.context),
            state=state,
            context=certificate.context,
        )
        endorsement = Endorsement.signed(
            self._identity,
            rank=epoch.rank(self._identity.key),
            statement=statement,
            salt=NO_SALT if epoch.terms.members_only else salt,
            results=results,
        )
        said = digest(Label.RESULTS, *statement.result_parts(results))
        before = self._journal.endorsed.get(entry.name[:2])
        if before is not None and before != said:
            raise SecondEndorsement(
                "This client has already signed another statement on the model of this run; it "
                "signs one."
            )
        records = [] if before is not None else [Endorsed(*entry.name[:2], statement=said)]
        return self._commit(endorsement, records)

    def seal_archive(
        self, adverts: Adverts, roster: Roster, *, model: bytes, content: bytes
    ) -> tuple[Archive, bytes]:
        """Return a model sealed to all members of an epoch that this client has agreed to."""
        name, entry = self._advertised(adverts)
        terms = self._journal.terms(name[0])
        epoch = epoch_from(terms, name[1], name[2], roster, adverts)
        if entry.epoch != epoch:
            raise SecondEpoch("These are not the members that this client has agreed to.")
        return seal_archive(
            self._identity,
            adverts,
            session=name[0],
            run=name[1],
            model=model,
            content=content,
            random=self._random,
        )

    # -- sums that are abandoned

    def abandon(self, request: AbandonRequest) -> Step[Abandonment]:
        """Sign that a slot is abandoned; after that this client never certifies it."""
        entry, epoch = self._journal.entry(request.epoch_id)
        checks.check_not_behind(entry, request.slot)
        closing = checks.check_before_closed(entry, epoch, request.slot, request.proof)
        slot, own = entry.slots.get(request.slot), epoch.rank(self._identity.key)
        checks.check_may_abandon(slot)
        records = _closed(closing)
        if slot is None or slot.abandon is None:
            signature = self._identity.sign(Label.ABANDON, *abandon_parts(epoch, request.slot))
            records.append(SignedAbandon(epoch.epoch_id, request.slot, signature))
        else:
            signature = slot.abandon.signature
        return self._commit(Abandonment(epoch.epoch_id, request.slot, own, signature), records)

    def close(self, proof: AbandonProof) -> Step[None]:
        """Record a proof that a slot was abandoned, also after its epoch has ended."""
        entry, epoch = self._journal.entry(proof.epoch_id)
        check_abandoned(epoch, proof)
        slot = entry.slots.get(proof.slot)
        if slot is not None and slot.certified is not None:
            raise ClosedOtherwise(
                f"Slot {proof.slot} has a certificate and counts as released; it cannot be closed "
                "as abandoned."
            )
        if slot is not None and slot.abandoned:
            return Step(None)
        erased = slot_erased(entry.name) if proof.slot == entry.newest else {}
        return self._commit(None, _closed(proof), erased)

    # -- what an operator may allow

    def consent(self, session: bytes, old: Iterable[bytes], new: Iterable[bytes]) -> Consent:
        """Return this member's signed consent that sums over both sets may become known.

        It is made for the operator, and valid in this session only.
        """
        return Consent.signed(
            self._identity,
            session=session,
            old=tuple(sorted(set(old))),
            new=tuple(sorted(set(new))),
            identity=self._identity.key,
        )

    def change_cohort(
        self,
        source: str,
        session: bytes,
        members: Iterable[bytes],
        consents: Iterable[Consent],
        *,
        approved_by: str,
    ) -> Step[None]:
        """Allow a data source other members, if every member that this exposes has consented."""
        record = steady.approve_cohort(
            self._journal, source, session, members, consents, approved_by
        )
        return self._commit(None, [record])

    def approve_table(self, source: str, table: bytes, *, approved_by: str) -> Step[None]:
        """Allow a data source another table."""
        record = steady.approve_table(self._journal, source, table, approved_by)
        return self._commit(None, [record])

    # -- memory

    def _erased(self, entry: EpochEntry) -> VaultChanges:
        """Return the change that erases the secrets of an epoch that ends.

        The group key stays while there is a slot whose total has not been verified here.
        """
        name = group_entry(entry.name)
        if not self._memory.holds(name, GroupSecrets):
            return epoch_erased(entry.name)
        verified = self._memory.secret(name, GroupSecrets).verified
        kept = entry.awaits_total(verified)
        return epoch_erased(entry.name) if kept else {**epoch_erased(entry.name), name: None}

    def _group(self, entry: EpochEntry) -> GroupSecrets:
        self._check_ready(entry)
        return self._memory.secret(group_entry(entry.name), GroupSecrets)

    def _check_ready(self, entry: EpochEntry) -> None:
        if self._memory.holds(epoch_entry(entry.name), SealSecrets):
            raise EpochNotReady(
                "This client has not received the boxes of the other members yet; fetch the "
                "delivery first."
            )

    def _pairs(self, entry: EpochEntry) -> dict[int, PairSecrets]:
        self._check_ready(entry)
        kept = self._memory.secret(epoch_entry(entry.name), PairsSecrets)
        return {
            rank: PairSecrets(seed, channel)
            for rank, seed, channel in zip(kept.others, kept.seeds, kept.channels, strict=True)
        }

    def _slot_secrets(self, entry: EpochEntry, slot: int) -> SlotSecrets:
        secrets = self._memory.secret(slot_entry(entry.name), SlotSecrets)
        if secrets.slot != slot:
            raise SecretsLost(
                f"The vault contains the secrets of slot {secrets.slot}, not of slot {slot}."
            )
        return secrets

    def _advertised(self, adverts: Adverts) -> tuple[EpochName, EpochEntry]:
        """Return the epoch of a list of adverts; refuse one that this client has not entered."""
        for advert in adverts.adverts[:1]:
            name: EpochName = (advert.session, advert.run, advert.number)
            entry = self._journal.epochs.get(name)
            if entry is not None:
                checks.check_open(entry)
                return name, entry
        raise UnknownEpoch("This client has not entered this epoch, so it cannot agree to it.")

    def _boxes_again(self, entry: EpochEntry, epoch: Epoch) -> Step[Boxes | None]:
        if entry.epoch is None or entry.epoch.epoch_id != epoch.epoch_id:
            raise SecondEpoch(
                "This client has already agreed to another list of members for this epoch; it "
                "agrees to one."
            )
        if self._memory.holds(epoch_entry(entry.name), PairsSecrets):
            return Step(None)
        secrets = self._memory.secret(epoch_entry(entry.name), SealSecrets)
        return Step(Boxes.decode(secrets.boxes))

    def _upload_again(self, entry: EpochEntry, slot: int) -> UploadStep:
        header = Upload.decode(self._slot_secrets(entry, slot).header)
        return UploadStep(header, body=self._memory.body(body_entry(entry.name)))


def _closed(proof: Proof | None) -> list[Message]:
    """Return the records of a verified proof."""
    match proof:
        case None:
            return []
        case Certificate():
            return [
                Certified(proof.epoch_id, proof.slot, proof.context, proof.active, proof.survivors)
            ]
        case AbandonProof():
            return [Abandoned(proof.epoch_id, proof.slot)]


def claim_of(certificate: Certificate) -> Proposal:
    """Return what a certificate certifies, without its signatures."""
    return Proposal(
        certificate.epoch_id,
        certificate.slot,
        certificate.context,
        certificate.active,
        certificate.survivors,
    )


def _claim(certified: Certified) -> Proposal:
    return Proposal(
        certified.epoch_id,
        certified.slot,
        certified.context,
        certified.active,
        certified.survivors,
    )

"""One sum at the coordinator: uploads → survivors → certificate → keys → total.

The coordinator cannot verify the tags in a total, because it does not have the group key. It adds
them up and passes them on, so that every member can.

The coordinator adds vectors to one running total as they arrive, and keeps no single vector. The
members in the total are the survivors that it proposes. The coordinator is not trusted, so its
checks are not for security: they name the member at fault, and they keep the state consistent. A
message that is refused changes nothing, and a repeated one counts once. Each `add_…` returns
whether the message is new: from the new messages, in order, a caller can restore the sum.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from privacy.encoding import Encoding
from privacy.errors import BadSignature, SharingError
from privacy.framing import Label
from privacy.identity import MAX_MEMBERS, verify
from privacy.layout import SecureTotal
from privacy.masks import apply_masks
from privacy.securesum.certificates import abandon_parts, certify_parts
from privacy.securesum.epoch import Epoch
from privacy.securesum.errors import (
    BadDealer,
    BlindTotal,
    Conflict,
    DifferentTask,
    ForgedMessage,
    InconsistentMasks,
    KeysMissing,
    NotAMember,
    OutOfOrder,
    PairKeysOwed,
    SumFailed,
    TooFewSurvivors,
    WrongReceivers,
    WrongSelfKey,
    WrongShare,
)
from privacy.securesum.masking import (
    EXTRA,
    check_body,
    check_commitment,
    mask_key,
    share_hash,
    share_point,
    tag_mask_key,
)
from privacy.securesum.messages import (
    Abandonment,
    AbandonProof,
    AbandonRequest,
    Certificate,
    Certification,
    Proposal,
    Repair,
    RepairRequest,
    Reveal,
    Task,
    Total,
    Upload,
)
from privacy.securesum.wire import Blob, Digest, Flag, Many, Message, One
from privacy.shamir import combine, weights_at_zero
from privacy.tags import RESIDUE_PRIMES, residue_masks


@dataclass(frozen=True)
class SummationState(Message):
    """The saved form of a sum. The running total is masked until all keys have arrived."""

    kind = 112

    task: Annotated[Task, One(Task)]
    commitments: Digest
    uploads: Annotated[tuple[Upload, ...], Many(Upload, MAX_MEMBERS)]
    total: Annotated[bytes, Blob(1 << 44)]
    frozen: Annotated[bool, Flag()]
    abandoning: Annotated[bool, Flag()]
    unmasked: Annotated[bool, Flag()]
    certifications: Annotated[tuple[Certification, ...], Many(Certification, MAX_MEMBERS)]
    abandonments: Annotated[tuple[Abandonment, ...], Many(Abandonment, MAX_MEMBERS)]
    reveals: Annotated[tuple[Reveal, ...], Many(Reveal, MAX_MEMBERS)]
    repairs: Annotated[tuple[Repair, ...], Many(Repair, MAX_MEMBERS * MAX_MEMBERS)]


class Summation:
    """The coordinator's side of one slot."""

    def __init__(self, epoch: Epoch, task: Task, commitments: bytes) -> None:
        self.epoch = epoch
        self.task = task
        self.commitments = commitments
        self.context = task.context(commitments)
        self._total: NDArray[np.uint64] = np.zeros(task.length + EXTRA, dtype="<u8")
        self._uploads: dict[int, Upload] = {}
        self._proposal: Proposal | None = None
        self._certificate: Certificate | None = None
        self._abandoning = False
        self._unmasked = False
        self._certifications: dict[int, Certification] = {}
        self._abandonments: dict[int, Abandonment] = {}
        self._reveals: dict[int, Reveal] = {}
        self._repairs: dict[_Answered, Repair] = {}
        self._shares: dict[int, dict[int, bytes]] = {}
        self._weights: dict[tuple[int, ...], dict[int, int]] = {}

    # -- uploads

    @property
    def uploaded(self) -> tuple[int, ...]:
        """The members whose vectors are in the running total."""
        return tuple(sorted(self._uploads))

    @property
    def headers(self) -> tuple[Upload, ...]:
        """The signed headers of these members' vectors, in the order in which they arrived."""
        return tuple(self._uploads.values())

    def add_upload(self, header: Upload, body: memoryview | bytes) -> bool:
        """Add a masked vector to the running total, and its sender to the survivors."""
        if not self.check_header(header):
            return False
        check_body(header, self.task.length, memoryview(body).nbytes)
        self._total += np.frombuffer(body, dtype="<u8")
        self._uploads[header.rank] = header
        return True

    def add_in_pieces(
        self, header: Upload, size: int, read: Callable[[int], bytes], *, piece: int
    ) -> Iterator[memoryview]:
        """Do the same as `add_upload` for a vector of `size` bytes, read `piece` bytes at a time.

        Yield the updated pieces of the running total, to be stored. The sender counts as a survivor
        once all pieces are taken. A caller that stops earlier has an unusable total, and must
        continue from what was stored before.
        """
        if not self.check_header(header):
            return
        check_body(header, self.task.length, size)
        for start in range(0, self._total.size, piece // 8):
            part = self._total[start : start + piece // 8]
            data = read(part.nbytes)
            if len(data) != part.nbytes:
                raise EOFError("the vector is shorter than its declared size")
            part += np.frombuffer(data, dtype="<u8")
            yield memoryview(part.data).cast("B").toreadonly()
        self._uploads[header.rank] = header

    def check_header(self, header: Upload) -> bool:
        """Refuse an upload before its vector is read; return whether it is still to be added."""
        known = self._uploads.get(header.rank)
        if known is not None and known == header:
            return False
        self._check_sender(header, self.task.active)
        if header.receivers != tuple(r for r in self.task.active if r != header.rank):
            raise WrongReceivers(
                f"Rank {header.rank}: the receivers of its shares must be the other active members."
            )
        header.check_signed_by(self._key(header.rank), ForgedMessage, f"Rank {header.rank}")
        if known is not None:
            raise Conflict(f"Rank {header.rank} has already uploaded something else to this slot.")
        if self._proposal is not None or self._abandoning:
            raise OutOfOrder(f"Rank {header.rank} is too late: this slot takes no more uploads.")
        return True

    # -- certificate

    def propose(self) -> Proposal:
        """Fix the survivors, the members in the running total, and return the proposal."""
        if self._proposal is not None:
            return self._proposal
        if self._abandoning:
            raise OutOfOrder("The slot is being abandoned.")
        survivors = self.uploaded
        least = max(self.epoch.quorum, self.epoch.terms.min_cohort)
        if len(survivors) < least:
            raise TooFewSurvivors(
                f"{len(survivors)} members have uploaded; at least {least} are required."
            )
        self._proposal = Proposal(
            self.epoch.epoch_id, self.task.slot, self.context, self.task.active, survivors
        )
        return self._proposal

    @property
    def proposal(self) -> Proposal | None:
        """The proposal, once it is made."""
        return self._proposal

    def add_certification(self, message: Certification) -> bool:
        """Count a survivor's signature on the proposal; more than a quorum are not needed."""
        if self._proposal is None:
            raise OutOfOrder("No survivors have been proposed in this slot yet.")
        self._check_slot(message, self._proposal.survivors)
        if self._certificate is not None:
            return False
        self._check_signature(message, Label.CERTIFY, certify_parts(self.epoch, self._proposal))
        if message.rank in self._certifications:
            return False
        self._certifications[message.rank] = message
        if len(self._certifications) == self.epoch.quorum:
            self._certificate = self._make_certificate(self._proposal)
        return True

    @property
    def certified_by(self) -> frozenset[int]:
        """The members who have signed the proposal."""
        return frozenset(self._certifications)

    @property
    def certificate(self) -> Certificate | None:
        """The certificate, as soon as a quorum has signed."""
        return self._certificate

    def _make_certificate(self, proposal: Proposal) -> Certificate:
        signed = sorted(self._certifications.items())
        return Certificate(
            proposal.epoch_id,
            proposal.slot,
            proposal.context,
            proposal.active,
            proposal.survivors,
            tuple(rank for rank, _ in signed),
            tuple(message.signature for _, message in signed),
        )

    # -- abandonment

    def abandon_request(self) -> AbandonRequest:
        """Start to abandon the slot, and return the request; no vector is accepted any more."""
        if self.certificate is not None:
            raise OutOfOrder("The slot has a certificate; it cannot be abandoned.")
        self._abandoning = True
        return AbandonRequest(self.epoch.epoch_id, self.task.slot, self.task.proof)

    @property
    def abandoning(self) -> bool:
        """Whether the slot is being abandoned."""
        return self._abandoning

    @property
    def abandoned_by(self) -> frozenset[int]:
        """The members who have signed that the slot is abandoned."""
        return frozenset(self._abandonments)

    def add_abandonment(self, message: Abandonment) -> bool:
        """Count a member's signature on abandoning the slot."""
        if not self._abandoning:
            raise OutOfOrder("The coordinator has not requested to abandon this slot.")
        self._check_slot(message, self.epoch.everyone)
        self._check_signature(message, Label.ABANDON, abandon_parts(self.epoch, self.task.slot))
        if message.rank in self._abandonments:
            return False
        self._abandonments[message.rank] = message
        return True

    @property
    def abandon_proof(self) -> AbandonProof | None:
        """The proof of abandonment, as soon as a quorum has signed."""
        if len(self._abandonments) < self.epoch.quorum:
            return None
        signed = sorted(list(self._abandonments.items())[: self.epoch.quorum])
        return AbandonProof(
            self.epoch.epoch_id,
            self.task.slot,
            tuple(rank for rank, _ in signed),
            tuple(message.signature for _, message in signed),
        )

    # -- keys

    def add_reveal(self, message: Reveal) -> bool:
        """Accept a survivor's self key, and its pair keys with the dropped members."""
        certificate = self._need_certificate()
        known = self._reveals.get(message.rank)
        if known is not None and known == message:
            return False
        self._check_sender(message, certificate.survivors)
        if known is not None:
            raise Conflict(f"Rank {message.rank} has already revealed something else in this slot.")
        if message.dropped != self.dropped:
            raise Conflict(
                f"Rank {message.rank} must reveal its pair keys with exactly the dropped members."
            )
        upload = self._uploads[message.rank]
        if not check_commitment(message.self_key, self.context, message.rank, upload.commitment):
            raise WrongSelfKey(
                f"Rank {message.rank} revealed a self key other than the one it committed to."
            )
        self._reveals[message.rank] = message
        return True

    @property
    def dropped(self) -> tuple[int, ...]:
        """Active members whose vectors are not in the total."""
        return tuple(rank for rank in self.task.active if rank not in self._uploads)

    @property
    def revealed(self) -> tuple[int, ...]:
        """Survivors whose keys have been revealed."""
        return tuple(sorted(self._reveals))

    @property
    def silent(self) -> tuple[int, ...]:
        """Survivors whose self keys have not been revealed."""
        return tuple(rank for rank in self.uploaded if rank not in self._reveals)

    def repair_request(self, rank: int) -> RepairRequest:
        """Return the request to one survivor to open its shares of silent survivors' self keys."""
        self._need_certificate()
        if rank not in self._uploads:
            raise NotAMember(f"Rank {rank} is not a survivor of this slot.")
        silent = tuple(dealer for dealer in self.silent if dealer != rank)
        headers = [self._uploads[dealer] for dealer in silent]
        places = [header.receivers.index(rank) for header in headers]
        return RepairRequest(
            self.epoch.epoch_id,
            self.task.slot,
            self.context,
            silent,
            tuple(h.sealed_shares[p] for h, p in zip(headers, places, strict=True)),
            tuple(h.share_hashes[p] for h, p in zip(headers, places, strict=True)),
        )

    def has_repaired(self, rank: int) -> bool:
        """Return whether a survivor has answered for all silent survivors other than itself."""
        return not self._unanswered(rank)

    def _unanswered(self, rank: int) -> set[int]:
        """Return the silent survivors, other than itself, that a survivor has not answered for."""
        answered = {
            dealer
            for repair in self._repairs.values()
            if repair.rank == rank
            for dealer in (*repair.silent, *repair.unreadable)
        }
        return set(self.silent) - answered - {rank}

    @property
    def has_all_keys(self) -> bool:
        """Whether every mask can be removed: each key is revealed, or a quorum of its shares is."""
        silent = self.silent
        if self._certificate is None or (silent and self.dropped):
            return False
        return all(len(self._shares.get(rank, {})) >= self.epoch.quorum for rank in silent)

    def add_repair(self, message: Repair) -> bool:
        """Accept opened shares; a share that its dealer did not declare is its returner's fault.

        A survivor answers once for each silent survivor, so that its answers are bounded: an answer
        that adds nothing is not kept, and one that answers for others as well is refused.
        """
        certificate = self._need_certificate()
        if self._repairs.get(_answered(message)) == message:
            return False
        self._check_sender(message, certificate.survivors)
        message.check_signed_by(self._key(message.rank), ForgedMessage, f"Rank {message.rank}")
        for dealer, share in zip(message.silent, message.shares, strict=True):
            self._check_share(dealer, message.rank, share)
        said, wanted = {*message.silent, *message.unreadable}, self._unanswered(message.rank)
        if said.isdisjoint(wanted):
            return False
        if not said <= wanted:
            raise OutOfOrder(
                f"Rank {message.rank} also answers for ranks {_few(tuple(sorted(said - wanted)))}, "
                "which have revealed their keys since, or for which it has answered before: fetch "
                "the current request and answer that."
            )
        self._take_repair(message)
        return True

    def _check_share(self, dealer: int, returner: int, share: bytes) -> None:
        upload = self._uploads.get(dealer)
        if upload is None or returner not in upload.receivers:
            raise NotAMember(f"Rank {returner} returned a share that no member dealt to it.")
        declared = upload.share_hashes[upload.receivers.index(returner)]
        if share_hash(share, self.context, dealer, returner) != declared:
            raise WrongShare(
                f"Rank {returner} returned a share other than the one that rank {dealer} declared."
            )

    def _take_repair(self, message: Repair) -> None:
        self._repairs[_answered(message)] = message
        for dealer, share in zip(message.silent, message.shares, strict=True):
            self._shares.setdefault(dealer, {})[message.rank] = share

    @property
    def accused(self) -> dict[int, tuple[int, ...]]:
        """Dealers whose shares were reported as unreadable, and the receivers who report it."""
        repairs = self._repairs.values()
        return {
            dealer: tuple(sorted(r.rank for r in repairs if dealer in r.unreadable))
            for dealer in sorted({dealer for repair in repairs for dealer in repair.unreadable})
        }

    # -- total

    def _unmask(self) -> None:
        """Remove the masks, once, and check the constant."""
        self._need_certificate()
        if not self._unmasked:
            add, subtract = self._masks()
            apply_masks(self._total, add=add, subtract=subtract)
            self._unmasked = True
        constant = int(self._total[self.task.length + 1])
        if constant != len(self._uploads):
            raise InconsistentMasks(
                f"The constant sums to {constant} over {len(self._uploads)} survivors: at least "
                "one member's masks, task or keys differ from the others'. The total is unusable."
            )

    def ring_total(self) -> NDArray[np.uint64]:
        """Return the sum of the survivors' vectors; refuse one in which a site has failed."""
        if self.epoch.terms.blind:
            raise BlindTotal("The sums of this session are blind: only members can read a total.")
        if self.failed:
            raise SumFailed(
                "One site could not compute; each site's log says whether it was it. The total is "
                "noise."
            )
        return self._total[: self.task.length]

    @property
    def failed(self) -> bool:
        """Whether a site could not compute its vector, so that the total is noise.

        With blind sums only members can tell.
        """
        return self._residues()[0] != 0

    def total_message(self) -> tuple[Total, memoryview]:
        """Return what every member of the epoch verifies: the message, and the signed integers."""
        failed, *tags = self._residues()
        total = Total(
            epoch_id=self.epoch.epoch_id,
            slot=self.task.slot,
            context=self.context,
            survivors=self.uploaded,
            failed=failed,
            tags=b"".join(tag.to_bytes(4, "big") for tag in tags),
        )
        body = memoryview(self._total[: self.task.length].data).cast("B").toreadonly()
        return total, body

    def _residues(self) -> list[int]:
        """Return `failed` and the tags modulo their primes, without masks of dropped members."""
        self._unmask()
        sums = np.delete(self._total[self.task.length :], 1).astype(np.int64)
        for rank, reveal in self._reveals.items():
            for other, key in zip(reveal.dropped, reveal.pair_keys, strict=True):
                masks = residue_masks(tag_mask_key(key))
                sums += -masks if other > rank else masks
        return [int(n) % prime for n, prime in zip(sums, RESIDUE_PRIMES, strict=True)]

    def total(self, encoding: Encoding) -> SecureTotal:
        """Return the sum, decoded by the task's encoding, which the caller has derived."""
        if encoding.digest() != self.task.encoding:
            raise DifferentTask("This is not the encoding that the slot's task names.")
        return encoding.decode(self.ring_total(), contributors=len(self._uploads))

    def _masks(self) -> tuple[list[bytes], list[bytes]]:
        """Return the keys of the masks to add and to subtract, so that no mask is left."""
        silent, dropped = self.silent, self.dropped
        if silent and dropped:
            raise PairKeysOwed(
                f"Silent ranks {_few(silent)} have not revealed their pair keys with the dropped "
                f"ranks {_few(dropped)}; the sum waits for them.",
                ranks=silent,
            )
        subtract = [self._self_key(rank) for rank in silent]
        add: list[bytes] = []
        for rank, reveal in self._reveals.items():
            subtract.append(reveal.self_key)
            for other, key in zip(reveal.dropped, reveal.pair_keys, strict=True):
                (subtract if other > rank else add).append(mask_key(key))
        return add, subtract

    def _self_key(self, dealer: int) -> bytes:
        """Return a silent survivor's self key, recovered from a quorum of its shares."""
        shares = sorted(self._shares.get(dealer, {}).items())[: self.epoch.quorum]
        if len(shares) < self.epoch.quorum:
            raise KeysMissing(
                f"Rank {dealer} is silent, and only {len(shares)} of {self.epoch.quorum} shares of "
                "its key have arrived. Dealers of unreadable shares: "
                f"{_few(tuple(self.accused))}.",
                ranks=sorted({dealer, *self.accused}),
            )
        by_point = {share_point(rank): share for rank, share in shares}
        points = tuple(by_point)
        if points not in self._weights:  # usually the same members answer for all dealers
            self._weights[points] = weights_at_zero(points)
        try:
            key = combine(by_point, self._weights[points])
        except SharingError:
            key = b""
        if not check_commitment(key, self.context, dealer, self._uploads[dealer].commitment):
            raise BadDealer(
                f"The shares that rank {dealer} dealt do not give the key it committed to.",
                ranks=(dealer,),
            )
        return key

    # -- what all messages have in common

    def _need_certificate(self) -> Certificate:
        certificate = self.certificate
        if certificate is None:
            raise OutOfOrder("The slot has no certificate yet.")
        return certificate

    def _check_sender(self, message: Upload | Reveal | Repair, allowed: Iterable[int]) -> None:
        self._check_slot(message, allowed)
        if message.context != self.context:
            raise DifferentTask(f"Rank {message.rank} answers a task other than this slot's.")

    def _check_slot(
        self,
        message: Upload | Certification | Abandonment | Reveal | Repair,
        allowed: Iterable[int],
    ) -> None:
        if (message.epoch_id, message.slot) != (self.epoch.epoch_id, self.task.slot):
            raise OutOfOrder(f"The message of rank {message.rank} is for another epoch or slot.")
        if message.rank not in allowed:
            raise NotAMember(f"Rank {message.rank} may not send this message in this slot.")

    def _check_signature(
        self, message: Certification | Abandonment, label: Label, parts: tuple[bytes, ...]
    ) -> None:
        try:
            verify(self._key(message.rank), message.signature, label, *parts)
        except BadSignature as error:
            raise ForgedMessage(f"Rank {message.rank}: {error}") from None

    def _key(self, rank: int) -> bytes:
        return self.epoch.members[rank]

    # -- memory

    def state(self) -> SummationState:
        """Return everything as plain data."""
        return SummationState(
            task=self.task,
            commitments=self.commitments,
            uploads=tuple(self._uploads.values()),
            total=self._total.tobytes(),
            frozen=self._proposal is not None,
            abandoning=self._abandoning,
            unmasked=self._unmasked,
            certifications=tuple(self._certifications.values()),
            abandonments=tuple(self._abandonments.values()),
            reveals=tuple(self._reveals.values()),
            repairs=tuple(self._repairs.values()),
        )

    @classmethod
    def restored(cls, epoch: Epoch, state: SummationState) -> "Summation":
        """Continue from plain data."""
        summation = cls(epoch, state.task, state.commitments)
        summation._total = np.frombuffer(state.total, dtype="<u8").copy()
        summation._uploads = {header.rank: header for header in state.uploads}
        if state.frozen:
            summation._proposal = summation.propose()
        summation._abandoning = state.abandoning
        summation._unmasked = state.unmasked
        summation._certifications = {m.rank: m for m in state.certifications}
        if summation._proposal is not None and len(state.certifications) >= epoch.quorum:
            summation._certificate = summation._make_certificate(summation._proposal)
        summation._abandonments = {m.rank: m for m in state.abandonments}
        summation._reveals = {m.rank: m for m in state.reveals}
        for repair in state.repairs:
            summation._take_repair(repair)
        return summation


_Answered = tuple[int, tuple[int, ...], tuple[int, ...]]


def _answered(repair: Repair) -> _Answered:
    """Return who answers for whom, which identifies a repair within its slot."""
    return repair.rank, repair.silent, repair.unreadable


def _few(ranks: tuple[int, ...]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:5])
    return (shown or "none") + (", …" if len(ranks) > 5 else "")

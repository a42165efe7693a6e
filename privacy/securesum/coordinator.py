"""The coordinator's side of an epoch: collect adverts, deliver boxes, number the slots.

It routes messages and adds vectors. It holds no secrets, and members do not trust it. All of its
memory is plain data: `save` it after any message, and continue from it with `restore`. If an epoch
loses a member before it can sum, `restart` opens another one with a new number and new keys.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from privacy.identity import MAX_MEMBERS, Member, Roster
from privacy.securesum.epoch import Epoch, check_advert, epoch_from
from privacy.securesum.errors import (
    Conflict,
    ForgedMessage,
    MissingBox,
    NotAMember,
    OutOfOrder,
    TooFewMembers,
    WrongGroupPart,
)
from privacy.securesum.group import commitments_hash
from privacy.securesum.messages import (
    UNNAMED,
    Advert,
    Adverts,
    AuthorRequest,
    Box,
    Boxes,
    Delivery,
    Draft,
    Opening,
    Task,
)
from privacy.securesum.sealing import check_kem_key
from privacy.securesum.summation import Summation, SummationState
from privacy.securesum.terms import Terms
from privacy.securesum.wire import Counter, Flag, Key, Keys, Many, Message, One, Text, Uuid


@dataclass(frozen=True)
class MemberState(Message):
    """The saved form of one member of the roster."""

    kind = 113

    name: Annotated[str, Text(200)]
    key: Key


@dataclass(frozen=True)
class CoordinatorState(Message):
    """The saved form of a coordinator's epoch."""

    kind = 114

    terms: Annotated[Terms, One(Terms)]
    run: Uuid
    number: Counter
    roster: Annotated[tuple[MemberState, ...], Many(MemberState, MAX_MEMBERS)]
    seen: Keys
    adverts: Annotated[tuple[Advert, ...], Many(Advert, MAX_MEMBERS)]
    closed: Annotated[bool, Flag()]
    boxes: Annotated[tuple[Box, ...], Many(Box, MAX_MEMBERS * MAX_MEMBERS)]
    ready: Annotated[bool, Flag()]
    summations: Annotated[tuple[SummationState, ...], Many(SummationState, 1)]


class Coordinator:
    """One epoch of a run, and its current sum."""

    def __init__(
        self,
        terms: Terms,
        *,
        run: bytes,
        number: int,
        roster: Roster,
        seen: frozenset[bytes] = frozenset(),
    ) -> None:
        self.terms = terms
        self.run = run
        self.number = number
        self.roster = roster
        self.seen = seen
        self.epoch: Epoch | None = None
        self._summation: Summation | None = None
        self._adverts: dict[bytes, Advert] = {}
        self._boxes: dict[int, dict[int, Box]] = {}
        self._ready = False

    # -- epoch

    def opening(self) -> Opening:
        """Return the invitation for everyone on the roster."""
        return Opening(self.terms, self.run, self.number, tuple(sorted(self.seen)))

    def add_advert(self, advert: Advert) -> bool:
        """Accept a member's advert, until the list is closed; return whether it is new."""
        known = self._adverts.get(advert.identity)
        if known is not None and known == advert:
            return False
        if self.epoch is not None:
            raise OutOfOrder(
                "The list of this epoch's members is closed; this member can join the next epoch."
            )
        check_advert(advert, self.terms.session, self.run, self.number, self.roster)
        check_kem_key(advert.kem_key)
        if self.terms.members_only:
            check_kem_key(advert.archive_key)
        if known is not None:
            raise Conflict(
                "This member has already advertised another key for this epoch; it advertises one."
            )
        self._adverts[advert.identity] = advert
        return True

    @property
    def advertised(self) -> frozenset[bytes]:
        """The members whose adverts have arrived."""
        return frozenset(self._adverts)

    def close_adverts(self) -> Adverts:
        """Close the list of the epoch's members: those whose adverts have arrived."""
        adverts = Adverts(tuple(self._adverts[key] for key in sorted(self._adverts)))
        if len(adverts.adverts) < self.terms.min_cohort:
            raise TooFewMembers(
                f"{len(adverts.adverts)} members have advertised; at least "
                f"{self.terms.min_cohort} are required."
            )
        if self.epoch is None:
            self.epoch = epoch_from(self.terms, self.run, self.number, self.roster, adverts)
        return adverts

    def add_boxes(self, message: Boxes) -> bool:
        """Accept a member's boxes, one for each other member; each receiver checks its own box.

        Return whether they are new.
        """
        epoch = self._need_epoch(message.epoch_id)
        if message.sender >= epoch.size:
            raise NotAMember(f"Rank {message.sender} is not a member of the epoch.")
        known = self._boxes.get(message.sender)
        boxes = {box.receiver: box for box in message.boxes}
        if self._ready or known == boxes:
            return False
        if [box.receiver for box in message.boxes] != [
            rank for rank in epoch.everyone if rank != message.sender
        ] or any(box.sender != message.sender for box in message.boxes):
            raise MissingBox(
                f"Rank {message.sender} must send exactly one box to each other member, in order."
            )
        if len({box.commitment for box in message.boxes}) != 1:
            raise WrongGroupPart(
                f"Rank {message.sender} must commit to one part of the group key in all its boxes."
            )
        message.check_signed_by(
            epoch.members[message.sender], ForgedMessage, f"Rank {message.sender}"
        )
        if known is not None:
            raise Conflict(f"Rank {message.sender} has already sent other boxes for this epoch.")
        self._boxes[message.sender] = boxes
        return True

    @property
    def missing_boxes(self) -> tuple[int, ...]:
        """The members whose boxes have not arrived; without them the epoch cannot sum."""
        if self.epoch is None:
            raise OutOfOrder("The list of this epoch's members is not closed yet.")
        if self._ready:
            return ()
        return tuple(rank for rank in self.epoch.everyone if rank not in self._boxes)

    def holds_boxes_for(self, rank: int) -> bool:
        """Whether the boxes for a member are still kept: it has not uploaded in this epoch."""
        return any(rank in sent for sent in self._boxes.values())

    def delivery(self, rank: int) -> Delivery:
        """Return the boxes of all other members for one member."""
        if self.missing_boxes:
            raise OutOfOrder(f"The boxes of {len(self.missing_boxes)} members are still missing.")
        epoch = self._need_epoch()
        boxes = tuple(sent[rank] for _, sent in sorted(self._boxes.items()) if rank in sent)
        if len(boxes) != epoch.size - 1:
            raise OutOfOrder(
                f"There are no boxes for rank {rank}: it has opened them already, or is not a "
                "member of the epoch."
            )
        return Delivery(epoch.epoch_id, rank, boxes)

    def restart(self) -> "Coordinator":
        """Return the next epoch of the run, open to everyone on the roster."""
        return Coordinator(
            self.terms,
            run=self.run,
            number=self.number + 1,
            roster=self.roster,
            seen=self.seen | self.advertised,
        )

    # -- sums

    def begin(
        self,
        *,
        statistic: str,
        length: int,
        parameters: bytes = b"",
        state: bytes = UNNAMED,
        encoding: bytes = UNNAMED,
        active: tuple[int, ...] | None = None,
    ) -> Task:
        """Begin the next sum, over `active` members (default: all); the last must be closed.

        state, encoding: the digests of what every member computes and encodes its vector from.
        With blind sums a member writes the task (`begin_drafted`).
        """
        if self.terms.blind:
            raise OutOfOrder("With blind sums a member writes the task; pass its draft.")
        return self._begin(
            slot=self.next_slot,
            statistic=statistic,
            parameters=parameters,
            state=state,
            encoding=encoding,
            length=length,
            active=active,
        )

    @property
    def next_slot(self) -> int:
        """The number of the next sum."""
        return 0 if self._summation is None else self._summation.task.slot + 1

    def author_request(self) -> AuthorRequest:
        """Return the request for the next task, with blind sums; the last sum must be closed."""
        epoch = self._need_epoch()
        proof = b"" if self._summation is None else self._closing_proof(self._summation)
        return AuthorRequest(epoch.epoch_id, self.next_slot, proof)

    def check_draft(self, draft: Draft) -> None:
        """Refuse a draft that is not for the next sum, or not by the member that it names."""
        epoch = self._need_epoch(draft.epoch_id)
        if draft.slot != self.next_slot:
            raise OutOfOrder(f"The draft is for slot {draft.slot}, and {self.next_slot} is next.")
        if draft.rank >= epoch.size:
            raise NotAMember(f"Rank {draft.rank} is not a member of the epoch.")
        draft.check_signed_by(epoch.members[draft.rank], ForgedMessage, f"Rank {draft.rank}")

    def begin_drafted(self, draft: Draft) -> Task:
        """Begin the next sum, over all members, as one of them has written it."""
        self.check_draft(draft)
        return self._begin(
            slot=draft.slot,
            statistic=draft.statistic,
            parameters=draft.parameters,
            state=draft.state,
            encoding=UNNAMED,
            length=draft.length,
            active=None,
            applied=draft.applied,
            authors=(draft.rank,),
            authored=(draft.signature,),
        )

    def _begin(self, *, slot: int, active: tuple[int, ...] | None, **fields: Any) -> Task:
        if self.missing_boxes:
            raise OutOfOrder(f"The boxes of {len(self.missing_boxes)} members are still missing.")
        epoch = self._need_epoch()
        self._ready = True
        proof = b""
        if self._summation is None:
            by_rank = [next(iter(self._boxes[rank].values())) for rank in epoch.everyone]
            commitments = commitments_hash([box.commitment for box in by_rank])
        else:
            commitments = self._summation.commitments
            proof = self._closing_proof(self._summation)
            self._forget_boxes(self._summation.uploaded)
        task = Task(
            epoch_id=epoch.epoch_id,
            slot=slot,
            active=epoch.everyone if active is None else active,
            proof=proof,
            **fields,
        )
        epoch.check_ranks(task.active)
        self._summation = Summation(epoch, task, commitments)
        return task

    @property
    def has_begun(self) -> bool:
        """Whether a sum has begun in this epoch."""
        return self._summation is not None

    @property
    def slot(self) -> Summation:
        """The current sum, or the last one."""
        if self._summation is None:
            raise OutOfOrder("No sum has begun in this epoch yet.")
        return self._summation

    def _forget_boxes(self, ranks: tuple[int, ...]) -> None:
        """Drop the boxes for members who have uploaded, and so must have opened them."""
        for sent in self._boxes.values():
            for rank in ranks:
                sent.pop(rank, None)

    def _closing_proof(self, summation: Summation) -> bytes:
        proof = summation.certificate or summation.abandon_proof
        if proof is None:
            raise OutOfOrder(
                f"Slot {summation.task.slot} is neither certified nor abandoned. If too few "
                "members are left for either, it counts as released and the epoch must be "
                "restarted."
            )
        return proof.encode()

    def _need_epoch(self, epoch_id: bytes | None = None) -> Epoch:
        if self.epoch is None:
            raise OutOfOrder("The list of this epoch's members is not closed yet.")
        if epoch_id is not None and epoch_id != self.epoch.epoch_id:
            raise OutOfOrder("This message belongs to another epoch.")
        return self.epoch

    # -- memory

    def state(self) -> CoordinatorState:
        """Return everything as plain data; possible after any message."""
        return CoordinatorState(
            terms=self.terms,
            run=self.run,
            number=self.number,
            roster=tuple(MemberState(m.name, m.key) for m in self.roster.members),
            seen=tuple(sorted(self.seen)),
            adverts=tuple(self._adverts[key] for key in sorted(self._adverts)),
            closed=self.epoch is not None,
            boxes=tuple(box for sent in self._boxes.values() for box in sent.values()),
            ready=self._ready,
            summations=() if self._summation is None else (self._summation.state(),),
        )

    def save(self) -> bytes:
        """Return everything as bytes."""
        return self.state().encode()

    @classmethod
    def restore(cls, data: bytes) -> "Coordinator":
        """Continue from saved bytes."""
        return cls.restored(CoordinatorState.decode(data))

    @classmethod
    def restored(cls, state: CoordinatorState) -> "Coordinator":
        """Continue from plain data."""
        coordinator = cls(
            state.terms,
            run=state.run,
            number=state.number,
            roster=Roster(tuple(Member(m.name, m.key) for m in state.roster)),
            seen=frozenset(state.seen),
        )
        coordinator._adverts = {advert.identity: advert for advert in state.adverts}
        if state.closed:
            coordinator.close_adverts()
        for box in state.boxes:
            coordinator._boxes.setdefault(box.sender, {})[box.receiver] = box
        coordinator._ready = state.ready
        for saved in state.summations:
            coordinator._summation = Summation.restored(coordinator._need_epoch(), saved)
        return coordinator

"""The coordinator's half of an epoch: collect adverts, carry boxes, number the slots.

It routes and adds; it holds no secret and is believed nothing. All of its memory is plain data:
`save` after any message, `restore` and go on. An epoch that lost a member before it could sum is
restarted with a new number and new keys (`restart`).
"""

from dataclasses import dataclass
from typing import Annotated

from privacy.framing import Label, digest
from privacy.identity import MAX_MEMBERS, Member, Roster
from privacy.securesum.epoch import Epoch, check_advert, epoch_from
from privacy.securesum.errors import (
    Conflict,
    ForgedMessage,
    MissingBox,
    NotAMember,
    OutOfOrder,
    TooFewPinned,
)
from privacy.securesum.messages import Advert, Adverts, Box, Boxes, Delivery, Opening, Task
from privacy.securesum.sealing import check_kem_key
from privacy.securesum.summation import Summation, SummationState
from privacy.securesum.terms import Terms
from privacy.securesum.wire import Counter, Flag, Key, Keys, Many, Message, One, Text, Uuid


@dataclass(frozen=True)
class MemberState(Message):
    """A line of the roster as it is saved."""

    kind = 113

    name: Annotated[str, Text(200)]
    key: Key


@dataclass(frozen=True)
class CoordinatorState(Message):
    """An epoch at the coordinator as it is saved."""

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
    """One epoch of a run, and the sum that is under way in it."""

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
        """Invite everyone on the roster."""
        return Opening(self.terms, self.run, self.number, tuple(sorted(self.seen)))

    def add_advert(self, advert: Advert) -> bool:
        """Take a member's advert, until the list is closed; say whether it is new."""
        known = self._adverts.get(advert.identity)
        if known is not None and known == advert:
            return False
        if self.epoch is not None:
            raise OutOfOrder("The members of this epoch are settled; the next one is open to all.")
        check_advert(advert, self.terms.session, self.run, self.number, self.roster)
        check_kem_key(advert.kem_key)
        if known is not None:
            raise Conflict("This member has advertised another key for this epoch.")
        self._adverts[advert.identity] = advert
        return True

    @property
    def advertised(self) -> frozenset[bytes]:
        """Who is there."""
        return frozenset(self._adverts)

    def close_adverts(self) -> Adverts:
        """Settle the members of the epoch: those who are there."""
        adverts = Adverts(tuple(self._adverts[key] for key in sorted(self._adverts)))
        if len(adverts.adverts) < self.terms.min_cohort:
            raise TooFewPinned(
                f"{len(adverts.adverts)} members are there; the least is {self.terms.min_cohort}."
            )
        if self.epoch is None:
            self.epoch = epoch_from(self.terms, self.run, self.number, self.roster, adverts)
        return adverts

    def add_boxes(self, message: Boxes) -> bool:
        """Take a member's boxes, one for each other member, who will check its own."""
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
            raise MissingBox(f"Rank {message.sender} has not sealed one box to each other member.")
        message.check_signed_by(
            epoch.members[message.sender], ForgedMessage, f"Rank {message.sender}"
        )
        if known is not None:
            raise Conflict(f"Rank {message.sender} has sent other boxes for this epoch.")
        self._boxes[message.sender] = boxes
        return True

    @property
    def missing_boxes(self) -> tuple[int, ...]:
        """Members whose boxes are not here; without them the epoch cannot sum."""
        if self.epoch is None:
            raise OutOfOrder("The members of this epoch are not settled yet.")
        if self._ready:
            return ()
        return tuple(rank for rank in self.epoch.everyone if rank not in self._boxes)

    def holds_boxes_for(self, rank: int) -> bool:
        """Whether a member's boxes are still here: it has not uploaded in this epoch."""
        return any(rank in sent for sent in self._boxes.values())

    def delivery(self, rank: int) -> Delivery:
        """All others' boxes to one member."""
        if self.missing_boxes:
            raise OutOfOrder(f"Boxes of {len(self.missing_boxes)} members are missing.")
        epoch = self._need_epoch()
        boxes = tuple(sent[rank] for _, sent in sorted(self._boxes.items()) if rank in sent)
        if len(boxes) != epoch.size - 1:
            raise OutOfOrder(f"Rank {rank} has opened its boxes, or is not a member.")
        return Delivery(epoch.epoch_id, rank, boxes)

    def restart(self) -> "Coordinator":
        """Open the next epoch of the run, with whoever is there then."""
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
        broadcast: bytes,
        parameters: bytes = b"",
        encoding: bytes = b"",
        noise: bytes = b"",
        active: tuple[int, ...] | None = None,
    ) -> Task:
        """Begin the next sum, over `active` members (by default all), after the last is closed."""
        if self.missing_boxes:
            raise OutOfOrder(f"Boxes of {len(self.missing_boxes)} members are missing.")
        epoch = self._need_epoch()
        self._ready = True
        slot, proof = 0, b""
        if self._summation is not None:
            slot = self._summation.task.slot + 1
            proof = self._closing_proof(self._summation)
            self._forget_boxes(self._summation.uploaded)
        task = Task(
            epoch_id=epoch.epoch_id,
            slot=slot,
            statistic=statistic,
            parameters=parameters,
            encoding=encoding,
            noise=noise,
            length=length,
            active=epoch.everyone if active is None else active,
            broadcast=digest(Label.BROADCAST, broadcast),
            proof=proof,
        )
        epoch.check_ranks(task.active)
        self._summation = Summation(epoch, task)
        return task

    @property
    def has_begun(self) -> bool:
        """Whether a sum has begun in this epoch."""
        return self._summation is not None

    @property
    def slot(self) -> Summation:
        """The sum under way, or the last one."""
        if self._summation is None:
            raise OutOfOrder("No sum has begun.")
        return self._summation

    def _forget_boxes(self, ranks: tuple[int, ...]) -> None:
        """Drop the boxes of those who have uploaded, and so must have opened theirs."""
        for sent in self._boxes.values():
            for rank in ranks:
                sent.pop(rank, None)

    def _closing_proof(self, summation: Summation) -> bytes:
        proof = summation.certificate or summation.abandon_proof
        if proof is None:
            raise OutOfOrder(
                f"Slot {summation.task.slot} is neither certified nor abandoned. If too few are "
                "left for either, it counts as released and the epoch ends: restart."
            )
        return proof.encode()

    def _need_epoch(self, epoch_id: bytes | None = None) -> Epoch:
        if self.epoch is None:
            raise OutOfOrder("The members of this epoch are not settled yet.")
        if epoch_id is not None and epoch_id != self.epoch.epoch_id:
            raise OutOfOrder("This message belongs to another epoch.")
        return self.epoch

    # -- memory

    def state(self) -> CoordinatorState:
        """Give everything as plain data, after any message."""
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
        """Give everything as bytes."""
        return self.state().encode()

    @classmethod
    def restore(cls, data: bytes) -> "Coordinator":
        """Go on from saved bytes."""
        return cls.restored(CoordinatorState.decode(data))

    @classmethod
    def restored(cls, state: CoordinatorState) -> "Coordinator":
        """Go on from plain data."""
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

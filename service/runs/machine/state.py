"""The state of a run: plan, epoch, position, the members it waits for, and its timeouts.

`Run` changes it (`service.runs.machine.run`); all others only read it. The timeouts are times in
seconds, ∞ if time alone changes nothing:

    gathered   an epoch opens
    restart    an epoch is abandoned before its first sum
    settled    the survivors of a sum are fixed
    repair     shares of a silent survivor's key are requested
    lost       a sum is abandoned, with differential privacy

Without differential privacy only restart and repair depend on time.
"""

import math
from collections.abc import Iterable

from kernels.rounds.position import Position
from privacy.identity import Member, Roster
from privacy.ledger import Ledger
from privacy.securesum.coordinator import Coordinator
from privacy.securesum.summation import Summation
from service.runs.machine import attendance as attending
from service.runs.machine.attendance import Attendance
from service.runs.machine.closed_sum import ClosedSum
from service.runs.machine.plan import Ending, Plan, Status
from service.runs.machine.spending import Spending


class RunState:
    """The current state of one run."""

    def __init__(
        self,
        plan: Plan,
        epoch: Coordinator,
        position: Position,
        *,
        since: float,
        last: ClosedSum | None = None,
        repairing: bool = False,
        attendance: Attendance | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.plan = plan
        self.epoch = epoch
        self.position = position
        self.since = since
        """When the current wait began."""
        self.last = last
        """The sum whose total led to the present position."""
        self.repairing = repairing
        self.attendance = attendance or Attendance()
        self.spending = (
            None
            if ledger is None
            else Spending(ledger, plan.id, plan.program, epoch.terms, position.stage)
        )
        """The spending of the session's budget; None without differential privacy."""
        self.ending: Ending | None = None

    @property
    def sums(self) -> int:
        """The number of sums so far whose totals were used."""
        return self.position.sum_index

    @property
    def roster(self) -> Roster:
        """The members of the run, fixed when it started."""
        return self.epoch.roster

    @property
    def is_private(self) -> bool:
        """Whether the session has differential privacy, so that noise hides who is in a sum."""
        return self.epoch.terms.differential_privacy

    @property
    def ledger(self) -> Ledger | None:
        """The session's ledger, as this run has charged it; None without differential privacy."""
        return None if self.spending is None else self.spending.ledger

    @property
    def status(self) -> Status:
        """The status of the run."""
        if self.ending is not None:
            return self.ending.status
        return Status.WAITING if self.epoch.epoch is None else Status.RUNNING

    @property
    def slot(self) -> Summation | None:
        """The current sum, if any."""
        return self.epoch.slot if self.epoch.has_begun else None

    @property
    def phase(self) -> tuple[object, ...]:
        """What members' next items depend on besides their own answers; a change wakes them."""
        slot, settled = self.slot, self.epoch.epoch is not None
        return (
            self.status,
            self.epoch.number,
            settled and not self.epoch.missing_boxes,
            None if slot is None else slot.task.slot,
            slot is not None and self.is_private and self.has_witnesses(slot),
            slot is not None and slot.proposal is not None,
            slot is not None and slot.certificate is not None,
            slot is not None and slot.abandoning,
            slot is not None and slot.abandon_proof is not None,
            self.repairing,
        )

    @property
    def work_due(self) -> bool:
        """Whether the coordinator has to compute; members' messages have no effect until it has."""
        if self.ending is not None or self.epoch.epoch is None or self.epoch.missing_boxes:
            return False
        return self.slot is None or self.slot.has_all_keys

    def has_witnesses(self, slot: Summation) -> bool:
        """Whether a member that could not replay may take the word of those that have uploaded."""
        return len(slot.uploaded) > self.epoch.terms.max_colluders

    def named(self, keys: Iterable[bytes]) -> tuple[Member, ...]:
        """Return the members with these keys, in the roster's order."""
        wanted = frozenset(keys)
        return tuple(member for member in self.roster.members if member.key in wanted)

    def returns(self, key: bytes) -> bool:
        """Whether a member that requests its next item was left out and joins the next sum."""
        slot = self.slot
        return (
            self.ending is None
            and self.is_private
            and slot is not None
            and self.attendance.is_left_out(slot, key)
        )

    # -- whom it waits for, and how long

    @property
    def awaited(self) -> tuple[Member, ...]:
        """The members whose answers the run waits for."""
        if self.ending is not None or self.work_due:
            return ()
        epoch, slot = self.epoch.epoch, self.slot
        if epoch is None:
            return self.named(self.attendance.expected(self.epoch) - self.epoch.advertised)
        if slot is None:
            ranks: Iterable[int] = self.epoch.missing_boxes
        elif slot.abandoning:
            ranks = set(epoch.everyone) - slot.abandoned_by
        elif slot.proposal is None:
            ranks = self.attendance.missing(slot)
        elif slot.certificate is None:
            ranks = set(slot.proposal.survivors) - slot.certified_by
        else:
            ranks = slot.silent
        return self.named(epoch.members[rank] for rank in ranks)

    @property
    def due_at(self) -> float:
        """When the next timeout gives `Run.advance` something to do."""
        return min(
            self.plan.deadline_at,
            self.gathered_at,
            self.restart_at,
            self.settled_at,
            self.repair_at,
            self.lost_at,
        )

    @property
    def gathered_at(self) -> float:
        """When an epoch opens: at once with all; with differential privacy, later with enough."""
        if self.ending is not None or self.epoch.epoch is not None:
            return math.inf
        if self.epoch.advertised >= self.attendance.expected(self.epoch):
            return self.since
        few = self.is_private and self.attendance.can_open(self.epoch)
        return self.since + self.plan.gather_s if few else math.inf

    @property
    def restart_at(self) -> float:
        """When an epoch is abandoned because boxes are missing or members refuse."""
        epoch, refused = self.epoch.epoch, self.attendance.refused
        if epoch is None:
            return self.since if refused & self.epoch.advertised else math.inf
        missing = {epoch.members[rank] for rank in self.epoch.missing_boxes}
        if missing & refused:
            return self.since
        plan = self.plan
        patience = plan.leave_out_after_s if self.is_private else plan.restart_after_s
        moment = self.since + patience
        in_time = moment + patience <= plan.deadline_at
        return moment if missing and in_time else math.inf

    @property
    def settled_at(self) -> float:
        """When the survivors of a sum are fixed: at once with all vectors, or later with enough."""
        slot = self.slot
        if slot is None or slot.proposal is not None or slot.abandoning:
            return math.inf
        if not slot.dropped:
            return self.since
        if not self.is_private or not attending.enough(slot):
            return math.inf
        waiting = bool(self.attendance.missing(slot))
        return self.since + self.plan.leave_out_after_s if waiting else self.since

    @property
    def repair_at(self) -> float:
        """When a survivor has been silent for too long; shares cannot replace its pair keys."""
        slot = self.slot
        certified = slot is not None and slot.certificate is not None and not slot.has_all_keys
        if slot is None or not certified or self.repairing or slot.dropped:
            return math.inf
        return self.since + self.plan.repair_after_s

    @property
    def lost_at(self) -> float:
        """When a sum is abandoned, with differential privacy, if there is time to repeat it.

        Too few uploads are no reason: members can come back, and a repetition costs as much again.
        A sum is not abandoned either if the budget does not allow its repetition: it may still be
        finished.
        """
        slot = self.slot
        if slot is None or not self.is_private or slot.has_all_keys:
            return math.inf
        if slot.proposal is None:
            return math.inf if attending.is_possible(self.attendance, slot) else self.since
        moment = self.since + self.plan.restart_after_s
        in_time = moment + self.plan.restart_after_s <= self.plan.deadline_at
        affordable = in_time and self.spending is not None and self.spending.can_repeat
        return moment if affordable else math.inf

"""The state of a run: plan, epoch, position, the members it waits for, and its timeouts.

`Run` changes it (`service.runs.machine.run`); all others only read it. The timeouts are times in
seconds, ∞ if time alone changes nothing:

    gathered   an epoch opens
    restart    an epoch is abandoned before its first sum
    settled    the survivors of a sum are fixed
    repair     shares of a silent survivor's key are requested
    lost       a sum is abandoned, with differential privacy
    asked      another member is asked for a task or for the model, with blind sums
    endorsed   a model's certificate is made without members that stay silent

Without differential privacy only restart, repair, asked and endorsed depend on time.

With blind sums (`service.runs.machine.authors`) the coordinator has no position: members do.
"""

import math
from collections.abc import Iterable
from functools import cached_property

from kernels.model.artifact import published
from kernels.rounds.position import Position
from kernels.storage import encode
from privacy.identity import Member, Roster
from privacy.ledger import Ledger
from privacy.securesum.coordinator import Coordinator
from privacy.securesum.messages import Certificate
from privacy.securesum.summation import Summation
from service.runs.machine import attendance as attending
from service.runs.machine.attendance import Attendance
from service.runs.machine.authors import Authoring, ranks_asked
from service.runs.machine.closed_sum import ClosedSum
from service.runs.machine.endorsements import Endorsements
from service.runs.machine.plan import Ending, Plan, Status
from service.runs.machine.spending import Spending


class RunState:
    """The current state of one run."""

    def __init__(
        self,
        plan: Plan,
        epoch: Coordinator,
        position: Position | None,
        *,
        stage: int,
        sums: int,
        since: float,
        last: ClosedSum | None = None,
        repairing: bool = False,
        attendance: Attendance | None = None,
        ledger: Ledger | None = None,
        authoring: Authoring | None = None,
        endorsements: Endorsements | None = None,
        verdict: bytes | None = None,
    ) -> None:
        self.plan = plan
        self.epoch = epoch
        self.position = position
        """What the totals so far lead to; None with blind sums, where only members know."""
        self.stage = stage
        self.sums = sums
        """The number of sums so far whose totals were used."""
        self.since = since
        """When the current wait began."""
        self.last = last
        """The sum whose total led to the present position."""
        self.repairing = repairing
        self.attendance = attendance or Attendance()
        self.spending = (
            None if ledger is None else Spending(ledger, plan.id, plan.program, epoch.terms, stage)
        )
        """The spending of the session's budget; None without differential privacy."""
        self.authoring = authoring or Authoring()
        self.endorsements = endorsements or Endorsements()
        self.verdict = verdict
        """The finished model's certificate, encoded; empty if it stays without; None before."""
        self.ending: Ending | None = None

    @property
    def roster(self) -> Roster:
        """The members of the run, fixed when it started."""
        return self.epoch.roster

    @property
    def is_private(self) -> bool:
        """Whether the session has differential privacy, so that noise hides who is in a sum."""
        return self.epoch.terms.differential_privacy

    @property
    def is_blind(self) -> bool:
        """Whether members write the tasks and the coordinator cannot read totals."""
        return self.epoch.terms.blind

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
            slot is not None and (self.is_private or self.is_blind) and self.has_witnesses(slot),
            slot is not None and slot.proposal is not None,
            slot is not None and slot.certificate is not None,
            slot is not None and slot.abandoning,
            slot is not None and slot.abandon_proof is not None,
            self.repairing,
            self.sum_closed,
            self.is_endorsing,
            self.verdict is not None,
            self.authoring.asked,
            bool(self.authoring.wanted),
            self.authoring.sealed is not None,
        )

    @property
    def work_due(self) -> bool:
        """Whether the coordinator has to compute; members' messages have no effect until it has."""
        if not self._is_ready:
            return False
        slot = self.slot
        if self.is_blind:
            return slot is not None and slot.has_all_keys and not self.sum_closed
        if self.is_finished:
            return self.verdict is not None
        return slot is None or slot.has_all_keys

    @property
    def _is_ready(self) -> bool:
        """Whether the epoch of an open run can sum."""
        return self.ending is None and self.epoch.epoch is not None and not self.epoch.missing_boxes

    @property
    def is_finished(self) -> bool:
        """Whether the coordinator of open sums has computed the finished model."""
        return self.position is not None and self.position.finished

    # -- blind sums, and the finished model

    @property
    def sum_closed(self) -> bool:
        """Whether the current sum, if any, needs nothing more: its total is there, or none is."""
        slot, last = self.slot, self.last
        if slot is None:
            return False
        if slot.abandon_proof is not None:
            return True
        here = self.epoch.number, slot.task.slot
        return last is not None and (last.epoch, last.slot) == here

    @property
    def awaits_author(self) -> bool:
        """Whether a member is to write the next task of blind sums, or to endorse the model."""
        between = self.slot is None or self.sum_closed
        return self.is_blind and self._is_ready and between and self.verdict is None

    @property
    def is_endorsing(self) -> bool:
        """Whether members are requested to endorse the finished model."""
        if not self._is_ready or self.verdict is not None:
            return False
        return (self.awaits_author and len(self.endorsements) > 0) or (
            self.is_finished and not self.is_blind
        )

    @property
    def awaits_model(self) -> bool:
        """Whether a member is to hand over the model of blind sums, which has its certificate."""
        return self.is_blind and self._is_ready and bool(self.verdict)

    @property
    def asked(self) -> tuple[int, ...]:
        """The ranks that are asked for the next task of blind sums, or for the model."""
        epoch, slot = self.epoch.epoch, self.slot
        if epoch is None:
            return ()
        first = 0
        if slot is not None and not self.awaits_model:
            lied = slot.abandon_proof is not None
            first = sum(slot.task.authors) + lied
        return ranks_asked(first, epoch.size, self.authoring.asked)

    @property
    def endorsers(self) -> tuple[int, ...]:
        """The ranks that are requested to endorse: those that were in the last sum."""
        return () if self.last is None else self.last_certificate.survivors

    @property
    def last_certificate(self) -> Certificate:
        """The certificate of the newest closed sum."""
        if self.last is None:
            raise RuntimeError("no sum has been closed")
        return Certificate.decode(self.last.certificate)

    @cached_property
    def section(self) -> bytes:
        """The finished model's bytes, with open sums."""
        if self.position is None:
            raise RuntimeError("with blind sums only members have the model")
        return encode(published(self.position.state.model))

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
        ranks: Iterable[int]
        if self.epoch.missing_boxes:
            ranks = self.epoch.missing_boxes
        elif self.is_endorsing:
            ranks = set(self.endorsers) - self.endorsements.by_rank.keys()
        elif self.awaits_author or self.awaits_model:
            ranks = self.asked
        elif slot is None:
            ranks = ()
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
            self.asked_at,
            self.endorsed_at,
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

    @property
    def asked_at(self) -> float:
        """When another member is asked, or an author that keeps its state to itself is given up."""
        epoch, after = self.epoch.epoch, self.plan.author_after_s
        if epoch is None or not self.is_blind:
            return math.inf
        if self.is_endorsing:
            return math.inf
        if self.awaits_author or self.awaits_model:
            more = self.authoring.asked < epoch.size
            return self.since + self.authoring.asked * after if more else math.inf
        slot, wanted = self.slot, self.authoring.wanted
        waiting = slot is not None and slot.proposal is None and not slot.abandoning
        if not waiting or not wanted or self.authoring.sealed is not None:
            return math.inf
        return min(wanted.values()) + after

    @property
    def endorsed_at(self) -> float:
        """When a model's certificate is made without those that stay silent, or given up."""
        epoch = self.epoch.epoch
        if epoch is None or not self.is_endorsing:
            return math.inf
        if len(self.endorsements.agreed()) >= epoch.quorum:
            return self.since + self.plan.repair_after_s
        if self.is_blind:  # without a certificate there is no model
            return math.inf
        patience = self.plan.leave_out_after_s if self.is_private else self.plan.restart_after_s
        return min(self.since + patience, self.plan.deadline_at)

"""A run of a program by its members, as a state machine without I/O.

    waiting   adverts of the cohort → epoch closed
    running   boxes of all → (a sum: vectors → proposal → certificate → keys → total → update)*
    ended     done with a model · failed with a code · cancelled

`take` accepts a member's message, `advance` does the next steps that need no computation, and
`prepare` is the slow part: remove the masks, update the state, plan the next sum. It changes
nothing that others read, so it can run while members are answered; `settle` applies its result.
A member's next item is a function of the state (`service.runs.machine.items`).

Without differential privacy a run waits for all members of its roster until its deadline. With it a
run continues with the members that are present (`service.runs.machine.attendance`). A sum that
cannot be finished, because too few members are left to certify it or a survivor does not send its
keys, is lost: it counts as released, and is repeated in a new epoch with new noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kernels.errors import KernelsError
from kernels.model.artifact import Artifact
from kernels.model.card_sections import Privacy
from kernels.rounds import position as positions
from kernels.rounds.position import Metrics, Position
from privacy.accounting.events import MECHANISM
from privacy.errors import BudgetExceeded, LayoutError, PrivacyError
from privacy.ledger import Entry
from privacy.securesum.errors import AboutMembers, NotAMember, OutOfOrder
from privacy.securesum.messages import (
    Abandonment,
    Advert,
    Boxes,
    Certification,
    Repair,
    Reveal,
    Upload,
)
from privacy.securesum.summation import Summation
from service.runs.machine import stages
from service.runs.machine.changes import (
    Began,
    Change,
    Closed,
    Ended,
    Proposed,
    Refused,
    RepairRequested,
    Restarted,
    Returned,
)
from service.runs.machine.closed_sum import ClosedSum
from service.runs.machine.plan import Ending, Status
from service.runs.machine.stages import SumPlan
from service.runs.machine.state import RunState

MemberMessage = Advert | Boxes | Certification | Reveal | Repair | Abandonment
"""The messages of members, except their vectors."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """The position after the last sum, and the next sum; or, at the end, the finished model."""

    position: Position
    metrics: tuple[Metrics, ...]
    last: ClosedSum | None = None
    sum: SumPlan | None = None
    artifact: Artifact | None = None


class Run(RunState):
    """One run, with the methods that change it."""

    # -- what members say

    def take(self, speaker: bytes, message: MemberMessage, now: float) -> bool:
        """Accept a member's message or raise an error; return whether the message is new."""
        self._check_speaker(speaker, message)
        if isinstance(message, Advert):
            return self.epoch.add_advert(message)
        if isinstance(message, Boxes):
            return self.epoch.add_boxes(message)
        slot = self.epoch.slot
        if slot.has_all_keys:  # late messages are not needed
            return False
        match message:
            case Certification():
                taken = slot.add_certification(message)
                if taken and slot.certificate is not None:
                    self.since = now
                return taken
            case Reveal():
                return slot.add_reveal(message)
            case Repair():
                return slot.add_repair(message)
            case Abandonment():
                return slot.add_abandonment(message)

    def expects(self, speaker: bytes, header: Upload) -> Summation | None:
        """Return the sum that a vector belongs to, None if it was already added, or refuse it."""
        self._check_speaker(speaker, header)
        slot = self.epoch.slot
        return slot if slot.check_header(header) else None

    def _check_speaker(self, speaker: bytes, message: MemberMessage | Upload) -> None:
        if isinstance(message, Advert):
            said_by = message.identity
        else:
            if self.epoch.epoch is None or message.epoch_id != self.epoch.epoch.epoch_id:
                raise OutOfOrder(
                    "The message does not belong to the current epoch; request the next item."
                )
            rank = message.sender if isinstance(message, Boxes) else message.rank
            members = self.epoch.epoch.members
            said_by = members[rank] if rank < len(members) else b""
        if said_by != speaker:
            raise NotAMember(
                "The message names another member as its sender than the one that signed the "
                "request; send only your own messages."
            )

    # -- what follows

    def advance(self, now: float) -> Sequence[Change]:
        """Do all steps that need no computation; return the changes in order."""
        if self.ending is not None:
            return ()
        if now >= self.plan.deadline_at:
            return (self.fail("run.deadline", self._overdue()),)
        changes = []
        while (change := self._step(now)) is not None:
            changes.append(change)
        return changes

    def _step(self, now: float) -> Change | None:
        if now >= min(self.restart_at, self.lost_at):
            return self._restart(now)
        if self.epoch.epoch is None:
            if now < self.gathered_at:
                return None
            self.epoch.close_adverts()
            self.since = now
            return Closed()
        slot = self.slot
        if slot is None:
            return None
        if slot.proposal is None:
            if now < self.settled_at:
                return None
            slot.propose()
            self.since = now
            return Proposed()
        if now < self.repair_at:
            return None
        self.repairing = True
        return RepairRequested()

    def _restart(self, now: float) -> Restarted:
        """Start a new epoch; the current sum, if any, counts as released."""
        self.epoch, self.since, self.repairing = self.epoch.restart(), now, False
        self.attendance = self.attendance.afresh()
        return Restarted()

    def prepare(self, now: float) -> Prepared:
        """Compute the next step (slow); errors are those of the sum or of the algorithm."""
        position, epoch = self.position, self.epoch.epoch
        if epoch is None or not self.work_due:
            raise OutOfOrder("The run still waits for its members.")
        metrics: tuple[Metrics, ...] = ()
        last = self.last
        if self.slot is not None:
            encoding = stages.encoding_of(
                position, members=epoch.size, honest=self.epoch.terms.honest
            )
            position, metrics = positions.after(position, self.slot.total(encoding))
            last = ClosedSum.of(self.slot)
        if position.finished:
            artifact = self._artifact(position, epoch.size, now)
            return Prepared(position, metrics, last, artifact=artifact)
        plan = self.plan
        following = stages.sum_plan(
            position,
            program=plan.digest,
            run_kind=plan.kind,
            parent=plan.base_model,
            members=epoch.size,
            honest=self.epoch.terms.honest,
        )
        if following.length > plan.max_vector:
            raise LayoutError(
                f"The next sum, {following.statistic}, has {following.length} numbers, but this "
                f"coordinator accepts at most {plan.max_vector}: raise its setting max_vector, or "
                "use a kernel with fewer features."
            )
        return Prepared(position, metrics, last, sum=following)

    def _artifact(self, position: Position, members: int, now: float) -> Artifact:
        terms, ledger = self.epoch.terms, self.ledger
        return Artifact.of(
            position.state.model,
            program=self.plan.program,
            members=members,
            sums=position.sum_index,
            privacy=Privacy.of(
                self.plan.program.schema,
                min_cohort=terms.min_cohort,
                max_colluders=terms.max_colluders,
                epsilon=None if ledger is None else ledger.spent.epsilon,
                delta=None if ledger is None else ledger.budget.delta,
                mechanism=None if ledger is None else MECHANISM,
                releases=None if ledger is None else len(ledger.entries),
            ),
            created=datetime.fromtimestamp(now, UTC),
            parent=self.plan.base_model,
        )

    def settle(self, prepared: Prepared, now: float) -> Began | Restarted | Ended:
        """Apply what `prepare` has computed from this run: start the next sum, or end the run.

        If too few members of the epoch are left, a new epoch starts instead. With differential
        privacy the sum is charged here, before any member receives its task; if the budget does
        not allow it together with the rest of the run, the run ends.
        """
        epoch, last = self.epoch.epoch, self.slot
        if epoch is None:
            raise OutOfOrder("The run still waits for its members.")
        self.position, self.since, self.repairing = prepared.position, now, False
        self.last = prepared.last
        if prepared.sum is None:
            self.ending = Ending(Status.DONE)
            return Ended()
        if not self.attendance.can_sum(epoch):
            return self._restart(now)
        try:
            self._charge(prepared.sum, now)
        except BudgetExceeded as error:
            return self.fail_by(error)
        active = self.attendance.active(epoch, last) if self.is_private else epoch.everyone
        self.attendance = self.attendance.afresh()
        self.epoch.begin(
            statistic=prepared.sum.statistic,
            length=prepared.sum.length,
            parameters=prepared.sum.parameters,
            state=prepared.sum.state,
            encoding=prepared.sum.encoding,
            active=active,
        )
        return Began()

    def _charge(self, sum_plan: SumPlan, now: float) -> None:
        if self.spending is None or sum_plan.release is None:
            if self.is_private:
                raise OutOfOrder(
                    "A sum of a session with differential privacy must have noise and be charged."
                )
            return
        plan, slot = self.plan, 0 if self.slot is None else self.slot.task.slot + 1
        entry = Entry(now, plan.session_id, plan.id, self.epoch.number, slot, sum_plan.release)
        self.spending = self.spending.charged(entry, stage=self.position.stage)

    # -- other ends

    def fail(self, code: str, detail: str) -> Ended:
        """End the run as failed, with a code and a reason."""
        self.ending = Ending(Status.FAILED, code, detail)
        return Ended()

    def fail_by(self, error: KernelsError | PrivacyError) -> Ended:
        """End the run because of an error of the sum or the algorithm, naming the members."""
        return self.fail(error.code, self._with_names(error))

    def refused_by(self, key: bytes, code: str, detail: str) -> Refused | Ended:
        """Continue without a member that refuses, or end the run if too few members are left."""
        if key not in self.roster.keys:
            raise NotAMember("Only members of the run's roster can refuse it.")
        (member,) = self.named([key])
        self.attendance = self.attendance.with_refusal(key)
        left = len(self.attendance.expected(self.epoch))
        if self.is_private and left >= self.epoch.terms.min_cohort:
            return Refused(key)
        return self.fail("run.member_refused", f"{member.name} refused ({code}): {detail}")

    def note_return(self, key: bytes) -> Returned:
        """Include a member that was left out in the next sum."""
        self.attendance = self.attendance.with_return(key)
        return Returned(key)

    def cancel(self) -> Ended:
        """End the run because the admin cancels it."""
        self.ending = Ending(Status.CANCELLED, "run.cancelled", "The admin cancelled the run.")
        return Ended()

    def _overdue(self) -> str:
        names = ", ".join(member.name for member in self.awaited)
        waited = f"while waiting for: {names}" if names else "while the coordinator was computing"
        return (
            f"The deadline passed after {self.sums} sums, {waited}. Start the run again when all "
            "members are present, or with a longer deadline."
        )

    def _with_names(self, error: KernelsError | PrivacyError) -> str:
        """Return an error's message with the names of the members whose ranks it mentions."""
        epoch = self.epoch.epoch
        if epoch is None or not isinstance(error, AboutMembers):
            return str(error)
        names = {member.key: member.name for member in self.roster.members}
        known = [f"rank {rank} is {names[epoch.members[rank]]}" for rank in error.ranks]
        return f"{error} ({', '.join(known)}.)"

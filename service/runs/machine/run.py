"""A run of a program over its members, as a machine without I/O: messages and time in, changes out.

    waiting   adverts of the cohort → epoch closed
    running   boxes of all → (a sum: vectors → proposal → certificate → keys → total → update)*
    ended     done with a model · failed with a code · cancelled

`take` accepts what a member says, `advance` does what can be done next without computing, and
`prepare` is the slow part: remove the masks, update the state, lay out the next sum. It changes
nothing that others read, so that it can run while members are answered; `settle` takes its result.
What a member has to do next is a function of all this (`service.runs.machine.items`).

Without differential privacy a run waits for everyone on its roster, and its deadline ends it. With
it a run goes on with those that are there (`service.runs.machine.attendance`). A sum that cannot be
finished, because too few are left to certify it or a survivor keeps its keys, is lost: it counts as
released, and is asked for again in a new epoch, with fresh noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kernels.errors import KernelsError
from kernels.model.artifact import Artifact
from kernels.model.card_sections import Privacy
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
from service.runs.machine.plan import Ending, Status
from service.runs.machine.stages import Broadcast, Metrics, Position, SumPlan
from service.runs.machine.state import RunState

MemberMessage = Advert | Boxes | Certification | Reveal | Repair | Abandonment
"""What members say, apart from their vectors."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """The position after the last sum, and the next sum; or, at the end, the finished model."""

    position: Position
    metrics: tuple[Metrics, ...]
    sum: SumPlan | None = None
    artifact: Artifact | None = None


class Run(RunState):
    """One run, and all that can change it."""

    # -- what members say

    def take(self, speaker: bytes, message: MemberMessage, now: float) -> bool:
        """Accept what a member says, or refuse it by an error; say whether it is new."""
        self._check_speaker(speaker, message)
        if isinstance(message, Advert):
            return self.epoch.add_advert(message)
        if isinstance(message, Boxes):
            return self.epoch.add_boxes(message)
        slot = self.epoch.slot
        if slot.has_all_keys:  # what comes late is not needed
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
        """Give the sum that a vector is to be added to, None if it is there; or refuse it."""
        self._check_speaker(speaker, header)
        slot = self.epoch.slot
        return slot if slot.check_header(header) else None

    def _check_speaker(self, speaker: bytes, message: MemberMessage | Upload) -> None:
        if isinstance(message, Advert):
            said_by = message.identity
        else:
            if self.epoch.epoch is None or message.epoch_id != self.epoch.epoch.epoch_id:
                raise OutOfOrder("This message belongs to another epoch than the one that is open.")
            rank = message.sender if isinstance(message, Boxes) else message.rank
            members = self.epoch.epoch.members
            said_by = members[rank] if rank < len(members) else b""
        if said_by != speaker:
            raise NotAMember("A member speaks for itself: this message is another's.")

    # -- what follows

    def advance(self, now: float) -> Sequence[Change]:
        """Do all that can be done without computing; give what has changed, in order."""
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
        """Begin a new epoch; a sum that was under way counts as released."""
        self.epoch, self.since, self.repairing = self.epoch.restart(), now, False
        self.broadcast, self.attendance = Broadcast(), self.attendance.afresh()
        return Restarted()

    def prepare(self, now: float) -> Prepared:
        """Compute what comes next; slow. Its errors are those of the sum or of the algorithm."""
        position, epoch = self.position, self.epoch.epoch
        if epoch is None or not self.work_due:
            raise OutOfOrder("The run waits for its members.")
        metrics: tuple[Metrics, ...] = ()
        if self.slot is not None:
            position, metrics = stages.after(position, self.slot.total())
        if position.finished:
            return Prepared(position, metrics, artifact=self._artifact(position, epoch.size, now))
        plan = self.plan
        following = stages.sum_plan(
            position,
            program=plan.digest,
            run_kind=plan.kind,
            seed=plan.seed,
            members=epoch.size,
            honest=self.epoch.terms.honest,
        )
        if following.length > plan.max_vector:
            raise LayoutError(
                f"The next sum, {following.statistic}, has {following.length} numbers, and this "
                f"coordinator takes {plan.max_vector}: raise its max_vector, or train a kernel "
                "with fewer features."
            )
        return Prepared(position, metrics, sum=following)

    def _artifact(self, position: Position, members: int, now: float) -> Artifact:
        terms, ledger = self.epoch.terms, self.ledger
        return Artifact.of(
            position.state.model,
            program=self.plan.program,
            members=members,
            sums=self.sums + (self.slot is not None),
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
        """Take what `prepare` has computed from this very run: the next sum begins, or all ends.

        Where too few of the epoch are left for it, a new epoch begins. With differential privacy a
        sum is charged here, before anyone hears of it; one that the budget does not allow, with the
        rest of the run, ends it.
        """
        epoch, last = self.epoch.epoch, self.slot
        if epoch is None:
            raise OutOfOrder("The run waits for its members.")
        if last is not None:
            self.sums += 1
        self.position, self.since, self.repairing = prepared.position, now, False
        if prepared.sum is None:
            self.ending = Ending(Status.DONE)
            return Ended()
        if not self.attendance.can_sum(epoch):
            return self._restart(now)
        try:
            self._charge(prepared.sum, now)
        except BudgetExceeded as error:
            return self.fail_by(error)
        self.broadcast = prepared.sum.broadcast
        active = self.attendance.active(epoch, last) if self.is_private else epoch.everyone
        self.attendance = self.attendance.afresh()
        self.epoch.begin(
            statistic=prepared.sum.statistic,
            length=prepared.sum.length,
            broadcast=prepared.sum.broadcast.data,
            parameters=prepared.sum.parameters,
            encoding=prepared.sum.encoding,
            active=active,
        )
        return Began()

    def _charge(self, sum_plan: SumPlan, now: float) -> None:
        if self.spending is None or sum_plan.release is None:
            if self.is_private:
                raise OutOfOrder("A private session's sums have noise and are charged.")
            return
        plan, slot = self.plan, 0 if self.slot is None else self.slot.task.slot + 1
        entry = Entry(now, plan.session_id, plan.id, self.epoch.number, slot, sum_plan.release)
        self.spending = self.spending.charged(entry, stage=self.position.stage)

    # -- other ends

    def fail(self, code: str, detail: str) -> Ended:
        """End the run with its reason."""
        self.ending = Ending(Status.FAILED, code, detail)
        return Ended()

    def fail_by(self, error: KernelsError | PrivacyError) -> Ended:
        """End the run by an error of the sum or of the algorithm, with members by their names."""
        return self.fail(error.code, self._with_names(error))

    def refused_by(self, key: bytes, code: str, detail: str) -> Refused | Ended:
        """Do without a member that will not go on; end where the others are too few for that."""
        if key not in self.roster.keys:
            raise NotAMember("Who is not on the run's roster cannot refuse it.")
        (member,) = self.named([key])
        self.attendance = self.attendance.with_refusal(key)
        left = len(self.attendance.expected(self.epoch))
        if self.is_private and left >= self.epoch.terms.min_cohort:
            return Refused(key)
        return self.fail("run.member_refused", f"{member.name} refuses ({code}): {detail}")

    def note_return(self, key: bytes) -> Returned:
        """Have a member that was left out in the next sum."""
        self.attendance = self.attendance.with_return(key)
        return Returned(key)

    def cancel(self) -> Ended:
        """End the run because the admin says so."""
        self.ending = Ending(Status.CANCELLED, "run.cancelled", "The admin cancelled the run.")
        return Ended()

    def _overdue(self) -> str:
        names = ", ".join(member.name for member in self.awaited)
        waited = f"waiting for: {names}" if names else "the coordinator was still computing"
        return (
            f"The deadline passed after {self.sums} sums, {waited}. Start the run again when all "
            "are there, or with a later deadline."
        )

    def _with_names(self, error: KernelsError | PrivacyError) -> str:
        """Say an error's sentence, and who has the ranks that it speaks of."""
        epoch = self.epoch.epoch
        if epoch is None or not isinstance(error, AboutMembers):
            return str(error)
        names = {member.key: member.name for member in self.roster.members}
        known = [f"rank {rank} is {names[epoch.members[rank]]}" for rank in error.ranks]
        return f"{error} ({', '.join(known)}.)"

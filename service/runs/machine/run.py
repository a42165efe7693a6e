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

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property

from kernels.errors import KernelsError
from kernels.model.artifact import Artifact
from kernels.model.card_sections import Privacy
from kernels.rounds.program import Program
from privacy.accounting.events import MECHANISM
from privacy.errors import BudgetExceeded, LayoutError, PrivacyError
from privacy.identity import Member, Roster
from privacy.ledger import Entry, Ledger
from privacy.securesum.coordinator import Coordinator
from privacy.securesum.errors import NotAMember, OutOfOrder
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
from service.runs.machine.attendance import Attendance
from service.runs.machine.changes import (
    Began,
    Change,
    Closed,
    Ended,
    Proposed,
    Refused,
    RepairAsked,
    Restarted,
    Returned,
)
from service.runs.machine.spending import Spending
from service.runs.machine.stages import Broadcast, Metrics, Position, SumPlan
from service.runs.machine.waits import Waits

Said = Advert | Boxes | Certification | Reveal | Repair | Abandonment
"""What members say, apart from their vectors."""


class Status(StrEnum):
    """How far a run is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN = (Status.WAITING, Status.RUNNING)


@dataclass(frozen=True, eq=False)
class Plan:
    """What is fixed when a run starts; times in seconds."""

    id: str
    session_id: str
    kind: str
    program: Program
    text: str
    """The program as every member reads it."""
    seed: int
    base_model: str | None
    """The model that it starts from, by its id."""
    deadline_at: float
    repair_after_s: float
    restart_after_s: float
    gather_s: float
    leave_out_after_s: float
    max_vector: int
    """The most numbers of one sum."""

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the program's text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True)
class Outcome:
    """How a run ended: done without a code, or why not."""

    status: Status
    code: str | None = None
    detail: str | None = None


@dataclass(frozen=True, eq=False)
class Prepared:
    """The position after the last sum, and the next sum; or, at the end, the finished model."""

    position: Position
    metrics: tuple[Metrics, ...]
    sum: SumPlan | None = None
    artifact: Artifact | None = None


class Run:
    """One run."""

    def __init__(
        self,
        plan: Plan,
        epoch: Coordinator,
        position: Position,
        *,
        since: float,
        sums: int = 0,
        broadcast: Broadcast | None = None,
        repairing: bool = False,
        attendance: Attendance | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.plan = plan
        self.epoch = epoch
        self.position = position
        self.sums = sums
        self.since = since
        """When the present wait began."""
        self.broadcast = broadcast or Broadcast()
        """What the sum under way is about."""
        self.repairing = repairing
        self.attendance = attendance or Attendance()
        self.spending = (
            None
            if ledger is None
            else Spending(ledger, plan.id, plan.program, epoch.terms, plan.seed, position.stage)
        )
        """Of the session's budget; None without differential privacy."""
        self.outcome: Outcome | None = None

    # -- what it is

    @property
    def roster(self) -> Roster:
        """Whose run this is, fixed when it started."""
        return self.epoch.roster

    @property
    def is_private(self) -> bool:
        """Whether noise covers who is in a sum and who is not."""
        return self.epoch.terms.differential_privacy

    @property
    def ledger(self) -> Ledger | None:
        """The session's, as this run has charged it; None without differential privacy."""
        return None if self.spending is None else self.spending.ledger

    @property
    def status(self) -> Status:
        """How far it is."""
        if self.outcome is not None:
            return self.outcome.status
        return Status.WAITING if self.epoch.epoch is None else Status.RUNNING

    @property
    def slot(self) -> Summation | None:
        """The sum under way."""
        return self.epoch.slot if self.epoch.has_begun else None

    @property
    def phase(self) -> tuple[object, ...]:
        """What members' next items depend on beyond their own answers: changed, they look again."""
        slot, settled = self.slot, self.epoch.epoch is not None
        return (
            self.status,
            self.epoch.number,
            settled and not self.epoch.missing_boxes,
            None if slot is None else slot.task.slot,
            slot is not None and slot.proposal is not None,
            slot is not None and slot.certificate is not None,
            slot is not None and slot.abandoning,
            slot is not None and slot.abandon_proof is not None,
            self.repairing,
        )

    @property
    def work_due(self) -> bool:
        """Whether `prepare` has something to do; until then nothing that members say counts."""
        if self.outcome is not None or self.epoch.epoch is None or self.epoch.missing_boxes:
            return False
        return self.slot is None or self.slot.has_all_keys

    @property
    def awaited(self) -> tuple[Member, ...]:
        """Whose answer the run cannot go on without."""
        if self.outcome is not None or self.work_due:
            return ()
        epoch, slot = self.epoch.epoch, self.slot
        if epoch is None:
            return self._named(self.attendance.expected(self.epoch) - self.epoch.advertised)
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
        return self._named(epoch.members[rank] for rank in ranks)

    @property
    def due_at(self) -> float:
        """When time alone gives `advance` something to do."""
        return min(self.plan.deadline_at, Waits(self).due_at)

    # -- what members say

    def take(self, speaker: bytes, message: Said, now: float) -> bool:
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

    def _check_speaker(self, speaker: bytes, message: Said | Upload) -> None:
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
        if self.outcome is not None:
            return ()
        if now >= self.plan.deadline_at:
            return (self.fail("run.deadline", self._overdue()),)
        changes = []
        while (change := self._step(now)) is not None:
            changes.append(change)
        return changes

    def _step(self, now: float) -> Change | None:
        waits = Waits(self)
        if now >= min(waits.restart_at, waits.lost_at):
            return self._restart(now)
        if self.epoch.epoch is None:
            if now < waits.gathered_at:
                return None
            self.epoch.close_adverts()
            self.since = now
            return Closed()
        slot = self.slot
        if slot is None:
            return None
        if slot.proposal is None:
            if now < waits.settled_at:
                return None
            slot.propose()
            self.since = now
            return Proposed()
        if now < waits.repair_at:
            return None
        self.repairing = True
        return RepairAsked()

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
            self.outcome = Outcome(Status.DONE)
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
        self.outcome = Outcome(Status.FAILED, code, detail)
        return Ended()

    def fail_by(self, error: KernelsError | PrivacyError) -> Ended:
        """End the run by an error of the sum or of the algorithm, with members by their names."""
        return self.fail(error.code, self._with_names(str(error)))

    def refused_by(self, key: bytes, code: str, detail: str) -> Refused | Ended:
        """Do without a member that will not go on; end where the others are too few for that."""
        if key not in self.roster.keys:
            raise NotAMember("Who is not on the run's roster cannot refuse it.")
        (member,) = self._named([key])
        self.attendance = self.attendance.with_refusal(key)
        left = len(self.attendance.expected(self.epoch))
        if self.is_private and left >= self.epoch.terms.min_cohort:
            return Refused(key)
        return self.fail("run.member_refused", f"{member.name} refuses ({code}): {detail}")

    def returns(self, key: bytes) -> bool:
        """Whether a member that asks what is next was left out, and is to be in the next sum."""
        slot = self.slot
        return (
            self.outcome is None
            and self.is_private
            and slot is not None
            and self.attendance.is_left_out(slot, key)
        )

    def note_return(self, key: bytes) -> Returned:
        """Have a member that was left out in the next sum."""
        self.attendance = self.attendance.with_return(key)
        return Returned(key)

    def cancel(self) -> Ended:
        """End the run because the admin says so."""
        self.outcome = Outcome(Status.CANCELLED, "run.cancelled", "The admin cancelled the run.")
        return Ended()

    def _overdue(self) -> str:
        names = ", ".join(member.name for member in self.awaited)
        waited = f"waiting for: {names}" if names else "the coordinator was still computing"
        return (
            f"The deadline passed after {self.sums} sums, {waited}. Start the run again when all "
            "are there, or with a later deadline."
        )

    def _named(self, keys: Iterable[bytes]) -> tuple[Member, ...]:
        wanted = frozenset(keys)
        return tuple(member for member in self.roster.members if member.key in wanted)

    def _with_names(self, detail: str) -> str:
        epoch = self.epoch.epoch
        names = {member.key: member.name for member in self.roster.members}

        def named(found: re.Match[str]) -> str:
            rank = int(found[1])
            known = epoch is not None and rank < epoch.size
            return f"{names[epoch.members[rank]]} (rank {rank})" if epoch and known else found[0]

        return re.sub(r"[Rr]ank (\d+)", named, detail)

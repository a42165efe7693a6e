"""A run of a program by its members, as a state machine without I/O.

    waiting   adverts of the cohort → epoch closed
    running   boxes of all → (a sum: vectors → proposal → certificate → keys → total → update)*
              → endorsements of the finished model → its certificate
    ended     done with a model · failed with a code · cancelled

`take` accepts a member's message, `advance` does the next steps that need no computation, and
`prepare` is the slow part: remove the masks, update the state, plan the next sum. It changes
nothing that others read, so it can run while members are answered; `settle` applies its result.
A member's next item is a function of the state (`service.runs.machine.items`).

With blind sums `prepare` only removes the masks: members compute the update, one of them writes the
next task (`service.runs.machine.authors`), and one hands over the finished model.

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
from kernels.model.card import NO_SALT
from kernels.model.card_sections import Privacy
from kernels.model.model import Model
from kernels.rounds import position as positions
from kernels.rounds.position import Metrics, Position
from kernels.rounds.registry import restore
from kernels.rounds.released_scores import released_scores
from privacy.accounting.events import MECHANISM
from privacy.encoding import Encoding
from privacy.errors import BudgetExceeded, LayoutError, PrivacyError
from privacy.ledger import Entry
from privacy.members.endorsement import Endorsement, ModelCertificate
from privacy.securesum.errors import (
    AboutMembers,
    DifferentTask,
    ForgedMessage,
    NotAMember,
    OutOfOrder,
)
from privacy.securesum.messages import (
    Abandonment,
    Advert,
    Boxes,
    Certification,
    Draft,
    Objection,
    Repair,
    Reveal,
    SealedState,
    Upload,
)
from privacy.securesum.summation import Summation
from service.runs.machine import stages
from service.runs.machine.authors import Authoring, place_of
from service.runs.machine.changes import (
    Abandoning,
    Asked,
    Began,
    Change,
    Closed,
    Ended,
    Endorsed,
    Finished,
    Proposed,
    Refused,
    RepairRequested,
    Restarted,
    Returned,
    Summed,
)
from service.runs.machine.closed_sum import ClosedSum
from service.runs.machine.endorsements import Endorsements, check_endorsement
from service.runs.machine.plan import Ending, Status
from service.runs.machine.stages import SumPlan
from service.runs.machine.state import RunState

MemberMessage = (
    Advert | Boxes | Draft | Objection | Certification | Reveal | Repair | Abandonment | Endorsement
)
"""The messages of members, except their vectors, states and models."""

_FOUND_BY_ALL = {
    "total.site_failed": "run.site_failed",
    "total.not_verified": "total.not_verified",
    "total.no_update": "total.no_update",
}
"""What a run ends with, by the codes of refusals that follow from a total: every member finds the
same, and none is named. With blind sums every further reason is within `total.no_update`."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """The position after the last sum, and the next sum; or, at the end, the finished model.

    With blind sums there is only the last sum. certificate: of the model, encoded, if it has one.
    """

    position: Position | None
    metrics: tuple[Metrics, ...] = ()
    last: ClosedSum | None = None
    sum: SumPlan | None = None
    artifact: Artifact | None = None
    certificate: bytes | None = None


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
        if isinstance(message, Draft):
            return self._add_draft(message)
        if isinstance(message, Endorsement):
            return self._add_endorsement(message, now)
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
                taken = slot.add_abandonment(message)
                if slot.abandon_proof is not None:
                    self.since, self.authoring = now, Authoring()
                return taken
            case Objection():
                return self._add_objection(slot, message, now)

    def _add_draft(self, draft: Draft) -> bool:
        """Accept a task that a member has written, if one is awaited from it."""
        if not self.awaits_author or (
            draft.rank not in self.asked and draft.rank not in self.endorsers
        ):
            raise OutOfOrder("No task is awaited from this member; request the next item.")
        self.epoch.check_draft(draft)
        place_of(draft, self.plan)
        new = draft.rank not in self.authoring.drafts
        self.authoring.drafts.setdefault(draft.rank, draft)
        return new

    def _add_objection(self, slot: Summation, message: Objection, now: float) -> bool:
        """Note that a member does not hold the state of a blind task."""
        if not self.is_blind or (message.slot, message.context) != (slot.task.slot, slot.context):
            raise DifferentTask(f"Rank {message.rank} objects to another task than this slot's.")
        message.check_signed_by(
            slot.epoch.members[message.rank], ForgedMessage, f"Rank {message.rank}"
        )
        if message.rank in slot.uploaded or slot.proposal is not None or slot.abandoning:
            return False
        return self.authoring.object(message, now)

    def _add_endorsement(self, message: Endorsement, now: float) -> bool:
        """Accept a member's signature on the finished model."""
        epoch = self.epoch.epoch
        if self.verdict is not None:  # late ones are not needed
            return False
        if epoch is None or self.last is None or not (self.awaits_author or self.is_endorsing):
            raise OutOfOrder("No model is to be endorsed yet; request the next item.")
        section = None if self.is_blind else self.section
        check_endorsement(message, epoch, self.plan, self.last_certificate, section)
        if not self.is_endorsing:
            self.since = now
        return self.endorsements.add(message)

    def check_sealed(self, speaker: bytes, header: SealedState) -> bool:
        """Refuse a sealed state that was not requested; return whether it is new."""
        self._check_speaker(speaker, header)
        slot = self.epoch.slot
        if (
            not self.is_blind
            or header.slot != slot.task.slot
            or header.rank not in slot.task.authors
        ):
            raise OutOfOrder("No state is awaited from this member; request the next item.")
        header.check_signed_by(
            slot.epoch.members[header.rank], ForgedMessage, f"Rank {header.rank}"
        )
        return self.authoring.sealed is None and bool(self.authoring.wanted)

    def check_hands_over(self, speaker: bytes, *, sealed: bool) -> ModelCertificate:
        """Return the certificate of the model that a member hands over, if it was asked to.

        sealed: whether the model is for members only.
        """
        epoch = self.epoch.epoch
        if epoch is None or not self.awaits_model or self.verdict is None:
            raise OutOfOrder("No model is awaited; request the next item.")
        if sealed != self.epoch.terms.members_only:
            raise OutOfOrder(
                "The session's terms say whether the model is for members only; hand it over so."
            )
        if speaker not in {epoch.members[rank] for rank in self.asked}:
            raise NotAMember("The model is not awaited from this member; request the next item.")
        return ModelCertificate.decode(self.verdict)

    def expects(self, speaker: bytes, header: Upload) -> Summation | None:
        """Return the sum that a vector belongs to, None if it was already added, or refuse it."""
        self._check_speaker(speaker, header)
        slot = self.epoch.slot
        return slot if slot.check_header(header) else None

    def _check_speaker(self, speaker: bytes, message: MemberMessage | Upload | SealedState) -> None:
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
        if now >= self.plan.deadline_at and not (self.is_finished and self.is_endorsing):
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
        if self.is_endorsing:
            return self._endorse(now)
        if self.awaits_author or self.awaits_model:
            return self._author(now)
        if slot is None or slot.abandoning:
            return None
        if self.is_blind and slot.proposal is None and self._is_disowned(slot, now):
            slot.abandon_request()
            return Abandoning()
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

    def _author(self, now: float) -> Change | None:
        """Begin the sum that a member has written, or ask one more for it, or for the model."""
        for draft in self.authoring.drafts.values():
            return self._begin_drafted(draft, now)
        if now < self.asked_at:
            return None
        self.authoring.asked += 1
        return Asked()

    def _begin_drafted(self, draft: Draft, now: float) -> Began:
        self.stage, self.sums = place_of(draft, self.plan)
        self.since, self.repairing = now, False
        self.authoring, self.endorsements = Authoring(), Endorsements()
        self.epoch.begin_drafted(draft)
        return Began()

    def _is_disowned(self, slot: Summation, now: float) -> bool:
        """Whether more members than may lie reject a task, or its author keeps its state back."""
        rejected = self.authoring.rejected - set(slot.uploaded)
        return len(rejected) > self.epoch.terms.max_colluders or now >= self.asked_at

    def _endorse(self, now: float) -> Change | None:
        """Make the model's certificate, give it up, or go on if the program is not finished."""
        epoch = self.epoch.epoch
        if epoch is None:
            return None
        drafts = self.authoring.drafts
        if len(drafts) > self.epoch.terms.max_colluders:
            # An honest member says that another sum is needed: whoever endorsed first has lied.
            return self._begin_drafted(next(iter(drafts.values())), now)
        waited = now >= self.endorsed_at
        verdict = self.endorsements.certificate(epoch, self.endorsers, waited=waited)
        if verdict is None and not (waited and not self.is_blind):
            return None
        self.verdict, self.since, self.authoring = verdict or b"", now, Authoring()
        return Endorsed()

    def _restart(self, now: float) -> Restarted:
        """Start a new epoch; the current sum, if any, counts as released."""
        self.epoch, self.since, self.repairing = self.epoch.restart(), now, False
        self.authoring = Authoring()
        self.attendance = self.attendance.afresh()
        return Restarted()

    def prepare(self, now: float) -> Prepared:
        """Compute the next step (slow); errors are those of the sum or of the algorithm."""
        position, epoch = self.position, self.epoch.epoch
        if epoch is None or not self.work_due:
            raise OutOfOrder("The run still waits for its members.")
        if position is None:
            return Prepared(None, last=ClosedSum.of(self.epoch.slot))
        if position.finished:
            return self._finish(position, epoch.size, now)
        metrics: tuple[Metrics, ...] = ()
        last = self.last
        if self.slot is not None:
            encoding = stages.encoding_of(
                position, members=epoch.size, honest=self.epoch.terms.honest
            )
            position, metrics = positions.after(position, self.slot.total(encoding))
            last = ClosedSum.of(self.slot)
        if position.finished:
            return Prepared(position, metrics, last)
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

    def _finish(self, position: Position, members: int, now: float) -> Prepared:
        """Return the finished model of open sums, with its certificate if there is one."""
        certificate = ModelCertificate.decode(self.verdict) if self.verdict else None
        return Prepared(
            position,
            last=self.last,
            artifact=self._artifact(
                position.state.model,
                members=members,
                salt=NO_SALT if certificate is None else certificate.salt.hex(),
                now=now,
            ),
            certificate=self.verdict or None,
        )

    def handed_over(self, section: bytes, now: float) -> Prepared:
        """Return the model of blind sums from the bytes that a member hands over (slow)."""
        epoch = self.epoch.epoch
        if epoch is None or not self.verdict:
            raise OutOfOrder("No model is awaited; request the next item.")
        certificate = ModelCertificate.decode(self.verdict)
        certificate.check_covers(section)
        artifact = self._artifact(
            restore(section), members=epoch.size, salt=certificate.salt.hex(), now=now
        )
        return Prepared(None, last=self.last, artifact=artifact, certificate=self.verdict)

    def _artifact(self, model: Model, *, members: int, salt: str, now: float) -> Artifact:
        terms, ledger = self.epoch.terms, self.ledger
        return Artifact.of(
            model,
            program=self.plan.program,
            members=members,
            sums=self.sums,
            privacy=Privacy.of(
                self.plan.program.schema,
                min_cohort=terms.min_cohort,
                max_colluders=terms.max_colluders,
                blind=terms.blind,
                members_only=terms.members_only,
                epsilon=None if ledger is None else ledger.spent.epsilon,
                delta=None if ledger is None else ledger.budget.delta,
                mechanism=None if ledger is None else MECHANISM,
                releases=None if ledger is None else len(ledger.entries),
            ),
            created=datetime.fromtimestamp(now, UTC),
            parent=self.plan.base_model,
            salt=salt,
            score_noise=self._score_noise(model, members),
        )

    def _score_noise(self, model: Model, members: int) -> dict[str, float] | None:
        """Return the noise in the sum that the scores came from, if every member is in it.

        With members left out there was less.
        """
        released = released_scores(self.plan.program, model)
        if released is None:
            return None
        encoding = Encoding.of_sum(
            released.layout,
            multiplier=released.multiplier,
            honest=self.epoch.terms.honest,
            members=members,
        )
        return encoding.noises(contributors=members)

    def settle(
        self, prepared: Prepared, now: float
    ) -> Began | Restarted | Ended | Summed | Finished:
        """Apply what `prepare` has computed from this run: start the next sum, or end the run.

        If too few members of the epoch are left, a new epoch starts instead. With differential
        privacy the sum is charged here, before any member receives its task; if the budget does
        not allow it together with the rest of the run, the run ends.
        """
        epoch, last = self.epoch.epoch, self.slot
        if epoch is None:
            raise OutOfOrder("The run still waits for its members.")
        self.since, self.repairing, self.last = now, False, prepared.last
        position = prepared.position
        if prepared.artifact is not None:
            return self.done()
        if position is None:
            self.sums += 1
            self.authoring = Authoring()
            return Summed()
        self.position, self.stage, self.sums = position, position.stage, position.sum_index
        if prepared.sum is None:
            if self.last is None:  # no sum was needed, so nobody can endorse its model
                self.verdict = b""
            return Finished()
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
        self.spending = self.spending.charged(entry, stage=self.stage)

    # -- ends

    def done(self) -> Ended:
        """End the run with its model."""
        self.ending = Ending(Status.DONE)
        return Ended()

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
        if self.is_blind and code in _FOUND_BY_ALL:
            return self.fail(_FOUND_BY_ALL[code], detail)
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

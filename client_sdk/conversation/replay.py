"""A hospital's own replay of a run, so that the coordinator chooses no state.

    start(program, parent)       the position before the first sum
    after(position, T)           T: the verified total of the newest closed sum, and no other
    a state of other members     only where this hospital could not replay, and only if m + 1 of
                                 them have answered the very task: an honest one has replayed

A task names the state to answer from by its digest. This hospital answers only from a position that
it holds, or that follows from the newest one in this way. It holds its newest position and the one
before it, which a new epoch may repeat; it never goes further back. A sum's total is applied to the
position from which the sum was answered, and only if that sum is the newest closed one: once this
hospital has answered a later task, the total of an earlier sum, which was then lost, is not used.

Two machines may differ by a step of a grid here and there (`kernels.rounds.agreement`). If the
digest differs, the coordinator's state is downloaded and compared; what differs otherwise, or too
often in a run, is refused.

With blind sums a member writes the task, and names the state by a keyed value. If that is not the
value of this hospital's own position, it objects (`Needed`), and its author's state comes in a box
that members can open. A state that differs by more than rounding is then not refused: the author
has lied, and if enough members object, another one writes the task. Only a hospital that has missed
a total (`is_behind`) takes such a state from others, and only with m + 1 witnesses; it writes no
task and endorses no model before that.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from client_sdk.conversation.answers import Item
from client_sdk.errors import ModelDiffers, OldState, WrongSum
from client_sdk.events import EventWatch, StepLearnt
from client_sdk.gate.refusal_report import about_totals
from client_sdk.gate.run_in_hand import RunInHand
from client_sdk.home.home import OpenHome
from client_sdk.home.remembered import Holding
from client_sdk.network.exchange import Effects
from kernels.errors import KernelsError, StateDiffers
from kernels.model.artifact import published
from kernels.model.card import Card, digest
from kernels.model.model import Model
from kernels.rounds import position as positions
from kernels.rounds.agreement import agreement
from kernels.rounds.algorithm import computing
from kernels.rounds.broadcast import checked, received
from kernels.rounds.position import Metrics, Position
from kernels.rounds.registry import restore
from kernels.rounds.task import noise_multiplier, statistic_of
from kernels.storage import encode
from privacy.encoding import Encoding
from privacy.securesum.certificates import decode_proof
from privacy.securesum.epoch import Epoch
from privacy.securesum.errors import TooFewWitnesses, UnreadableState
from privacy.securesum.journal import EpochEntry, Journal
from privacy.securesum.messages import (
    AuthorRequest,
    Certificate,
    SealedState,
    Task,
    Total,
    Witnesses,
)
from privacy.securesum.records import Step

SumName = tuple[int, int]
"""The number of an epoch, and a slot: later sums have larger names."""


@dataclass(frozen=True)
class Needed:
    """What this hospital must have before it can answer a task.

    witnesses: the headers of others that have answered it. objection: the author's state.
    """

    witnesses: bool = False
    objection: bool = False


@dataclass(frozen=True)
class Claim:
    """What a task says about the position to answer it from.

    named: returns what a task must say about a position, in this epoch and slot.
    """

    state: bytes
    stage: int
    sum_index: int
    named: Callable[[Position], bytes]

    def fits(self, position: Position) -> bool:
        """Whether a position is the claimed one."""
        place = position.stage, position.sum_index
        return (
            (self.stage, self.sum_index) == place
            and not position.finished
            and self.state == self.named(position)
        )


@dataclass(frozen=True)
class ClosedSum:
    """The newest closed sum, as an item describes it: nothing in it is trusted.

    body: the total's integers, or None if they must be downloaded.
    """

    task: Task
    certificate: Certificate
    total: Total
    body: bytes | None

    @classmethod
    def read(cls, item: Item) -> "ClosedSum | None":
        """Read the sum from an item; None before the first sum of a run."""
        task, certificate = item.part("last_task"), item.part("last_certificate")
        total = item.part("total")
        if task is None or certificate is None or total is None:
            return None
        return cls(
            Task.decode(task),
            Certificate.decode(certificate),
            Total.decode(total),
            item.part("total_body"),
        )


@dataclass(frozen=True)
class Downloads:
    """What a replay may have to download.

    state: by its digest. total: by its epoch's number and its slot. model: by its id, checked.
    """

    state: Callable[[bytes], Effects[bytes]]
    total: Callable[[int, int], Effects[bytes]]
    model: Callable[[str], Effects[Model]]


class Replay:
    """A hospital's replay of one run; positions stay in memory, and are written by the door."""

    def __init__(
        self, home: OpenHome, run: RunInHand, downloads: Downloads, watch: EventWatch
    ) -> None:
        self._home = home
        self._watch = watch
        self._client = home.client
        self._run = run
        self._downloads = downloads
        self._held: Holding | None = None

    @property
    def run(self) -> str:
        """The run's id."""
        return str(self._run.run)

    def flush(self) -> None:
        """Write what was verified: another step of the protocol may erase what it rests on."""
        if self._held is not None and self._held.vault:
            self._home.store.commit(Step(None), holding=self._held)
            self._held = replace(self._held, vault={})

    def written(self) -> None:
        """Note that the door has written the newest position, and what was verified for it."""
        if self._held is not None:
            self._held = replace(self._held, vault={})

    def answering(self, task: Task, item: Item) -> Effects[Holding | Needed]:
        """Return what to answer a task from, or what this hospital needs first."""
        claim = self._claim(task)
        entry, epoch = self._client.journal.entry(task.epoch_id)
        if epoch.terms.blind:
            return (yield from self._answering_blind(claim, task, item))
        holding = yield from self._holding()
        known = held(holding, claim, epoch=entry.name[2])
        if known is not None:
            return self._hold(known)
        check_not_older(holding, claim)
        if claim.sum_index == holding.newest.sum_index:
            return (yield from self._compared(holding, claim))
        closed = ClosedSum.read(item)
        if closed is not None and self._follows(holding, closed, task):
            holding = yield from self._after(holding, closed)
            if claim.fits(holding.newest):
                return holding
            return (yield from self._compared(holding, claim))
        if not self._has_witnesses(task, item):
            return Needed(witnesses=True)
        theirs = yield from self._downloaded(claim)
        return self._hold(Holding(self.run, theirs, deviations=holding.deviations))

    def _answering_blind(self, claim: Claim, task: Task, item: Item) -> Effects[Holding | Needed]:
        """Return what to answer a member's task from; objects to whatever its author has made up.

        The newest total comes first: an author must not have a closed sum repeated.
        """
        entry, epoch = self._client.journal.entry(task.epoch_id)
        holding = yield from self._holding()
        closed = ClosedSum.read(item)
        if closed is not None and self._follows(holding, closed, task):
            holding = yield from self._after(holding, closed)
        found: Holding | Needed | None = held(holding, claim, epoch=entry.name[2])
        if found is None:
            behind = is_behind(self._client.journal, holding, closed)
            found = self._unsealed(holding, claim, task, item, behind=behind)
        if isinstance(found, Needed):
            return found
        if not is_said_truly(task, found.newest, epoch):
            return Needed(objection=True)
        return self._hold(found)

    def newest(self, request: AuthorRequest, item: Item) -> Effects[Holding | None]:
        """Return the newest position, after the total of the newest closed sum, with blind sums.

        None if this hospital has missed that total, so that it does not know the newest position.
        """
        holding = yield from self._holding()
        closed = ClosedSum.read(item)
        if closed is not None and self._follows(holding, closed, request):
            holding = yield from self._after(holding, closed)
        return None if is_behind(self._client.journal, holding, closed) else holding

    def finishing(self, item: Item, request: AuthorRequest | None) -> Effects[Holding | None]:
        """Return the holding at the end of a run that is done; None if it cannot be replayed.

        Without differential privacy this hospital is in every sum, so it can. request: the request
        to endorse the model; None after the run's end.
        """
        holding = yield from self._holding()
        if not holding.newest.finished:
            closed = ClosedSum.read(item)
            if closed is None or not self._follows(holding, closed, request):
                if self._run.program.privacy is None:
                    raise WrongSum(
                        "the coordinator ended the run without the total of the sum that this "
                        "hospital answered last, so nobody can check the model"
                    )
                return None
            holding = yield from self._after(holding, closed)
        if not holding.newest.finished:
            raise WrongSum("the coordinator ended the run before its program was finished")
        return holding

    # -- the steps

    def _holding(self) -> Effects[Holding]:
        if self._held is None:
            self._held = self._home.store.holding(self.run, self._run.program)
        if self._held is None:
            model = None
            if self._run.parent is not None:
                model = yield from self._downloads.model(self._run.parent)
            self._held = Holding(self.run, positions.start(self._run.program, model))
        return self._held

    def _hold(self, holding: Holding) -> Holding:
        self._held = holding
        return holding

    def _claim(self, task: Task) -> Claim:
        stage, sum_index = self._run.place(task)
        _, epoch = self._client.journal.entry(task.epoch_id)

        def named(position: Position) -> bytes:
            if not epoch.terms.blind:
                return position.digest
            encoding = encoding_at(position, epoch)
            where = task.epoch_id, task.slot
            return self._client.named_in(*where, position.digest, encoding)[0]

        return Claim(task.state, stage, sum_index, named)

    def _has_witnesses(self, task: Task, item: Item) -> bool:
        witnesses = item.part("witnesses")
        if witnesses is None:
            return False
        try:
            self._client.check_witnesses(task, Witnesses.decode(witnesses).uploads)
        except TooFewWitnesses:
            return False
        return True

    def _unsealed(
        self, holding: Holding, claim: Claim, task: Task, item: Item, *, behind: bool
    ) -> Holding | Needed:
        """Accept the state in its author's box if it differs by rounding, or if it has witnesses.

        Everything else is for others to decide: this hospital only says that it differs. behind: it
        has missed a total, so that its own state says nothing about the author's.
        """
        header, box = item.part("sealed_state"), item.part("state_box")
        own = holding.newest
        ahead = behind and claim.sum_index > own.sum_index
        if header is None or box is None:
            return Needed(objection=True, witnesses=ahead)
        sealed = SealedState.decode(header)
        if (sealed.slot, (sealed.rank,)) != (task.slot, task.authors):
            return Needed(objection=True)
        try:
            theirs = self._read(self._client.open_state(sealed, box), claim)
            if ahead:
                if not self._has_witnesses(task, item):
                    return Needed(witnesses=True)
                return Holding(self.run, theirs, deviations=holding.deviations)
            return self._rounded(holding, theirs)
        except (KernelsError, UnreadableState):
            return Needed(objection=True)

    def _follows(
        self, holding: Holding, closed: ClosedSum, task: Task | AuthorRequest | None
    ) -> bool:
        """Whether a closed sum is the newest one, and was answered from the newest position."""
        journal, name = self._client.journal, self._name
        summed = journal.agreed.get(closed.certificate.epoch_id)
        if summed is None or summed.name[:2] != name or closed.task.epoch_id not in journal.agreed:
            return False
        if not self._client.holds_group(closed.task.epoch_id):
            return False
        if not self._claim(closed.task).fits(holding.newest):
            return False
        if not is_newest(journal, summed, closed.certificate, task):
            return False
        return self._client.context_of(closed.task) == closed.certificate.context

    @property
    def _name(self) -> tuple[bytes, bytes]:
        return self._run.session.bytes, self._run.run.bytes

    def _after(self, holding: Holding, closed: ClosedSum) -> Effects[Holding]:
        """Verify a total and replay its update."""
        entry, epoch = self._client.journal.entry(closed.certificate.epoch_id)
        place = entry.name[2], closed.certificate.slot
        body = closed.body
        if body is None:
            body = yield from self._downloads.total(*place)
        encoding = encoding_at(holding.newest, epoch)
        if not epoch.terms.blind and encoding.digest() != closed.task.encoding:
            raise WrongSum("the closed sum's encoding does not follow from this hospital's state")
        step = self._client.verify_total(closed.total, body, closed.certificate)
        with about_totals(hidden=epoch.terms.blind):
            position, told = positions.after(holding.newest, step.message.decoded(encoding))
        for each in told:
            self._watch(_learnt(self.run, each, noisy=self._run.program.privacy is not None))
        return self._hold(
            Holding(
                self.run,
                position,
                before=holding.newest,
                made_by=place,
                deviations=holding.deviations,
                vault={**holding.vault, **step.vault},
            )
        )

    def _compared(self, holding: Holding, claim: Claim) -> Effects[Holding]:
        """Accept the coordinator's state if it differs from this hospital's own by rounding."""
        own = holding.newest
        if claim.stage != own.stage:
            raise StateDiffers("the task is for another stage than the one that the totals lead to")
        theirs = yield from self._downloaded(claim)
        return self._hold(self._rounded(holding, theirs))

    def _rounded(self, holding: Holding, theirs: Position) -> Holding:
        """Return the holding with another's position, which may differ by rounding only."""
        so_far = replace(agreement(self._run.program), spent=holding.deviations)
        spent = so_far.including(holding.newest, theirs).spent
        return replace(holding, newest=theirs, deviations=spent)

    def _downloaded(self, claim: Claim) -> Effects[Position]:
        data = yield from self._downloads.state(claim.state)
        return self._read(data, claim)

    def _read(self, data: bytes, claim: Claim) -> Position:
        """Read another's state, which must be the claimed one."""
        program = self._run.program
        state = received(data, program, claim.stage)
        theirs = Position(program, claim.stage, claim.sum_index, state)
        with computing("the state that was sent has no encoding"):
            fits = claim.fits(theirs)
        if not fits:
            raise StateDiffers("the state that was sent does not have the digest in the task")
        return theirs


def _learnt(run: str, told: Metrics, *, noisy: bool) -> StepLearnt:
    figures = {name: value for name, value in told.items() if isinstance(value, float)}
    name, recipe = told["algorithm"], told.get("recipe")
    step = name if recipe is None else f"{name}, {recipe}"
    return StepLearnt(run, step, told["sum"], figures, noisy)


def held(holding: Holding, claim: Claim, *, epoch: int) -> Holding | None:
    """Return the holding to answer a claim from, if the position is held.

    A new epoch may repeat the sum that led to the newest position: then that sum was lost.
    """
    if claim.fits(holding.newest):
        return holding
    before, made_by = holding.before, holding.made_by
    if before is not None and made_by is not None and epoch > made_by[0] and claim.fits(before):
        return replace(holding, newest=before, before=None, made_by=None)
    return None


def is_behind(journal: Journal, holding: Holding, closed: ClosedSum | None) -> bool:
    """Whether a sum was closed after the one that made the newest position, and is not known here.

    A hospital that has lost its positions is at the start of the run.
    """
    if closed is None or holding.newest.finished:
        return False
    summed = journal.agreed.get(closed.certificate.epoch_id)
    if summed is None or holding.made_by is None:
        return summed is None or holding.newest.sum_index == 0
    return (summed.name[2], closed.certificate.slot) > holding.made_by


def check_not_older(holding: Holding, claim: Claim) -> None:
    """Refuse a position before this hospital's newest one that it does not hold."""
    if claim.sum_index < holding.newest.sum_index:
        raise OldState(
            f"the task goes back to sum {claim.sum_index} of the run, and this hospital is at sum "
            f"{holding.newest.sum_index}"
        )


def is_newest(
    journal: Journal,
    summed: EpochEntry,
    certificate: Certificate,
    task: Task | AuthorRequest | None,
) -> bool:
    """Whether a sum is the newest closed one, before a task or at the end of the run (None).

    Every slot after it must be proved to be abandoned, and this hospital must have answered none of
    them: a sum that was answered later, and a sum that was lost, have no say any more.
    """
    slot = certificate.slot
    if newest_answer(journal, summed) > (summed.name[2], slot):
        return False
    here = None if task is None else journal.entry(task.epoch_id)[0]
    later = [
        entry
        for entry in epochs_of(journal, summed)
        if entry.name[2] > summed.name[2] and (here is None or entry.name[2] < here.name[2])
    ]
    if not all(slot.abandoned for entry in later for slot in entry.slots.values()):
        return False
    if task is None or here is None:
        return True
    if here.name != summed.name:
        return here.name[2] > summed.name[2] and all_abandoned(here, 0, task)
    if slot == task.slot - 1:
        proof = decode_proof(task.proof)
        return isinstance(proof, Certificate) and said(proof) == said(certificate)
    return slot < task.slot and all_abandoned(here, slot + 1, task)


def newest_answer(journal: Journal, entry: EpochEntry) -> SumName:
    """Return the newest sum of an epoch's run that this hospital has answered."""
    answered = (
        (each.name[2], number)
        for each in epochs_of(journal, entry)
        for number, slot in each.slots.items()
        if slot.uploaded is not None and not slot.abandoned
    )
    return max(answered, default=(-1, -1))


def epochs_of(journal: Journal, entry: EpochEntry) -> list[EpochEntry]:
    """Return the epochs of an epoch's run whose members this hospital has agreed to."""
    return [each for each in journal.agreed.values() if each.name[:2] == entry.name[:2]]


def all_abandoned(entry: EpochEntry, first: int, task: Task | AuthorRequest) -> bool:
    """Whether the slots from `first` to a task's are proved to be abandoned."""
    return all(
        number in entry.slots and entry.slots[number].abandoned
        for number in range(first, task.slot)
    )


def said(certificate: Certificate) -> tuple[object, ...]:
    """Return what a certificate's signers have signed."""
    return (
        certificate.epoch_id,
        certificate.slot,
        certificate.context,
        certificate.active,
        certificate.survivors,
    )


def is_said_truly(task: Task, position: Position, epoch: Epoch) -> bool:
    """Whether the author of a task names the statistic and the length that its state leads to."""
    length = encoding_at(position, epoch).layout.length
    return (task.statistic, task.length) == (statistic_of(position.algorithm), length)


def encoding_at(position: Position, epoch: Epoch) -> Encoding:
    """Return the encoding of the sum at a position, as every member of an epoch derives it."""
    with about_totals(hidden=epoch.terms.blind and position.sum_index > 0):
        return Encoding.of_sum(
            position.algorithm.layout(position.state),
            multiplier=noise_multiplier(position.program, position.stage),
            honest=epoch.terms.honest,
            members=epoch.size,
        )


def check_model(holding: Holding, artifact: bytes) -> Position:
    """Refuse a model other than the one that this hospital has computed, but for rounding.

    Return the final position with that model.
    """
    position = holding.newest
    state = replace(position.state, model=published(position.state.model))
    if encode(state.model) == artifact:
        return position
    so_far = replace(agreement(position.program), spent=holding.deviations)
    try:
        theirs = checked(replace(state, model=restore(artifact)), position.program, position.stage)
        so_far.including(replace(position, state=state), replace(position, state=theirs))
    except (KernelsError, AttributeError, TypeError) as error:
        raise ModelDiffers(
            "the coordinator serves another model than the one that this hospital has computed "
            f"from the verified totals: {error}"
        ) from error
    # The artifact does not contain all of a distilled model: the rest is this hospital's own.
    whole = replace(theirs.model, distilled=position.state.model.distilled)
    model = whole if encode(published(whole)) == artifact else theirs.model
    return replace(position, state=replace(position.state, model=model))


def is_named(model: str | None, artifact: bytes, card: Mapping[str, object]) -> bool:
    """Whether a model's id is that of these bytes: only then does the id stand for them later."""
    try:
        read = Card.from_plain(card)
    except KernelsError:
        return False
    return read.id == model and read.artifact == digest(artifact)

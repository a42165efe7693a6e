"""The checks before a client uploads, signs or reveals: one function per rule, one error per rule.

`Client` calls them in order before it stores or sends anything. The rule that spans several sums is
in steady.py, the checks of signatures are in epoch.py and certificates.py.
"""

import hmac
from collections.abc import Iterable
from contextlib import suppress

from privacy.encoding import Encoding
from privacy.securesum.certificates import Proof, check_closed, check_survivors_active
from privacy.securesum.epoch import Epoch
from privacy.securesum.errors import (
    AlreadySigned,
    ClosedOtherwise,
    DifferentTask,
    EpochEnded,
    ForgedMessage,
    JournalLost,
    NoiseMissing,
    NoiseReused,
    NotActive,
    NotCertified,
    NotSurvivor,
    NotUploaded,
    SecondCertificate,
    SecondTask,
    ShareOfOutsider,
    SlotAbandoned,
    StaleEpoch,
    StaleSlot,
    TermsChanged,
    TooFewActive,
    TooFewSurvivors,
    TooFewWitnesses,
    WrongAuthor,
    WrongEncoding,
    WrongState,
    WrongVector,
)
from privacy.securesum.journal import EpochEntry, Journal, SlotEntry
from privacy.securesum.messages import (
    Certificate,
    Opening,
    Proposal,
    RepairRequest,
    Task,
    Upload,
)
from privacy.securesum.records import Certified, GroupSecrets, Uploaded
from privacy.securesum.terms import Terms


def check_opening(journal: Journal, own: bytes, opening: Opening, terms: Terms) -> None:
    """Refuse an epoch under changed terms, without the journal, or with an old number."""
    check_same_terms(opening, terms)
    check_journal_kept(journal, own, opening)
    check_new_number(journal, opening)


def check_same_terms(opening: Opening, terms: Terms) -> None:
    """Refuse terms that changed after this client joined the session."""
    if opening.terms != terms:
        raise TermsChanged(
            "The session's terms have changed since this client joined it. The client answers only "
            "under the terms it accepted; changed terms need a new session."
        )


def check_journal_kept(journal: Journal, own: bytes, opening: Opening) -> None:
    """Refuse a session that this client took part in, if its journal does not contain it."""
    if own in opening.seen and not journal.of_session(opening.terms.session):
        raise JournalLost(
            "This client took part in the session before, but its journal does not contain it. "
            "Without its journal the client cannot know what it has answered, so it refuses this "
            "session permanently."
        )


def check_new_number(journal: Journal, opening: Opening) -> None:
    """Refuse an epoch number that is not larger than all earlier ones of the run."""
    for session, run, number in journal.epochs:
        if (session, run) == (opening.terms.session, opening.run) and number >= opening.number:
            raise StaleEpoch(
                f"This client has already entered epoch {number} of the run; the number of a new "
                f"epoch must be larger, not {opening.number}."
            )


def check_open(entry: EpochEntry) -> None:
    """Refuse an epoch that has ended here."""
    if entry.ended:
        raise EpochEnded(f"Epoch {entry.name[2]} has ended at this client; its secrets are erased.")


def check_same_task(slot: SlotEntry | None, context: bytes) -> None:
    """Refuse a second task for a slot: two answers in one slot would share masks."""
    if slot is not None and slot.uploaded is not None and slot.uploaded.context != context:
        raise SecondTask(
            "This client has already answered another task in this slot; a slot is answered once."
        )


def check_not_given_up(slot: SlotEntry | None) -> None:
    """Refuse to upload to a slot that the client has helped to abandon, or that is closed."""
    if slot is not None and (slot.abandon is not None or slot.closed):
        raise SlotAbandoned(
            "This slot was abandoned or closed, by this client or by a quorum; it takes no uploads."
        )


def check_not_behind(entry: EpochEntry, slot: int) -> None:
    """Refuse a slot that is older than this client's newest slot."""
    if slot < entry.newest:
        raise StaleSlot(f"Slot {slot} is over: this client is at slot {entry.newest}.")


def check_before_closed(entry: EpochEntry, epoch: Epoch, slot: int, proof: bytes) -> Proof | None:
    """Refuse a slot without proof that the previous one is closed; return that proof, if new.

    Every quorum contains an honest member, who made the same check before it signed. So, by
    induction, all slots before a closed one are closed too.
    """
    if slot == entry.newest or slot == 0:
        return None
    before = entry.slots.get(slot - 1)
    if before is not None and before.closed:
        return None
    return check_closed(epoch, slot - 1, proof)


def check_state(task: Task, state: bytes) -> None:
    """Refuse a vector of another state than the task's: the answer would belong to another task."""
    if not hmac.compare_digest(state, task.state):
        raise WrongState("The state's digest is not the one in the task.")


def check_newest(entry: EpochEntry, slot: int) -> None:
    """Refuse to sign a model under another sum than the newest that this client knows released."""
    later = [number for number, each in entry.slots.items() if each.certified and number > slot]
    if later:
        raise StaleSlot(
            f"The model is to be signed under slot {slot}, but slot {max(later)} was released "
            "after it."
        )


def check_author(epoch: Epoch, task: Task) -> None:
    """Refuse a blind task that no member of the epoch has written and signed.

    Whether it is the right one, every member finds out by its own replay.
    """
    draft = task.draft
    if (draft is not None) != epoch.terms.blind:
        raise WrongAuthor(
            "With blind sums a member writes the task, and without them the coordinator does."
        )
    if draft is None:
        return
    epoch.check_ranks(task.authors)
    try:
        draft.check_signed_by(epoch.members[draft.rank], ForgedMessage, f"Rank {draft.rank}")
    except ForgedMessage as error:
        raise WrongAuthor(f"The task is not signed by the member that it names: {error}") from None


def check_active(epoch: Epoch, own: int, task: Task) -> None:
    """Refuse a task with too few active members, or without this client among them."""
    epoch.check_ranks(task.active)
    if own not in task.active:
        raise NotActive(f"The task of slot {task.slot} does not list this client as active.")
    least = max(epoch.quorum, epoch.terms.min_cohort)
    if len(task.active) < least:
        raise TooFewActive(f"{len(task.active)} members are active; at least {least} are required.")


def check_encoding(task: Task, encoding: Encoding | None, named: bytes, terms: Terms) -> None:
    """Refuse an encoding other than the task's, of another length, or whose sum can overflow.

    named: what the task must say about it. With differential privacy it must have noise, without
    it must not.
    """
    if not hmac.compare_digest(named, task.encoding):
        raise WrongEncoding("The encoding's digest is not the one in the task.")
    if encoding is None:
        return
    length, clients = encoding.layout.length, encoding.max_clients
    noisy = bool(encoding.share_deviations)
    if noisy != terms.differential_privacy:
        raise WrongEncoding(
            "The task's encoding must add noise if the session has differential privacy, and must "
            f"not otherwise. Noise: {noisy}, differential privacy: {terms.differential_privacy}."
        )
    if length != task.length or clients < len(task.active):
        raise WrongEncoding(
            f"The encoding is for {length} elements and up to {clients} clients; the task has "
            f"{task.length} elements and {len(task.active)} active members."
        )


def check_witnesses(
    epoch: Epoch, own: int, task: Task, context: bytes, headers: Iterable[Upload]
) -> None:
    """Refuse to take a state on trust unless m + 1 other members have answered this very task.

    At most m of them collude, so an honest one has computed the state itself, or has made this
    check. Headers that prove nothing are not counted.
    """
    found = set()
    for header in headers:
        same = (header.epoch_id, header.slot, header.context) == (
            epoch.epoch_id,
            task.slot,
            context,
        )
        if not same or header.rank == own or header.rank not in task.active:
            continue
        with suppress(ForgedMessage):
            header.check_signed_by(epoch.members[header.rank], ForgedMessage, f"Rank {header.rank}")
            found.add(header.rank)
    least = epoch.terms.max_colluders + 1
    if len(found) < least:
        raise TooFewWitnesses(
            f"{len(found)} other members have answered this task, and at least {least} must have "
            "before this client takes its state from them."
        )


def check_noise(journal: Journal, terms: Terms, noise: bytes) -> None:
    """Refuse an upload with differential privacy that has no new, charged draw of noise.

    Whether the draw follows the task's noise plan is checked where it is drawn.
    """
    if terms.differential_privacy != bool(noise):
        raise NoiseMissing(
            "An upload must name its charged draw of noise if the session has differential "
            "privacy, and must not otherwise."
        )
    if noise and noise in journal.noise:
        raise NoiseReused(
            "This draw of noise was used for another upload; draw new noise and charge for it."
        )


def check_may_fail(terms: Terms, *, failed: bool) -> None:
    """Refuse an upload without a vector under differential privacy."""
    if failed and terms.differential_privacy:
        raise WrongVector(
            "With differential privacy a site always has a vector: what could not be computed "
            "contributes zero, under the noise that was charged."
        )


def check_total_in_order(group: GroupSecrets, slot: int) -> None:
    """Refuse the total of a slot before the newest one that was verified: it came too late."""
    if slot + 1 < group.verified:
        raise StaleSlot(
            f"The total of slot {slot} is too late: slot {group.verified - 1} was verified here."
        )


def own_upload(slot: SlotEntry | None, claim: Proposal | Certificate) -> Uploaded:
    """Return the client's own upload; refuse a claim about another task or active members."""
    if slot is None or slot.uploaded is None:
        raise NotUploaded(f"This client has not uploaded to slot {claim.slot}.")
    if (claim.context, claim.active) != (slot.uploaded.context, slot.uploaded.active):
        raise DifferentTask(
            f"Slot {claim.slot}: this client answered another task, or other active members."
        )
    return slot.uploaded


def check_survivors(epoch: Epoch, own: int, claim: Proposal | Certificate) -> None:
    """Refuse survivors that do not include the client, were not active, or are too few."""
    check_survivors_active(claim)
    if own not in claim.survivors:
        raise NotSurvivor(f"Slot {claim.slot}: this client is not among the survivors.")
    least = max(epoch.quorum, epoch.terms.min_cohort)
    if len(claim.survivors) < least:
        raise TooFewSurvivors(
            f"Slot {claim.slot}: {len(claim.survivors)} survivors; at least {least} are required."
        )


def check_may_certify(slot: SlotEntry, survivors: tuple[int, ...]) -> None:
    """Refuse to sign survivors after an abandonment, or a second set of survivors."""
    if slot.abandon is not None:
        raise AlreadySigned(
            "This client has already signed the abandonment of this slot; it signs one statement "
            "per slot."
        )
    if slot.certify is not None and slot.certify.survivors != survivors:
        raise AlreadySigned(
            "This client has already signed another set of survivors for this slot; it signs one "
            "statement per slot."
        )


def check_may_abandon(slot: SlotEntry | None) -> None:
    """Refuse to sign an abandonment after survivors were signed or certified."""
    if slot is not None and (slot.certify is not None or slot.certified is not None):
        raise AlreadySigned(
            "This client has already signed the survivors of this slot or seen its certificate; it "
            "signs one statement per slot."
        )


def check_one_certificate(slot: SlotEntry, certificate: Certificate) -> None:
    """Refuse a second set of survivors, and a certificate of an abandoned slot."""
    if slot.abandoned:
        raise ClosedOtherwise(
            f"Slot {certificate.slot} was abandoned, as a proof shows; it cannot be certified."
        )
    known = slot.certified
    if known is not None and known.survivors != certificate.survivors:
        raise SecondCertificate(
            f"Slot {certificate.slot} is already certified with another set of survivors."
        )


def check_repair(slot: SlotEntry | None, request: RepairRequest, own: int) -> Certified:
    """Refuse to open shares without this sum's certificate, or of members that it does not list."""
    if slot is None or slot.uploaded is None or slot.certified is None:
        raise NotCertified(f"This client has accepted no certificate for slot {request.slot}.")
    if request.context != slot.certified.context:
        raise DifferentTask(
            f"Slot {request.slot}: the request is for another task than the certified one."
        )
    for rank in request.silent:
        if rank not in slot.certified.survivors or rank == own:
            raise ShareOfOutsider(f"Rank {rank} is not another certified survivor of this slot.")
    return slot.certified

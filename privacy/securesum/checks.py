"""What a client checks before it uploads, signs or reveals: one rule a function, one error a rule.

`Client` calls these in order before it writes or says anything; steady.py holds the rule that
spans sums, epoch.py and certificates.py the checks of signatures.
"""

import hmac
from functools import lru_cache

from privacy.encoding import Encoding
from privacy.framing import Label, digest
from privacy.securesum.certificates import Proof, check_closed, check_survivors_active
from privacy.securesum.epoch import Epoch
from privacy.securesum.errors import (
    AlreadySigned,
    ClosedOtherwise,
    DifferentTask,
    EpochEnded,
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
    WrongBroadcast,
    WrongEncoding,
)
from privacy.securesum.journal import EpochEntry, Journal, SlotEntry
from privacy.securesum.messages import Certificate, Opening, Proposal, RepairRequest, Task
from privacy.securesum.records import Certified, Uploaded
from privacy.securesum.terms import Terms


def check_opening(journal: Journal, own: bytes, opening: Opening, terms: Terms) -> None:
    """Open an epoch only under the terms that were joined, with a journal, in ascending order."""
    check_same_terms(opening, terms)
    check_journal_kept(journal, own, opening)
    check_new_number(journal, opening)


def check_same_terms(opening: Opening, terms: Terms) -> None:
    """Refuse terms that changed after the session was joined."""
    if opening.terms != terms:
        raise TermsChanged("The session's terms are not those under which this client joined it.")


def check_journal_kept(journal: Journal, own: bytes, opening: Opening) -> None:
    """Refuse a session that others have seen this client in, if its journal has not."""
    if own in opening.seen and not journal.of_session(opening.terms.session):
        raise JournalLost(
            "This client has taken part in the session before, and its journal does not know. "
            "Without it the client cannot tell what it has answered, and refuses for ever."
        )


def check_new_number(journal: Journal, opening: Opening) -> None:
    """Refuse an epoch number that is not above all earlier ones of the run."""
    for session, run, number in journal.epochs:
        if (session, run) == (opening.terms.session, opening.run) and number >= opening.number:
            raise StaleEpoch(f"Epoch {number} of this run is not older than {opening.number}.")


def check_open(entry: EpochEntry) -> None:
    """Refuse an epoch that has ended here."""
    if entry.ended:
        raise EpochEnded(f"Epoch {entry.name[2]} has ended here, and its secrets are erased.")


def check_same_task(slot: SlotEntry | None, context: bytes) -> None:
    """Refuse a second task for a slot: two answers under one slot would share masks."""
    if slot is not None and slot.uploaded is not None and slot.uploaded.context != context:
        raise SecondTask("This slot was answered for another task; it is answered once.")


def check_not_given_up(slot: SlotEntry | None) -> None:
    """Refuse to upload to a slot that the client has helped to abandon, or that is closed."""
    if slot is not None and (slot.abandon is not None or slot.closed):
        raise SlotAbandoned("This slot was given up or closed, here or by a quorum.")


def check_not_behind(entry: EpochEntry, slot: int) -> None:
    """Refuse to touch a slot that this client has left behind."""
    if slot < entry.newest:
        raise StaleSlot(f"Slot {slot} lies behind: this client is at slot {entry.newest}.")


def check_before_closed(entry: EpochEntry, epoch: Epoch, slot: int, proof: bytes) -> Proof | None:
    """Enter a slot only with proof that the one before it is closed; give that proof, if new.

    Every quorum holds an honest member, who checked the same when it signed, so by induction
    all slots before a closed one are closed too.
    """
    if slot == entry.newest or slot == 0:
        return None
    before = entry.slots.get(slot - 1)
    if before is not None and before.closed:
        return None
    return check_closed(epoch, slot - 1, proof)


def check_broadcast(task: Task, broadcast: bytes) -> None:
    """Refuse a broadcast that is not the one in the task: the answer would be to another."""
    if not hmac.compare_digest(digest(Label.BROADCAST, broadcast), task.broadcast):
        raise WrongBroadcast("The broadcast is not the one that the task names.")


def check_active(entry: EpochEntry, epoch: Epoch, own: int, task: Task) -> None:
    """Upload only among enough pinned members of the epoch, and only as one of them."""
    epoch.check_ranks(task.active)
    if own not in task.active:
        raise NotActive(f"Slot {task.slot} does not list this client as active.")
    pinned = len(entry.trusted.intersection(task.active))
    least = max(epoch.quorum, epoch.terms.min_cohort)
    if pinned < least:
        raise TooFewActive(f"{pinned} pinned members are active; the least is {least}.")


def check_encoding(task: Task, terms: Terms) -> None:
    """Refuse an encoding of another length, or whose sum over the active members can overflow.

    With differential privacy it has noise, without it has none.
    """
    if not task.encoding:
        return
    length, clients, noisy = _capacity(task.encoding)
    if noisy != terms.differential_privacy:
        raise WrongEncoding(
            "The task's encoding adds noise exactly if the session has differential privacy."
        )
    if length != task.length or clients < len(task.active):
        raise WrongEncoding(
            f"The encoding is for {length} elements and up to {clients} clients; the task has "
            f"{task.length} elements and {len(task.active)} active members."
        )


@lru_cache(maxsize=8)
def _capacity(encoding: bytes) -> tuple[int, int, bool]:
    """Length, clients and noise of an encoding: the same in every sum of a stage, read once."""
    read = Encoding.from_bytes(encoding)
    return read.layout.length, read.max_clients, bool(read.share_deviations)


def check_noise(journal: Journal, terms: Terms, noise: bytes) -> None:
    """With differential privacy every upload is covered by a draw of its own, and charged.

    That the draw is what the task's noise plan asks for is checked where it is drawn.
    """
    if terms.differential_privacy != bool(noise):
        raise NoiseMissing(
            "An upload names its charged draw of noise exactly if the session has differential "
            "privacy."
        )
    if noise and noise in journal.noise:
        raise NoiseReused("This draw of noise has covered another upload; draw and charge again.")


def own_upload(slot: SlotEntry | None, claim: Proposal | Certificate) -> Uploaded:
    """Give the client's own upload, if the claim is about it: same task, same active members."""
    if slot is None or slot.uploaded is None:
        raise NotUploaded(f"This client has not uploaded to slot {claim.slot}.")
    if (claim.context, claim.active) != (slot.uploaded.context, slot.uploaded.active):
        raise DifferentTask(f"Slot {claim.slot} is claimed for another task than was answered.")
    return slot.uploaded


def check_survivors(
    entry: EpochEntry, epoch: Epoch, own: int, claim: Proposal | Certificate
) -> None:
    """Accept survivors that include the client, were active, and are enough."""
    check_survivors_active(claim)
    if own not in claim.survivors:
        raise NotSurvivor(f"Slot {claim.slot}: this client is not among the survivors.")
    pinned = len(entry.trusted.intersection(claim.survivors))
    if pinned < epoch.terms.min_cohort or len(claim.survivors) < epoch.quorum:
        raise TooFewSurvivors(
            f"Slot {claim.slot}: {len(claim.survivors)} survivors, {pinned} of them pinned; the "
            f"least are {epoch.quorum} and {epoch.terms.min_cohort}."
        )


def check_may_certify(slot: SlotEntry, survivors: tuple[int, ...]) -> None:
    """Sign one statement per slot, and never beside an abandonment."""
    if slot.abandon is not None:
        raise AlreadySigned("This client has signed the abandonment of the slot.")
    if slot.certify is not None and slot.certify.survivors != survivors:
        raise AlreadySigned("This client has signed another set of survivors for the slot.")


def check_may_abandon(slot: SlotEntry | None) -> None:
    """Sign one statement per slot, and never beside a certificate."""
    if slot is not None and (slot.certify is not None or slot.certified is not None):
        raise AlreadySigned("This client has signed or seen the certificate of the slot.")


def check_one_certificate(slot: SlotEntry, certificate: Certificate) -> None:
    """Refuse a second set of survivors, and a certificate of an abandoned slot."""
    if slot.abandoned:
        raise ClosedOtherwise(f"Slot {certificate.slot} is proved abandoned.")
    known = slot.certified
    if known is not None and known.survivors != certificate.survivors:
        raise SecondCertificate(f"Slot {certificate.slot} has another certified set already.")


def check_repair(slot: SlotEntry | None, request: RepairRequest, own: int) -> Certified:
    """Open shares only under the certificate of this very sum, and of its survivors only."""
    if slot is None or slot.uploaded is None or slot.certified is None:
        raise NotCertified(f"This client has accepted no certificate for slot {request.slot}.")
    if request.context != slot.certified.context:
        raise DifferentTask(f"Slot {request.slot}: shares of another task are not opened.")
    for rank in request.silent:
        if rank not in slot.certified.survivors or rank == own:
            raise ShareOfOutsider(f"Rank {rank} is not another certified survivor of this slot.")
    return slot.certified

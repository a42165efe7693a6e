"""Every error of the secure sum: one class per check, each with a stable code.

    SecureSumError                    securesum
    ├── MalformedMessage              securesum.malformed
    │   ├── WrongVersion              securesum.version
    │   ├── WrongKind                 securesum.kind
    │   ├── Truncated                 securesum.truncated
    │   ├── TrailingBytes             securesum.trailing
    │   ├── BadField                  securesum.field
    │   └── NotAscending              securesum.not_ascending
    ├── TermsError                    terms.invalid
    │   ├── SessionNotJoined          terms.not_joined
    │   └── TermsChanged              terms.changed
    ├── JournalError                  journal.invalid
    │   ├── JournalLost               journal.lost
    │   ├── JournalOfAnotherVersion   journal.version
    │   ├── JournalRolledBack         journal.rolled_back
    │   ├── VaultLost                 journal.vault_lost
    │   └── SecretsLost               journal.secrets_lost
    ├── EpochError                    epoch.invalid
    │   ├── UnknownEpoch              epoch.unknown
    │   ├── StaleEpoch                epoch.stale
    │   ├── EpochEnded                epoch.ended
    │   ├── EpochNotReady             epoch.not_ready
    │   ├── SecondEpoch               epoch.second
    │   ├── AdvertForAnotherEpoch     epoch.other_advert
    │   ├── NotOnRoster               epoch.not_on_roster
    │   ├── ForgedAdvert              epoch.forged_advert
    │   ├── OwnAdvertMissing          epoch.own_advert
    │   ├── Unpinned                  epoch.unpinned
    │   ├── TooFewMembers             epoch.too_few
    │   ├── BadKemKey                 epoch.kem_key
    │   ├── MissingBox                epoch.missing_box
    │   ├── ForgedBox                 epoch.forged_box
    │   ├── UnreadableBox             epoch.unreadable_box
    │   └── WrongGroupPart            epoch.group_part
    ├── TaskError                     task.invalid
    │   ├── StaleSlot                 task.stale
    │   ├── SlotNotClosed             task.not_closed
    │   ├── SlotAbandoned             task.abandoned
    │   ├── SecondTask                task.second
    │   ├── WrongState                task.state
    │   ├── WrongAuthor               task.author
    │   ├── UnreadableState           task.sealed_state
    │   ├── TooFewWitnesses           task.witnesses
    │   ├── NotActive                 task.not_active
    │   ├── UnknownRank               task.unknown_rank
    │   ├── TooFewActive              task.too_few
    │   ├── WrongVector               task.vector
    │   ├── WrongEncoding             task.encoding
    │   ├── NoiseMissing              task.noise_missing
    │   └── NoiseReused               task.noise_reused
    ├── CertificateError              certificate.invalid
    │   ├── NotUploaded               certificate.not_uploaded
    │   ├── DifferentTask             certificate.different_task
    │   ├── NotSurvivor               certificate.not_survivor
    │   ├── UnknownSurvivor           certificate.unknown_survivor
    │   ├── TooFewSurvivors           certificate.too_few_survivors
    │   ├── AlreadySigned             certificate.already_signed
    │   ├── TooFewSigners             certificate.too_few_signers
    │   ├── SignerOutside             certificate.signer_outside
    │   ├── ForgedSignature           certificate.forged
    │   ├── SecondCertificate         certificate.second
    │   └── ClosedOtherwise           certificate.closed
    ├── VerificationError             total.refused
    │   ├── TotalNotVerified          total.not_verified
    │   ├── SiteFailed                total.site_failed
    │   └── NoUpdate                  total.no_update
    ├── EndorsementError              model.not_endorsed
    │   ├── SecondEndorsement         model.second_endorsement
    │   ├── ForgedEndorsement         model.forged_endorsement
    │   ├── TooFewEndorsements        model.too_few_endorsements
    │   ├── NotTheEndorsedModel       model.not_the_endorsed
    │   └── UnreadableArchive         model.archive
    ├── RepairError                   repair.invalid
    │   ├── NotCertified              repair.not_certified
    │   └── ShareOfOutsider           repair.outsider
    ├── SteadyCohortError             cohort.invalid
    │   ├── EpochStillOpen            cohort.epoch_open
    │   ├── PartialCohort             cohort.partial
    │   ├── CohortChanged             cohort.changed
    │   ├── TableChanged              cohort.table
    │   ├── SameTable                 cohort.same_table
    │   ├── ConsentMissing            cohort.consent_missing
    │   ├── ForgedConsent             cohort.forged_consent
    │   └── ApprovalMissing           cohort.approval_missing
    └── CollectionError               collection.invalid
        ├── OutOfOrder                collection.out_of_order
        ├── Conflict                  collection.conflict
        ├── DraftRefused              collection.draft
        ├── NotAMember                collection.not_a_member
        ├── WrongReceivers            collection.receivers
        ├── WrongBody                 collection.body
        ├── ForgedMessage             collection.forged
        ├── WrongSelfKey              collection.self_key
        ├── WrongShare                collection.share
        ├── BadDealer                 collection.dealer
        ├── KeysMissing               collection.keys_missing
        ├── PairKeysOwed              collection.pair_keys
        ├── InconsistentMasks         collection.inconsistent
        ├── SumFailed                 run.site_failed
        └── BlindTotal                collection.blind

A message names members by fingerprint or rank, and never carries a key, a share or a value.
"""

from collections.abc import Iterable

from privacy.errors import PrivacyError


class AboutMembers(Exception):
    """An error that is caused by members of the epoch.

    Code that needs to know which members uses `ranks`, not the message.
    """

    def __init__(self, detail: str, *, ranks: Iterable[int]) -> None:
        super().__init__(detail)
        self.ranks = tuple(ranks)


class SecureSumError(PrivacyError):
    """Root of the secure sum's errors."""

    code = "securesum"
    public_detail = "the site does not continue with the secure sum"


class MalformedMessage(SecureSumError):
    """Bytes or fields that are not a message in its canonical form."""

    code = "securesum.malformed"
    public_detail = "a message is not in its canonical form"


class WrongVersion(MalformedMessage):
    """A message of another version of the protocol."""

    code = "securesum.version"
    public_detail = "a message has another version of the protocol"


class WrongKind(MalformedMessage):
    """A message of a kind that is not expected here."""

    code = "securesum.kind"


class Truncated(MalformedMessage):
    """A message that ends before its last field is complete."""

    code = "securesum.truncated"


class TrailingBytes(MalformedMessage):
    """A message with bytes after its last field."""

    code = "securesum.trailing"


class BadField(MalformedMessage):
    """A field of the wrong type, length or range."""

    code = "securesum.field"


class NotAscending(MalformedMessage):
    """A list of members that is not strictly ascending: one is repeated or out of order."""

    code = "securesum.not_ascending"


class TermsError(SecureSumError):
    """A session's terms that protect nobody, or that a client has not accepted."""

    code = "terms.invalid"
    public_detail = "the site does not accept the session's terms"


class SessionNotJoined(TermsError):
    """A session that this client has never joined."""

    code = "terms.not_joined"


class TermsChanged(TermsError):
    """Terms other than those under which the client joined the session."""

    code = "terms.changed"
    public_detail = "the session's terms have changed since the site joined it"


class JournalError(SecureSumError):
    """The client's memory is missing, inconsistent or belongs to another identity."""

    code = "journal.invalid"
    public_detail = "the state of the site's journal does not allow it to continue"


class JournalLost(JournalError):
    """The client took part in this session and has lost its journal: it refuses permanently."""

    code = "journal.lost"
    public_detail = "the site took part before and has lost its journal: it refuses permanently"


class JournalOfAnotherVersion(JournalError):
    """A journal or a vault of another version of the protocol: nothing in it can be continued."""

    code = "journal.version"
    public_detail = "the site's journal was written by another version of veilgp"


class JournalRolledBack(JournalError):
    """The journal is older than the vault: it was restored from a backup."""

    code = "journal.rolled_back"
    public_detail = "the site's journal was restored from a backup: it refuses permanently"


class VaultLost(JournalError):
    """A journal without its vault: it was restored from a backup."""

    code = "journal.vault_lost"


class SecretsLost(JournalError):
    """The secrets of an epoch or a slot are lost; it cannot continue, only be abandoned."""

    code = "journal.secrets_lost"


class EpochError(SecureSumError):
    """An epoch that cannot be entered or used."""

    code = "epoch.invalid"
    public_detail = "the site does not enter this epoch"


class UnknownEpoch(EpochError):
    """An epoch that the client has not entered, or not agreed to, according to its journal."""

    code = "epoch.unknown"


class StaleEpoch(EpochError):
    """An epoch number that is not larger than all earlier ones of its run."""

    code = "epoch.stale"


class EpochEnded(EpochError):
    """An epoch that has ended at this client; its secrets are erased."""

    code = "epoch.ended"


class EpochNotReady(EpochError):
    """An epoch in which boxes of some members are still missing."""

    code = "epoch.not_ready"


class SecondEpoch(EpochError):
    """Another list of members for an epoch that the client has already agreed to."""

    code = "epoch.second"


class AdvertForAnotherEpoch(EpochError):
    """An advert made for another session, run or epoch number."""

    code = "epoch.other_advert"


class NotOnRoster(EpochError):
    """A member that the session's roster does not list."""

    code = "epoch.not_on_roster"


class ForgedAdvert(EpochError):
    """An advert that its member has not signed."""

    code = "epoch.forged_advert"


class OwnAdvertMissing(EpochError):
    """A list of adverts without this client's own advert, byte for byte."""

    code = "epoch.own_advert"


class Unpinned(EpochError):
    """A member whose key this site has not confirmed: it would hold the group key."""

    code = "epoch.unpinned"
    public_detail = "a member of the epoch has a key that the site has not confirmed"


class TooFewMembers(EpochError):
    """Fewer members than the least cohort."""

    code = "epoch.too_few"
    public_detail = "the epoch has fewer members than the least cohort requires"


class BadKemKey(EpochError):
    """A key to which nothing can be sealed: malformed, or of low order."""

    code = "epoch.kem_key"


class MissingBox(EpochError):
    """A list of boxes that does not have exactly one box per other member."""

    code = "epoch.missing_box"


class ForgedBox(EpochError):
    """A box that its sender has not signed for this epoch and receiver."""

    code = "epoch.forged_box"


class UnreadableBox(EpochError):
    """A signed box that cannot be opened: its sender is at fault."""

    code = "epoch.unreadable_box"


class WrongGroupPart(EpochError):
    """A part of the group key that does not open its sender's commitment."""

    code = "epoch.group_part"


class TaskError(SecureSumError):
    """A task that the client does not answer."""

    code = "task.invalid"
    public_detail = "the site does not answer this task"


class StaleSlot(TaskError):
    """A slot that is older than the client's newest slot."""

    code = "task.stale"


class SlotNotClosed(TaskError):
    """A slot without proof that the previous slot is closed."""

    code = "task.not_closed"


class SlotAbandoned(TaskError):
    """A slot that the client has helped to abandon."""

    code = "task.abandoned"


class SecondTask(TaskError):
    """A second task for a slot to which the client has already uploaded."""

    code = "task.second"


class WrongState(TaskError):
    """A vector computed from another state than the task names."""

    code = "task.state"


class WrongAuthor(TaskError):
    """A blind task that no member has written, or an open one that a member has."""

    code = "task.author"


class UnreadableState(TaskError):
    """A sealed state that its author has not sealed for this slot and epoch."""

    code = "task.sealed_state"


class TooFewWitnesses(TaskError):
    """A task whose state the client cannot compute, answered by too few others."""

    code = "task.witnesses"


class NotActive(TaskError):
    """A task whose active members do not include the client."""

    code = "task.not_active"


class UnknownRank(TaskError):
    """A rank that no member of the epoch has."""

    code = "task.unknown_rank"


class TooFewActive(TaskError):
    """Fewer active members than the quorum or the least cohort."""

    code = "task.too_few"


class WrongVector(TaskError):
    """A vector whose length or type does not match the task."""

    code = "task.vector"


class WrongEncoding(TaskError):
    """An encoding that does not fit the vector, or whose sum could overflow."""

    code = "task.encoding"


class NoiseMissing(TaskError):
    """An upload without a charged draw of noise under differential privacy, or the reverse."""

    code = "task.noise_missing"


class NoiseReused(TaskError):
    """A draw of noise that was already used for another upload."""

    code = "task.noise_reused"


class CertificateError(SecureSumError):
    """A proposal, certificate or proof of abandonment that the client does not accept."""

    code = "certificate.invalid"
    public_detail = "the site does not accept this set of survivors"


class NotUploaded(CertificateError):
    """A slot to which the client has not uploaded."""

    code = "certificate.not_uploaded"


class DifferentTask(CertificateError):
    """A task, or active members, other than those of the client's own upload."""

    code = "certificate.different_task"


class NotSurvivor(CertificateError):
    """A set of survivors without the client."""

    code = "certificate.not_survivor"


class UnknownSurvivor(CertificateError):
    """A survivor that was not active in the slot."""

    code = "certificate.unknown_survivor"


class TooFewSurvivors(CertificateError):
    """Fewer survivors than the least cohort, or fewer than a quorum."""

    code = "certificate.too_few_survivors"


class AlreadySigned(CertificateError):
    """A second statement about a slot: a client signs only one."""

    code = "certificate.already_signed"


class TooFewSigners(CertificateError):
    """Fewer signers than the quorum."""

    code = "certificate.too_few_signers"


class SignerOutside(CertificateError):
    """A signer who may not sign this statement."""

    code = "certificate.signer_outside"


class ForgedSignature(CertificateError):
    """A signature that is not by the named member, or not on this statement."""

    code = "certificate.forged"


class SecondCertificate(CertificateError):
    """A second certified set of survivors for a slot."""

    code = "certificate.second"


class ClosedOtherwise(CertificateError):
    """A certificate of an abandoned slot, or the abandonment of a certified one."""

    code = "certificate.closed"


class VerificationError(SecureSumError):
    """A total that a member does not use."""

    code = "total.refused"
    public_detail = "the site does not accept this total"


class TotalNotVerified(VerificationError):
    """A total that does not match the members' tags; one error for every way to be wrong."""

    code = "total.not_verified"


class SiteFailed(VerificationError):
    """A verified sum in which a site could not compute its vector: the total is noise."""

    code = "total.site_failed"


class NoUpdate(VerificationError):
    """A verified blind total from which the run cannot go on; one error for every reason.

    The reason follows from the total, which the coordinator must not learn anything else about.
    """

    code = "total.no_update"
    public_detail = "the run cannot go on from a total that every site has verified"


class EndorsementError(SecureSumError):
    """A model, or a certificate of one, that a member does not accept."""

    code = "model.not_endorsed"
    public_detail = "the site does not accept this model"


class SecondEndorsement(EndorsementError):
    """A second, different statement about the model of one run."""

    code = "model.second_endorsement"


class ForgedEndorsement(EndorsementError):
    """A signature on a model that is not by the member that it names."""

    code = "model.forged_endorsement"


class TooFewEndorsements(EndorsementError):
    """A model that fewer known members vouch for than are required."""

    code = "model.too_few_endorsements"


class NotTheEndorsedModel(EndorsementError):
    """A model other than the one that a certificate is about."""

    code = "model.not_the_endorsed"


class UnreadableArchive(EndorsementError):
    """A sealed model that cannot be opened with this member's key."""

    code = "model.archive"


class RepairError(SecureSumError):
    """A request for shares that the client does not open."""

    code = "repair.invalid"
    public_detail = "the site does not open the requested shares"


class NotCertified(RepairError):
    """A slot for which the client has accepted no certificate."""

    code = "repair.not_certified"


class ShareOfOutsider(RepairError):
    """A share of the key of a member that is not in the certified set."""

    code = "repair.outsider"


class SteadyCohortError(SecureSumError):
    """A sum whose difference from an earlier one could expose a member or a patient."""

    code = "cohort.invalid"
    public_detail = "the difference from an earlier sum could expose a member or a patient"


class EpochStillOpen(SteadyCohortError):
    """A data source with uploads in another epoch that is still open."""

    code = "cohort.epoch_open"


class PartialCohort(SteadyCohortError):
    """A sum over only some members of the epoch."""

    code = "cohort.partial"


class CohortChanged(SteadyCohortError):
    """Members other than those with whom the data source was summed before."""

    code = "cohort.changed"
    public_detail = "the site's data source was summed with other members before"


class TableChanged(SteadyCohortError):
    """A table other than the one summed before, without the operator's approval."""

    code = "cohort.table"
    public_detail = "the site's table has changed since it was summed, without its approval"


class SameTable(SteadyCohortError):
    """A table that was summed before under the name of another data source."""

    code = "cohort.same_table"
    public_detail = "the site's table was summed before under another name"


class ConsentMissing(SteadyCohortError):
    """A change of members without the consent of a member that it would expose."""

    code = "cohort.consent_missing"


class ForgedConsent(SteadyCohortError):
    """A consent that its member has not signed."""

    code = "cohort.forged_consent"


class ApprovalMissing(SteadyCohortError):
    """A change without the approval of a named operator of this site."""

    code = "cohort.approval_missing"


class CollectionError(SecureSumError):
    """A message that the coordinator does not accept, or an action that it cannot take yet."""

    code = "collection.invalid"
    public_detail = "a message does not belong to the current stage of the sum"


class OutOfOrder(CollectionError):
    """A message or a request that does not belong to the current stage."""

    code = "collection.out_of_order"


class Conflict(CollectionError):
    """A second message by a member that differs from its first."""

    code = "collection.conflict"


class DraftRefused(CollectionError):
    """A task that a member has written is not one of its run's program."""

    code = "collection.draft"


class NotAMember(CollectionError):
    """A message by someone who is not a member, or may not send it at this stage."""

    code = "collection.not_a_member"


class WrongReceivers(CollectionError):
    """An upload whose shares are not for exactly the other active members."""

    code = "collection.receivers"


class WrongBody(CollectionError):
    """A masked vector whose size does not match the task."""

    code = "collection.body"


class ForgedMessage(CollectionError):
    """A message that its member has not signed."""

    code = "collection.forged"


class WrongSelfKey(CollectionError):
    """A revealed key that is not the one that its member committed to."""

    code = "collection.self_key"


class WrongShare(CollectionError):
    """A returned share that is not the one that its dealer declared: the returner is at fault."""

    code = "collection.share"


class BadDealer(AboutMembers, CollectionError):
    """Declared shares that do not give the committed key: their dealer is at fault."""

    code = "collection.dealer"


class KeysMissing(AboutMembers, CollectionError):
    """Self keys that are neither revealed nor recoverable yet."""

    code = "collection.keys_missing"


class PairKeysOwed(AboutMembers, CollectionError):
    """A silent survivor has not revealed its pair keys with a dropped member: the sum waits."""

    code = "collection.pair_keys"


class InconsistentMasks(CollectionError):
    """The sum of the constants is not the number of survivors: masks did not cancel."""

    code = "collection.inconsistent"


class SumFailed(CollectionError):
    """One site could not compute; each site's log says whether it was it."""

    code = "run.site_failed"
    public_detail = "one site could not compute; each site's log says whether it was it"


class BlindTotal(CollectionError):
    """A total that only members can read."""

    code = "collection.blind"

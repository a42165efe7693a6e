"""Every error that a caller, a member or an admin can cause at the coordinator.

    ServiceError                  service
    ├── NotFound                  not_found                 404
    ├── NotAuthenticated          access.unauthenticated    401
    ├── NotAllowed                access.denied             403
    │   ├── MemberPending         member.pending
    │   ├── MemberSuspended       member.suspended
    │   ├── InvitationInvalid     invitation.invalid
    │   ├── FormForged            form.forged
    │   └── VarianceWithheld      prediction.variance_withheld
    ├── Conflict                  conflict                  409
    │   ├── NameTaken             name.taken
    │   ├── InvitationUsed        invitation.used
    │   ├── KeyKnown              member.key_known
    │   ├── RosterFull            session.full
    │   ├── SessionHasRuns        session.has_runs
    │   ├── RunOpen               run.open
    │   ├── RunEnded              run.ended
    │   ├── RunNotEnded           run.not_ended
    │   ├── TooFewMembers         run.too_few_members
    │   ├── MembersOnly           model.members_only
    │   ├── NotCertified          model.not_certified
    │   ├── SamplesNotAsked       samples.not_asked
    │   ├── SamplesDiffer         samples.differ
    │   └── SamplesWithdrawn      samples.withdrawn
    ├── LengthRequired            request.length            411
    ├── RunRefused                run.refused               422
    ├── BodyTooLarge              request.too_large         413
    ├── BodyTooSlow               request.too_slow          408
    ├── RateExceeded              rate.exceeded             429, with `retry_after_s`
    ├── NoRoom                    upload.no_room            503: send the same request again later
    │   ├── UploadUnderWay        upload.under_way
    │   └── SpoolFull             upload.spool_full
    ├── NotReady                  not_ready                 503
    ├── FormUnreadable            form.unreadable           422
    ├── TableTooLong              table.too_long            413
    ├── ArrowRefused              arrow.refused             422
    ├── AliasInvalid              alias.invalid             422
    ├── ModelDamaged              model.damaged             500
    ├── SessionRefused            session.refused           422, with all `problems`
    ├── PrivacyIncomplete         privacy.incomplete        422
    ├── ProtocolMismatch          protocol.mismatch         426, with `newest` and `oldest`
    ├── SettingsError             settings.invalid          (at startup, never over HTTP)
    ├── DirectoryInUse            data_dir.in_use           (at startup, never over HTTP)
    └── DatabaseOfAnotherVersion  database.other_version    (at startup, never over HTTP)

Each error has a stable `code`, an HTTP `status`, and a message that says what is wrong with which
value and what to do. `service.http.problems` turns them into RFC 9457 documents, and also the
errors of `kernels` and `privacy`, whose codes are kept. The first line of each class's docstring is
the description of its code in the API contract.
"""

from collections.abc import Sequence
from typing import ClassVar


class ServiceError(Exception):
    """Root of the tree."""

    code: ClassVar[str] = "service"
    status: ClassVar[int] = 400


class NotFound(ServiceError):
    """The resource does not exist, or the requester has no access to it."""

    code = "not_found"
    status = 404


class NotAuthenticated(ServiceError):
    """The request has no valid credentials."""

    code = "access.unauthenticated"
    status = 401


class NotAllowed(ServiceError):
    """The requester is not allowed to do this."""

    code = "access.denied"
    status = 403


class MemberPending(NotAllowed):
    """The member is not approved yet; until then it can only read its membership."""

    code = "member.pending"


class MemberSuspended(NotAllowed):
    """The member is suspended by the admin."""

    code = "member.suspended"


class InvitationInvalid(NotAllowed):
    """The invitation is unknown, expired or revoked; the answer does not tell which."""

    code = "invitation.invalid"


class FormForged(NotAllowed):
    """A form of the page was not sent by the page, or before its browser signed in again."""

    code = "form.forged"


class VarianceWithheld(NotAllowed):
    """The request is for values that could reveal which rows a small model was trained on."""

    code = "prediction.variance_withheld"


class Conflict(ServiceError):
    """The request contradicts the current state."""

    code = "conflict"
    status = 409


class NameTaken(Conflict):
    """The name, or one that looks the same, is already in use."""

    code = "name.taken"


class InvitationUsed(Conflict):
    """The invitation has been used, by another key or before it was revoked."""

    code = "invitation.used"


class KeyKnown(Conflict):
    """The key already belongs to a member of this session with another name."""

    code = "member.key_known"


class RosterFull(Conflict):
    """The session already has as many members as a sum can have."""

    code = "session.full"


class SessionHasRuns(Conflict):
    """The session cannot be deleted, because it has runs and possibly models."""

    code = "session.has_runs"


class RunOpen(Conflict):
    """The session already has an open run; only one can be open at a time."""

    code = "run.open"


class RunEnded(Conflict):
    """The run has ended and accepts nothing more."""

    code = "run.ended"


class RunNotEnded(Conflict):
    """The run is still open and cannot be started again."""

    code = "run.not_ended"


class TooFewMembers(Conflict):
    """The session has fewer approved members than a sum needs."""

    code = "run.too_few_members"


class MembersOnly(Conflict):
    """Only the hospitals of its session have the model; the coordinator never had it."""

    code = "model.members_only"


class NotCertified(Conflict):
    """No quorum of hospitals has signed the model, and no admin has allowed it all the same."""

    code = "model.not_certified"


class SamplesNotAsked(Conflict):
    """The run does not request samples, or has not produced its model yet."""

    code = "samples.not_asked"


class SamplesDiffer(Conflict):
    """The samples differ from those that the member has already uploaded."""

    code = "samples.differ"


class SamplesWithdrawn(Conflict):
    """The member has withdrawn its samples from this run, which is final."""

    code = "samples.withdrawn"


class LengthRequired(ServiceError):
    """The body has no valid Content-Length, or does not have the length that it states."""

    code = "request.length"
    status = 411


class RunRefused(ServiceError):
    """A run of this kind does not fit the session's program or the model."""

    code = "run.refused"
    status = 422


class BodyTooLarge(ServiceError):
    """The body is longer than this route accepts."""

    code = "request.too_large"
    status = 413


class BodyTooSlow(ServiceError):
    """The body took longer to arrive than the coordinator waits."""

    code = "request.too_slow"
    status = 408


class NoRoom(ServiceError):
    """The upload cannot be received now; send it again later."""

    code = "upload.no_room"
    status = 503


class UploadUnderWay(NoRoom):
    """Another upload of the same member is still being received."""

    code = "upload.under_way"


class SpoolFull(NoRoom):
    """There is no space for another upload while the present ones are being received."""

    code = "upload.spool_full"


class NotReady(ServiceError):
    """A part that every request needs is failing."""

    code = "not_ready"
    status = 503


class RateExceeded(ServiceError):
    """The caller's token has exceeded its rate limit."""

    code = "rate.exceeded"
    status = 429

    def __init__(self, sentence: str, *, retry_after_s: int) -> None:
        super().__init__(sentence)
        self.retry_after_s = retry_after_s


class FormUnreadable(ServiceError):
    """The body is not a form of the page."""

    code = "form.unreadable"
    status = 422


class TableTooLong(ServiceError):
    """The table has more rows than one prediction request may have."""

    code = "table.too_long"
    status = 413


class ArrowRefused(ServiceError):
    """The body is not an Arrow stream, or one that could expand beyond its own bytes."""

    code = "arrow.refused"
    status = 422


class AliasInvalid(ServiceError):
    """The name does not have the form of an alias."""

    code = "alias.invalid"
    status = 422


class ModelDamaged(ServiceError):
    """The stored model does not match its id."""

    code = "model.damaged"
    status = 500


class SessionRefused(ServiceError):
    """The session is refused; `problems` lists everything that is wrong with it."""

    code = "session.refused"
    status = 422

    def __init__(self, problems: Sequence[Exception]) -> None:
        super().__init__("\n  - ".join(["the session is refused:", *map(str, problems)]))
        self.problems = tuple(problems)


class PrivacyIncomplete(ServiceError):
    """Differential privacy is on without its parameters, or has parameters although it is off."""

    code = "privacy.incomplete"
    status = 422


class ProtocolMismatch(ServiceError):
    """The coordinator does not support the protocol of the request (`Veilgp-Protocol`)."""

    code = "protocol.mismatch"
    status = 426


class SettingsError(ServiceError):
    """A setting is unknown or invalid, or the settings file cannot be read."""

    code = "settings.invalid"


class DirectoryInUse(ServiceError):
    """Another coordinator is using this data directory."""

    code = "data_dir.in_use"


class DatabaseOfAnotherVersion(ServiceError):
    """The database was created by another version of veilgp."""

    code = "database.other_version"

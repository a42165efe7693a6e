"""Every error that a caller, a member or an admin can cause at the coordinator.

    ServiceError                  service
    ├── NotFound                  not_found                 404
    ├── NotAuthenticated          access.unauthenticated    401
    ├── NotAllowed                access.denied             403
    │   ├── MemberPending         member.pending
    │   ├── MemberSuspended       member.suspended
    │   ├── InvitationInvalid     invitation.invalid
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
    │   ├── SamplesNotAsked       samples.not_asked
    │   ├── SamplesDiffer         samples.differ
    │   └── SamplesWithdrawn      samples.withdrawn
    ├── LengthRequired            request.length            411
    ├── RunRefused                run.refused               422
    ├── BodyTooLarge              request.too_large         413
    ├── BodyTooSlow               request.too_slow          408
    ├── RateExceeded              rate.exceeded             429, with `retry_after_s`
    ├── NoRoom                    upload.no_room            503: the same again, later
    │   ├── UploadUnderWay        upload.under_way
    │   └── SpoolFull             upload.spool_full
    ├── NotReady                  not_ready                 503
    ├── TableTooLong              table.too_long            413
    ├── AliasInvalid              alias.invalid             422
    ├── ModelDamaged              model.damaged             500
    ├── SessionRefused            session.refused           422, with all its `problems`
    ├── PrivacyIncomplete         privacy.incomplete        422
    ├── ProtocolMismatch          protocol.mismatch         426, with `newest` and `oldest`
    ├── SettingsError             settings.invalid          (at the start, never over HTTP)
    ├── DirectoryInUse            data_dir.in_use           (likewise)
    └── DatabaseOfAnotherVersion  database.other_version    (likewise)

Each has a stable `code`, an HTTP `status`, a sentence that says what is wrong with which value and
what to do. `service.http.problems` makes RFC 9457 documents of them, and of the errors of `kernels`
and `privacy`, whose codes pass through.
"""

from collections.abc import Sequence
from typing import ClassVar


class ServiceError(Exception):
    """Root of the tree."""

    code: ClassVar[str] = "service"
    status: ClassVar[int] = 400


class NotFound(ServiceError):
    """Nothing of this name is here, or the one who asks may not know of it."""

    code = "not_found"
    status = 404


class NotAuthenticated(ServiceError):
    """The request does not say who asks, or not so that it can be believed."""

    code = "access.unauthenticated"
    status = 401


class NotAllowed(ServiceError):
    """Who asks may not do this."""

    code = "access.denied"
    status = 403


class MemberPending(NotAllowed):
    """A member that the admin has not approved yet asks for more than its membership."""

    code = "member.pending"


class MemberSuspended(NotAllowed):
    """A member that the admin has suspended asks for anything."""

    code = "member.suspended"


class InvitationInvalid(NotAllowed):
    """An invitation that is unknown, expired or revoked; which of them is not said."""

    code = "invitation.invalid"


class VarianceWithheld(NotAllowed):
    """A caller asks for what would tell which rows a small model was trained on."""

    code = "prediction.variance_withheld"


class Conflict(ServiceError):
    """What is asked for contradicts what is there."""

    code = "conflict"
    status = 409


class NameTaken(Conflict):
    """A name that something here has already, or one that looks the same."""

    code = "name.taken"


class InvitationUsed(Conflict):
    """An invitation that another key has used, or that is too late to revoke."""

    code = "invitation.used"


class KeyKnown(Conflict):
    """A key that is a member of this session already, under another name."""

    code = "member.key_known"


class RosterFull(Conflict):
    """A session that has as many members as a sum can have."""

    code = "session.full"


class SessionHasRuns(Conflict):
    """A session whose runs and models would be lost with it."""

    code = "session.has_runs"


class RunOpen(Conflict):
    """A session runs one program at a time, and one is open."""

    code = "run.open"


class RunEnded(Conflict):
    """A run that has ended takes nothing more."""

    code = "run.ended"


class RunNotEnded(Conflict):
    """A run that is open cannot be started again."""

    code = "run.not_ended"


class TooFewMembers(Conflict):
    """A session with fewer approved members than a sum needs."""

    code = "run.too_few_members"


class SamplesNotAsked(Conflict):
    """Samples for a run that asks for none, or that has made no model yet."""

    code = "samples.not_asked"


class SamplesDiffer(Conflict):
    """Other samples of a member than those that it has shown already."""

    code = "samples.differ"


class SamplesWithdrawn(Conflict):
    """Samples for a run that the member has withdrawn from, which is for good."""

    code = "samples.withdrawn"


class LengthRequired(ServiceError):
    """A vector whose size is not announced, or not its own."""

    code = "request.length"
    status = 411


class RunRefused(ServiceError):
    """A run of a kind that this session's program, or this model, does not allow."""

    code = "run.refused"
    status = 422


class BodyTooLarge(ServiceError):
    """A request's body is longer than this route reads."""

    code = "request.too_large"
    status = 413


class BodyTooSlow(ServiceError):
    """A request's body took longer to arrive than this coordinator waits."""

    code = "request.too_slow"
    status = 408


class NoRoom(ServiceError):
    """A vector that cannot arrive now; its sender keeps it and tries again."""

    code = "upload.no_room"
    status = 503


class UploadUnderWay(NoRoom):
    """A second vector of a member, while its first is arriving."""

    code = "upload.under_way"


class SpoolFull(NoRoom):
    """More vectors at once than there is room for."""

    code = "upload.spool_full"


class NotReady(ServiceError):
    """Something that every request needs is not well."""

    code = "not_ready"
    status = 503


class RateExceeded(ServiceError):
    """A caller asks for more, sooner, than its token may."""

    code = "rate.exceeded"
    status = 429

    def __init__(self, sentence: str, *, retry_after_s: int) -> None:
        super().__init__(sentence)
        self.retry_after_s = retry_after_s


class TableTooLong(ServiceError):
    """A table to predict has more rows than one request may have."""

    code = "table.too_long"
    status = 413


class AliasInvalid(ServiceError):
    """A name that cannot be an alias."""

    code = "alias.invalid"
    status = 422


class ModelDamaged(ServiceError):
    """A stored model is not what its id stands for."""

    code = "model.damaged"
    status = 500


class SessionRefused(ServiceError):
    """A session is refused; `problems` are all that is wrong with it, not the first."""

    code = "session.refused"
    status = 422

    def __init__(self, problems: Sequence[Exception]) -> None:
        super().__init__("\n  - ".join(["the session is refused:", *map(str, problems)]))
        self.problems = tuple(problems)


class PrivacyIncomplete(ServiceError):
    """Differential privacy is asked for without saying how much, or how much without asking."""

    code = "privacy.incomplete"
    status = 422


class ProtocolMismatch(ServiceError):
    """A request speaks a protocol that this coordinator does not (`Veilgp-Protocol`)."""

    code = "protocol.mismatch"
    status = 426


class SettingsError(ServiceError):
    """A setting is unknown or impossible, or its file cannot be read."""

    code = "settings.invalid"


class DirectoryInUse(ServiceError):
    """Another coordinator runs on this data directory."""

    code = "data_dir.in_use"


class DatabaseOfAnotherVersion(ServiceError):
    """The database has tables that another version of veilgp has made."""

    code = "database.other_version"

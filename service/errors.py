"""Every error that a caller, a member or an admin can cause at the coordinator.

    ServiceError                  service
    ├── NotFound                  not_found                 404
    ├── NotAllowed                access.denied             403
    │   └── NotSuspended…         (further down: see each class)
    └── …

Each has a stable `code`, an HTTP `status`, a sentence that says what is wrong with which value and
what to do. `service.problems` makes RFC 9457 documents of them, and of the errors of `kernels` and
`privacy`, whose codes pass through.
"""

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


class Conflict(ServiceError):
    """What is asked for contradicts what is there."""

    code = "conflict"
    status = 409

"""Authentication, as dependency types for the signatures of routes.

    Admin            an admin's token
    Watcher          an admin's token, or a browser in which an admin has signed in: may watch runs
    Caller           a caller's token, or an admin's
    ApprovedMember   an approved member of the session in the path, by a signed request
    EnrolledMember   an approved member, or one that still waits for approval
    AnyMember        a member of any status, suspended ones included: may withdraw its samples
    Signer           the signer of the request, whose key may be unknown
    Reader           an admin, a caller, or an approved member of any session: may read models
    MemberReader     an approved member of any session: may read what only members can open

These checks come before the body is read; a signed body is checked by `service.http.bodies`. A path
names its session `{session_id}`. A signer who is not a member of a session gets the same answer as
if the session did not exist.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request
from sqlalchemy import bindparam, select

from privacy.errors import BadSignature
from privacy.requests import SCHEME, SignedRequest, host_of
from service.context import Context, Here
from service.database.tables import members
from service.errors import MemberPending, MemberSuspended, NotAllowed, NotAuthenticated, NotFound
from service.http import sign_in, tokens
from service.http.connections import authenticated
from service.http.declarations import ADMIN, CALLER, MEMBER, declares
from service.http.nonces import remember
from service.http.problems import UNBELIEVED
from service.http.tokens import Role, Token
from service.settings import is_loopback

PENDING, APPROVED, SUSPENDED = "pending", "approved", "suspended"
"""A member's status."""
# Every request of a member runs this query: building it once makes it five times faster.
_MEMBER = select(members.c.name, members.c.status).where(
    members.c.session_id == bindparam("session_id"), members.c.key == bindparam("key")
)
_HOST = re.compile(r"([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]+)?")


@dataclass(frozen=True)
class ModelAccess:
    """The models that a requester may use or read."""

    everything: bool = False
    names: frozenset[str] = frozenset()
    """Ids and aliases that a caller's token lists."""
    sessions: frozenset[str] = frozenset()
    """Sessions of which the requester is an approved member."""
    caller_id: str | None = None
    """Id of a caller's token, for its rate limit; None for an admin or a member."""
    trusted: bool = False
    """Of a caller: whether an admin lets it have whatever a model reveals of its rows."""

    def allows(self, *names: str, session_id: str | None = None) -> bool:
        """Whether a model with these names (id and aliases) of this session is among them."""
        return self.everything or session_id in self.sessions or not self.names.isdisjoint(names)


@dataclass(frozen=True)
class MemberAccess:
    """A member of the session in the path, and the digest that it has signed."""

    session_id: str
    key: bytes
    name: str
    status: str
    digest: bytes
    """The SHA-256 that the body must have."""


@declares(NotAuthenticated, NotAllowed, security=(ADMIN,))
def require_admin(request: Request, here: Here) -> Token:
    """Return the admin's token, or refuse the request."""
    token = _token(request, here)
    if token.role is not Role.ADMIN:
        raise NotAllowed(
            "This request needs an admin token; a caller's token only allows predictions."
        )
    return token


@declares(NotAuthenticated, NotAllowed, security=(ADMIN,))
def _watcher(request: Request, here: Here) -> Token:
    if "Authorization" in request.headers:
        return require_admin(request, here)
    with here.database.reading() as connection:
        token = sign_in.find(connection, request.cookies, now=here.clock())
    if token is None:
        raise _unknown()
    authenticated(request)
    return token


@declares(NotAuthenticated, security=(CALLER, ADMIN))
def _caller(request: Request, here: Here) -> ModelAccess:
    token = _token(request, here)
    if token.role is Role.ADMIN:
        return ModelAccess(everything=True)
    return ModelAccess(names=token.models, caller_id=token.id, trusted=token.trusted)


@declares(NotAuthenticated, NotFound, *UNBELIEVED, security=(CALLER, ADMIN, MEMBER))
def _reader(request: Request, here: Here) -> ModelAccess:
    if not request.headers.get("Authorization", "").startswith(SCHEME):
        return _caller(request, here)
    return _member_reader(request, here)


@declares(NotFound, *UNBELIEVED, security=(MEMBER,))
def _member_reader(request: Request, here: Here) -> ModelAccess:
    signed = _signed(request, here)
    with here.database.reading() as connection:
        rows = connection.execute(
            select(members.c.session_id).where(
                members.c.key == signed.key, members.c.status == APPROVED
            )
        )
        sessions = frozenset(rows.scalars())
    if not sessions:
        raise NotFound("The model does not exist, or you have no access to it.")
    _once(request, signed, here)
    return ModelAccess(sessions=sessions)


@declares(*UNBELIEVED, NotFound, MemberSuspended, security=(MEMBER,))
def _enrolled_member(request: Request, session_id: str, here: Here) -> MemberAccess:
    signed, member = _on_roster(request, session_id, here)
    if member.status == SUSPENDED:
        raise MemberSuspended(
            f"The member {member.name!r} is suspended; ask the session's admin for the reason."
        )
    _once(request, signed, here)
    return member


@declares(*UNBELIEVED, NotFound, security=(MEMBER,))
def _any_member(request: Request, session_id: str, here: Here) -> MemberAccess:
    signed, member = _on_roster(request, session_id, here)
    _once(request, signed, here)
    return member


@declares(MemberPending)
async def _approved_member(
    member: Annotated[MemberAccess, Depends(_enrolled_member)],
) -> MemberAccess:
    # No I/O, so it runs in the event loop, which saves every request a thread.
    if member.status != APPROVED:
        raise MemberPending(
            f"The member {member.name!r} waits for approval; the admin will compare its "
            "fingerprint with you first."
        )
    return member


@declares(*UNBELIEVED, security=(MEMBER,))
def _signer(request: Request, here: Here) -> SignedRequest:
    # Its nonce is stored together with the enrolment: a stranger's request writes nothing.
    return _signed(request, here)


Admin = Annotated[Token, Depends(require_admin)]
Watcher = Annotated[Token, Depends(_watcher)]
Caller = Annotated[ModelAccess, Depends(_caller)]
Reader = Annotated[ModelAccess, Depends(_reader)]
MemberReader = Annotated[ModelAccess, Depends(_member_reader)]
ApprovedMember = Annotated[MemberAccess, Depends(_approved_member)]
EnrolledMember = Annotated[MemberAccess, Depends(_enrolled_member)]
AnyMember = Annotated[MemberAccess, Depends(_any_member)]
Signer = Annotated[SignedRequest, Depends(_signer)]


def _token(request: Request, here: Context) -> Token:
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    with here.database.reading() as connection:
        token = tokens.find(connection, secret.strip(), now=here.clock())
    # A browser's page token is only valid in its cookie.
    if token is None or scheme.lower() != "bearer" or token.role is Role.PAGE:
        raise _unknown()
    authenticated(request)
    return token


def _unknown() -> NotAuthenticated:
    return NotAuthenticated(
        'This request needs a valid token: "Authorization: Bearer vgp_…". The admin token was '
        "printed when the coordinator was first started; `veilgp token reset` on the coordinator's "
        "machine makes a new one. Callers get their token from an admin."
    )


def _signed(request: Request, here: Context) -> SignedRequest:
    signed = SignedRequest.parse(request.headers.get("Authorization", ""))
    check = partial(
        signed.check, method=request.method, target=_target(request), now_ms=_now_ms(here)
    )
    *others, own = _own_hosts(request, here)
    for host in others:
        with suppress(BadSignature):
            check(host=host)
            return signed
    check(host=own)
    return signed


def _on_roster(
    request: Request, session_id: str, here: Context
) -> tuple[SignedRequest, MemberAccess]:
    """Return the signer, a member of any status; a stranger's request writes nothing."""
    signed = _signed(request, here)
    with here.database.reading() as connection:
        wanted = {"session_id": session_id, "key": signed.key}
        row = connection.execute(_MEMBER, wanted).one_or_none()
    if row is None:
        raise NotFound("The session does not exist, or your key is not one of its members.")
    return signed, MemberAccess(session_id, signed.key, row.name, row.status, signed.digest)


def _own_hosts(request: Request, here: Context) -> list[str]:
    """Return the host names that a request to this coordinator may have been signed for.

    With a `public_url` it is that URL's host, whatever a proxy puts into the Host header: a request
    that was signed for another coordinator is invalid here. A loopback host is accepted as well,
    for requests from this machine. Without a `public_url` the Host header is used.
    """
    host = request.headers.get("Host", "").lower()
    public = here.settings.public_url
    if public is None:
        return [host]
    local = urlsplit(f"//{host}").hostname if _HOST.fullmatch(host) else None
    return [*([host] if local and is_loopback(local) else []), host_of(public)]


def _once(request: Request, signed: SignedRequest, here: Context) -> None:
    """Refuse a member's request that was sent before; the connection is known from now on."""
    with here.database.changing(lasting=False, alone=False) as connection:
        remember(connection, signed, now_ms=_now_ms(here))
    authenticated(request)


def _target(request: Request) -> str:
    """Return the path and query as the client sent them, not as the framework decoded them."""
    path, query = request.scope["raw_path"], request.scope["query_string"]
    target: bytes = path + b"?" + query if query else path
    # Bytes that are not ASCII are replaced, and then no signature matches.
    return target.decode("ascii", "replace")


def _now_ms(here: Context) -> int:
    return int(here.clock() * 1000)

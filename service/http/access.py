"""Who asks, as types for the signatures of routes.

    Admin            an admin's token
    Watcher          the same, or a browser in which an admin has signed in: who may see how runs go
    Caller           a caller's token, or an admin's
    ApprovedMember   an approved member of the session in the path, by a signed request
    EnrolledMember   the same, or one that still waits for approval
    AnyMember        the same, or one that is suspended: who may withdraw what is its own
    Signer           whoever signed the request, with a key that may be unknown
    Reader           an admin, a caller, or an approved member of any session: who may read a model

Checks come before the body is read; a body that was signed is checked by `service.http.bodies`. A
path names its session `{session_id}`. A session that the one who asks is no member of is answered
like one that does not exist.
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
from service.http.declarations import ADMIN, CALLER, MEMBER, declares
from service.http.nonces import remember
from service.http.problems import UNBELIEVED
from service.http.tokens import Role, Token
from service.settings import is_loopback

PENDING, APPROVED, SUSPENDED = "pending", "approved", "suspended"
"""A member's status."""
# Every request of a member asks this: built once, it costs a fifth.
_MEMBER = select(members.c.name, members.c.status).where(
    members.c.session_id == bindparam("session_id"), members.c.key == bindparam("key")
)
_HOST = re.compile(r"([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]+)?")


@dataclass(frozen=True)
class ModelAccess:
    """Which models may be used, or read."""

    everything: bool = False
    names: frozenset[str] = frozenset()
    """Ids and aliases that a caller's token names."""
    sessions: frozenset[str] = frozenset()
    """Sessions whose models these are a member's own."""
    caller_id: str | None = None
    """The token of a caller, whose requests are limited; None for an admin or a member."""

    def allows(self, *names: str, session_id: str | None = None) -> bool:
        """Whether a model with this id and these aliases, made by this session, is among them."""
        return self.everything or session_id in self.sessions or not self.names.isdisjoint(names)


@dataclass(frozen=True)
class MemberAccess:
    """A member of the session in the path, and what it has signed."""

    session_id: str
    key: bytes
    name: str
    status: str
    digest: bytes
    """The SHA-256 that the body must have."""


@declares(NotAuthenticated, NotAllowed, security=(ADMIN,))
def require_admin(request: Request, here: Here) -> Token:
    """Give an admin's token, or refuse."""
    token = _token(request, here)
    if token.role is not Role.ADMIN:
        raise NotAllowed("This needs the admin's token; a caller's only asks for predictions.")
    return token


@declares(NotAuthenticated, NotAllowed, security=(ADMIN,))
def _watcher(request: Request, here: Here) -> Token:
    if "Authorization" in request.headers:
        return require_admin(request, here)
    with here.database.reading() as connection:
        token = sign_in.find(connection, request.cookies, now=here.clock())
    if token is None:
        raise _unknown()
    return token


@declares(NotAuthenticated, security=(CALLER, ADMIN))
def _caller(request: Request, here: Here) -> ModelAccess:
    token = _token(request, here)
    if token.role is Role.ADMIN:
        return ModelAccess(everything=True)
    return ModelAccess(names=token.models, caller_id=token.id)


@declares(NotAuthenticated, NotFound, *UNBELIEVED, security=(CALLER, ADMIN, MEMBER))
def _reader(request: Request, here: Here) -> ModelAccess:
    if not request.headers.get("Authorization", "").startswith(SCHEME):
        return _caller(request, here)
    signed = _signed(request, here)
    with here.database.reading() as connection:
        rows = connection.execute(
            select(members.c.session_id).where(
                members.c.key == signed.key, members.c.status == APPROVED
            )
        )
        sessions = frozenset(rows.scalars())
    if not sessions:
        raise NotFound("No such model.")
    _once(signed, here)
    return ModelAccess(sessions=sessions)


@declares(*UNBELIEVED, NotFound, MemberSuspended, security=(MEMBER,))
def _enrolled_member(request: Request, session_id: str, here: Here) -> MemberAccess:
    signed, member = _on_roster(request, session_id, here)
    if member.status == SUSPENDED:
        raise MemberSuspended(
            f"The admin has suspended {member.name!r}; ask who runs the session about the reason."
        )
    _once(signed, here)
    return member


@declares(*UNBELIEVED, NotFound, security=(MEMBER,))
def _any_member(request: Request, session_id: str, here: Here) -> MemberAccess:
    signed, member = _on_roster(request, session_id, here)
    _once(signed, here)
    return member


@declares(MemberPending)
async def _approved_member(
    member: Annotated[MemberAccess, Depends(_enrolled_member)],
) -> MemberAccess:
    # No I/O: in the event loop, which spares every request a thread.
    if member.status != APPROVED:
        raise MemberPending(
            f"{member.name!r} is enrolled and waits for the admin, who compares the fingerprint "
            "with you before approving."
        )
    return member


@declares(*UNBELIEVED, security=(MEMBER,))
def _signer(request: Request, here: Here) -> SignedRequest:
    # Its nonce is remembered with the enrolment: a stranger's request writes nothing.
    return _signed(request, here)


Admin = Annotated[Token, Depends(require_admin)]
Watcher = Annotated[Token, Depends(_watcher)]
Caller = Annotated[ModelAccess, Depends(_caller)]
Reader = Annotated[ModelAccess, Depends(_reader)]
ApprovedMember = Annotated[MemberAccess, Depends(_approved_member)]
EnrolledMember = Annotated[MemberAccess, Depends(_enrolled_member)]
AnyMember = Annotated[MemberAccess, Depends(_any_member)]
Signer = Annotated[SignedRequest, Depends(_signer)]


def _token(request: Request, here: Context) -> Token:
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    with here.database.reading() as connection:
        token = tokens.find(connection, secret.strip(), now=here.clock())
    # What a browser keeps is for its cookie alone.
    if token is None or scheme.lower() != "bearer" or token.role is Role.PAGE:
        raise _unknown()
    return token


def _unknown() -> NotAuthenticated:
    return NotAuthenticated(
        'This needs a token that is valid: "Authorization: Bearer vgp_…". An admin finds '
        "theirs where the coordinator was first started, or makes a new one there with "
        '"veilgp token reset"; a caller asks an admin.'
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
    """Give who signed, of any status; strangers leave nothing behind, not even a nonce."""
    signed = _signed(request, here)
    with here.database.reading() as connection:
        wanted = {"session_id": session_id, "key": signed.key}
        row = connection.execute(_MEMBER, wanted).one_or_none()
    if row is None:
        raise NotFound("No such session.")
    return signed, MemberAccess(session_id, signed.key, row.name, row.status, signed.digest)


def _own_hosts(request: Request, here: Context) -> list[str]:
    """Give what members may call this coordinator in what they sign.

    With a `public_url` that is its host, whatever a proxy makes of the header: what a member has
    signed for another coordinator is worthless here. On this machine itself it has another name.
    Without, it does not know its name, and takes the header's word.
    """
    host = request.headers.get("Host", "").lower()
    public = here.settings.public_url
    if public is None:
        return [host]
    local = urlsplit(f"//{host}").hostname if _HOST.fullmatch(host) else None
    return [*([host] if local and is_loopback(local) else []), host_of(public)]


def _once(signed: SignedRequest, here: Context) -> None:
    with here.database.changing(lasting=False, alone=False) as connection:
        remember(connection, signed, now_ms=_now_ms(here))


def _target(request: Request) -> str:
    """Give the path with its query as the client sent them, not as a framework has decoded them."""
    path, query = request.scope["raw_path"], request.scope["query_string"]
    target: bytes = path + b"?" + query if query else path
    # A byte that is not ASCII becomes another: no signature fits then.
    return target.decode("ascii", "replace")


def _now_ms(here: Context) -> int:
    return int(here.clock() * 1000)

"""Links to a session: a join link, or the session's address once a hospital is enrolled.

    https://host[:port]/join/<session id>#<secret>     shown once to the person who invites
    https://host[:port]/sessions/<session id>          afterwards

The secret is in the fragment, which browsers and proxies do not send. No repr contains it.

>>> SessionLink.parse("https://gp.example/join/00000000-0000-0000-0000-000000000001#secret")
SessionLink('https://gp.example', session 00000000-0000-0000-0000-000000000001, with an invitation)
"""

import ipaddress
import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from uuid import UUID

from client_sdk.errors import LinkError

_PATH = re.compile(
    r"/(join|sessions)/([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})/?"
)
_SECRET = re.compile(r"[A-Za-z0-9_.~-]{1,200}")


@dataclass(frozen=True, repr=False)
class SessionLink:
    """A coordinator's origin, a session's id, and the invitation's secret if it is a join link."""

    origin: str
    session: UUID
    secret: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, text: str, *, allow_http: bool = False) -> "SessionLink":
        """Read a link; error messages never repeat it, because it contains the secret."""
        try:
            parts = urlsplit(text.strip())
            port = parts.port
        except ValueError as error:
            raise LinkError("the link is not a valid address: copy the whole link again") from error
        found = _PATH.fullmatch(parts.path)
        if parts.scheme not in ("https", "http") or not parts.hostname or found is None:
            raise LinkError(
                "the link must be https://host/join/<id>#<secret>, as shown in the invitation, or "
                "https://host/sessions/<id> once this hospital is enrolled"
            )
        if parts.username is not None or parts.password is not None or parts.query:
            raise LinkError("the link must not contain a user, password or query: copy it again")
        if parts.scheme == "http" and not (allow_http or _is_here(parts.hostname)):
            raise LinkError(
                "the link uses http: anyone on the network path could read the invitation and "
                "enrol in place of this hospital. Ask for an https link, or, in a network that you "
                "trust, pass --allow-http (allow_http=True)"
            )
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        # One form of one address: the session is known by it (`client_sdk.home.addresses`).
        usual = port is None or port == {"https": 443, "http": 80}[parts.scheme]
        origin = f"{parts.scheme}://{host}" + ("" if usual else f":{port}")
        joining = found[1] == "join"
        if joining and not _SECRET.fullmatch(parts.fragment):
            raise LinkError(
                "the secret after the # of this join link is missing or incomplete: put the link "
                "in quotes in a shell. If this hospital is enrolled, use https://host/sessions/<id>"
            )
        return cls(origin, UUID(found[2]), parts.fragment if joining else None)

    @property
    def address(self) -> str:
        """The session's address, without the secret."""
        return f"{self.origin}/sessions/{self.session}"

    def __repr__(self) -> str:
        invited = ", with an invitation" if self.secret is not None else ""
        return f"SessionLink({self.origin!r}, session {self.session}{invited})"


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

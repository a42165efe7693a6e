"""A member's signed request: an HTTP header, made by the client and checked by the service.

    Authorization: Veilgp key="…", time="…", nonce="…", digest="…", signature="…"

All values are lower-case hexadecimal, except the time, which is milliseconds since 1970. The
signature has its own label and covers the method, the host as in the Host header, the path with its
query, the time, the nonce and the SHA-256 of the body. So a request cannot be changed, or passed on
to another coordinator that checks its own host name, or sent much later. Within the time window,
the receiver remembers the nonces it has seen and raises `Replayed`. Someone who has stolen a link
or a token, but not the key, cannot make requests.

>>> from hashlib import sha256
>>> from privacy.identity import Identity
>>> identity = Identity.from_bytes(bytes(range(32)))
>>> header = sign_request(
...     identity,
...     method="GET",
...     host="gp.example",
...     target="/sessions",
...     digest=sha256(b"").digest(),
...     now_ms=1000,
...     nonce=bytes(16),
... )
>>> request = SignedRequest.parse(header)
>>> request.check(method="GET", host="gp.example", target="/sessions", now_ms=1500)
>>> request.check(method="GET", host="other.example", target="/sessions", now_ms=1500)
Traceback (most recent call last):
privacy.errors.BadSignature: ...
"""

import re
from dataclasses import dataclass

from privacy.errors import BadRequestHeader, ClockSkew
from privacy.framing import Label
from privacy.identity import Identity, check_key, verify

SCHEME = "Veilgp"
WINDOW_MS = 5 * 60 * 1000
"""The largest difference between a request's time and its receiver's clock."""
NONCE_BYTES = 16

_HEADER = re.compile(
    r'Veilgp key="([0-9a-f]{64})", time="([0-9]{1,15})", nonce="([0-9a-f]{32})", '
    r'digest="([0-9a-f]{64})", signature="([0-9a-f]{128})"'
)


@dataclass(frozen=True)
class SignedRequest:
    """The content of the header; nothing in it can be trusted before `check`."""

    key: bytes
    time_ms: int
    nonce: bytes
    digest: bytes
    signature: bytes

    @classmethod
    def parse(cls, header: str) -> "SignedRequest":
        """Read the header; refuse any other form."""
        match = _HEADER.fullmatch(header)
        if match is None:
            raise BadRequestHeader(
                f"A member's request must be signed: \"Authorization: {SCHEME} key=…, time=…, "
                'nonce=…, digest=…, signature=…". This header is missing or malformed.'
            )
        key, time, nonce, digest, signature = match.groups()
        return cls(
            bytes.fromhex(key),
            int(time),
            bytes.fromhex(nonce),
            bytes.fromhex(digest),
            bytes.fromhex(signature),
        )

    def check(self, *, method: str, host: str, target: str, now_ms: int) -> None:
        """Refuse a request that its key has not signed as it is, or whose time is out of range."""
        check_key(self.key)
        if abs(self.time_ms - now_ms) > WINDOW_MS:
            raise ClockSkew(
                f"The request's time is {self.time_ms / 1000:.0f} s since 1970, the receiver's "
                f"{now_ms / 1000:.0f} s; they must be within {WINDOW_MS // 60_000} minutes of each "
                "other. Set the clocks of both machines, ideally by NTP."
            )
        verify(
            self.key,
            self.signature,
            Label.REQUEST,
            *_parts(method, host, target, self.time_ms, self.nonce, self.digest),
        )


def sign_request(
    identity: Identity,
    *,
    method: str,
    host: str,
    target: str,
    digest: bytes,
    now_ms: int,
    nonce: bytes,
) -> str:
    """Return the header of a request; `target` is its path with the query, `nonce` is fresh."""
    signature = identity.sign(Label.REQUEST, *_parts(method, host, target, now_ms, nonce, digest))
    return (
        f'{SCHEME} key="{identity.key.hex()}", time="{now_ms}", nonce="{nonce.hex()}", '
        f'digest="{digest.hex()}", signature="{signature.hex()}"'
    )


def host_of(origin: str) -> str:
    """Return the host of an origin as it is in the Host header of its requests.

    >>> host_of("https://GP.example:443"), host_of("http://127.0.0.1:8000")
    ('gp.example', '127.0.0.1:8000')
    >>> host_of("https://münchen.example")
    'xn--mnchen-3ya.example'
    """
    scheme, _, host = origin.lower().partition("://")
    host = host.removesuffix(":443" if scheme == "https" else ":80")
    return host if host.isascii() else host.encode("idna").decode()


def _parts(
    method: str, host: str, target: str, time_ms: int, nonce: bytes, digest: bytes
) -> tuple[bytes, ...]:
    return (
        method.encode(),
        host.encode(),
        target.encode(),
        time_ms.to_bytes(8, "big"),
        nonce,
        digest,
    )

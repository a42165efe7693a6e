"""How a member asks the coordinator, without a network.

Requests go out as plain data (`Call`), answers come back as plain data (`Reply`, or `Lost`), and
waiting is plain data too (`Pause`). So signing, versions, limits, problems and retries are written
once, as generators, and the two edges in transport.py (httpx, waiting or asynchronous) are loops of
a few lines; a test is a third.

    Call   → Reply | Lost
    Pause  → None

What is lost on the way (no connection, a timeout, 408, 5xx of a coordinator that restarts) is asked
again with growing waits, for as long as `Patience` says, each time newly signed with a fresh nonce.
A 4xx is an answer: it is never asked again. Every answer names the protocol's version, so a proxy's
page is told from the coordinator whatever its status is.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from client_sdk.error_origin import Origin, mark
from client_sdk.errors import (
    DeadlinePassed,
    MalformedAnswer,
    NotACoordinator,
    ProtocolMismatch,
    Unreachable,
)
from client_sdk.network.problems import error_of
from client_sdk.readable import printable
from privacy.identity import Identity, Randomness
from privacy.requests import NONCE_BYTES, sign_request

PROTOCOL = 1
HEADER = "veilgp-protocol"
MAX_PLAIN = 32 << 20
"""Octets of the largest JSON answer: a program may carry a public table."""
MAX_BROADCAST = 1 << 30
MAX_ARTIFACT = 1 << 30
LONGEST_POLL_S = 25

_OCTETS = "application/octet-stream"

T = TypeVar("T")


class TooLate(Exception):
    """The coordinator's word that the run has gone on; `error` is what it said."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True)
class Call:
    """One request, as it goes on the wire. Its repr shows neither headers nor octets."""

    method: str
    target: str
    headers: Mapping[str, str] = field(repr=False)
    parts: tuple[bytes | memoryview, ...] = field(repr=False)
    limit: int
    """The most octets of an answer."""
    timeout_s: float
    """How long the whole answer may take."""

    @property
    def length(self) -> int:
        """Octets of the body."""
        return sum(memoryview(part).nbytes for part in self.parts)


@dataclass(frozen=True)
class Pause:
    """Wait so long."""

    seconds: float


@dataclass(frozen=True)
class Reply:
    """An answer; header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


@dataclass(frozen=True)
class Lost:
    """There was no answer."""

    reason: str


@dataclass(frozen=True)
class SendResult:
    """What became of octets that were sent: refused as too late, or taken, and what is next."""

    conflict: Exception | None = None
    following: dict[str, Any] | None = None


Effects = Generator[Call | Pause, Any, T]
"""Something to be done with the coordinator's help, whose result is a T."""


@dataclass(frozen=True)
class Clock:
    """What time it is, to sign with and to measure by."""

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    monotonic: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Patience:
    """How long to go on: `deadline_s` in all (None is without end), `outage_s` without any answer.

    Waits double from `first_s` to `longest_s`, each shortened by up to half at random, so that
    hospitals do not come back all at once.
    """

    deadline_s: float | None = None
    outage_s: float = 3600.0
    first_s: float = 0.25
    longest_s: float = 30.0

    def wait(self, attempt: int, jitter: float) -> float:
        """Give the wait after the `attempt`-th loss; `jitter` is from 0 to 1."""
        longest = min(self.first_s * 2.0 ** min(attempt, 30), self.longest_s)
        return longest * (1.0 - jitter / 2)


class Exchange:
    """A member's conversation with one coordinator."""

    def __init__(
        self,
        identity: Identity,
        *,
        host: str,
        patience: Patience | None = None,
        clock: Clock | None = None,
        entropy: Randomness = os.urandom,
        notice: Callable[[str, float], None] | None = None,
    ) -> None:
        self._identity = identity
        self._host = host
        self._patience = patience or Patience()
        self.clock = clock or Clock()
        self._entropy = entropy
        self._notice = notice
        self._began = self.clock.monotonic()

    # -- the requests there are

    def get(
        self, target: str, *, limit: int = MAX_PLAIN, timeout_s: float = 60.0
    ) -> Effects[bytes]:
        """Get octets."""
        reply = yield from self._ask("GET", target, (), limit=limit, timeout_s=timeout_s)
        return reply.body

    def get_current(self, target: str, *, limit: int, timeout_s: float) -> Effects[bytes]:
        """Get octets that are there only while they are needed; `TooLate` if they no longer are."""
        reply = yield from self._ask(
            "GET", target, (), limit=limit, timeout_s=timeout_s, too_late=(404, 409)
        )
        return reply.body

    def get_json(self, target: str) -> Effects[dict[str, Any]]:
        """Get a JSON object."""
        return plain_object((yield from self.get(target)))

    def poll(self, target: str) -> Effects[dict[str, Any] | None]:
        """Ask for what is next; the coordinator holds the answer back until there is something."""
        reply = yield from self._ask(
            "GET", target, (), limit=MAX_PLAIN, timeout_s=LONGEST_POLL_S + 30.0
        )
        return None if reply.status == 204 else plain_object(reply.body)

    def post(self, target: str, body: object, *, once: bool = False) -> Effects[bytes]:
        """Post a JSON object; `once` gives up at the first loss."""
        data = json.dumps(body).encode()
        kind = "application/json"
        reply = yield from self._ask("POST", target, (data,), kind=kind, once=once)
        return reply.body

    def send(self, target: str, *parts: bytes | memoryview) -> Effects[SendResult]:
        """Post octets that are durable here: protocol messages, and from the door vectors.

        The coordinator may answer with what is next, as to `poll`. A conflict (409) is given, not
        raised: the run may have gone on while they were on the way.
        """
        target = f"{target}?wait={LONGEST_POLL_S}"
        try:
            reply = yield from self._ask(
                "POST", target, parts, kind=_OCTETS, timeout_s=600.0, too_late=(409,)
            )
        except TooLate as late:
            return SendResult(conflict=late.error)
        return SendResult(following=None if reply.status == 204 else plain_object(reply.body))

    def put(
        self, target: str, body: bytes, *, before: Callable[[], None] = lambda: None
    ) -> Effects[None]:
        """Put octets that are durable here; what `before` raises ends it before an attempt."""
        yield from self._ask("PUT", target, (body,), kind=_OCTETS, timeout_s=600.0, before=before)

    def delete(self, target: str) -> Effects[None]:
        """Have something removed."""
        yield from self._ask("DELETE", target, ())

    # -- one request, until there is an answer

    def _ask(
        self,
        method: str,
        target: str,
        parts: tuple[bytes | memoryview, ...],
        *,
        kind: str | None = None,
        limit: int = MAX_PLAIN,
        timeout_s: float = 60.0,
        once: bool = False,
        too_late: tuple[int, ...] = (),
        before: Callable[[], None] = lambda: None,
    ) -> Effects[Reply]:
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part)
        began, attempt = self.clock.monotonic(), 0
        while True:
            self.check_deadline()
            before()
            headers = self._headers(method, target, digest.digest(), kind)
            answer = yield Call(method, target, headers, parts, limit, timeout_s)
            reason = _why_again(answer)
            if reason is None:
                return self._accepted(answer, too_late)
            waited = self.clock.monotonic() - began
            if once or waited > self._patience.outage_s:
                raise Unreachable(
                    f"the coordinator gave no answer for {waited:.0f} s ({reason}); nothing is "
                    "lost: check the network and the address, and join again"
                )
            jitter = int.from_bytes(self._entropy(4), "big") / 2**32
            wait = self._patience.wait(attempt, jitter)
            attempt += 1
            if self._notice is not None:
                self._notice(reason, wait)
            yield Pause(wait)

    def check_deadline(self) -> None:
        """Give up when the time that the caller gave has passed."""
        deadline_s = self._patience.deadline_s
        if deadline_s is not None and self.clock.monotonic() - self._began > deadline_s:
            raise DeadlinePassed(
                f"the {deadline_s:g} s that were given have passed; nothing is lost, join again "
                "and it goes on where it was"
            )

    def _headers(self, method: str, target: str, digest: bytes, kind: str | None) -> dict[str, str]:
        now_ms = int(self.clock.now().timestamp() * 1000)
        headers = {
            "Authorization": sign_request(
                self._identity,
                method=method,
                host=self._host,
                target=target,
                digest=digest,
                now_ms=now_ms,
                nonce=self._entropy(NONCE_BYTES),
            ),
            "Veilgp-Protocol": str(PROTOCOL),
            "Accept-Encoding": "identity",
        }
        return headers if kind is None else {**headers, "Content-Type": kind}

    def _accepted(self, reply: Reply, too_late: tuple[int, ...]) -> Reply:
        """Give an answer that is the coordinator's and says yes; raise what it says otherwise."""
        spoken = reply.headers.get(HEADER)
        if spoken is None:
            shown = printable(reply.headers.get("content-type", "nothing"), 60)
            raise NotACoordinator(
                f"something that is no veilgp coordinator answered (status {reply.status}, "
                f"{shown}): a proxy's page, a sign-in page of this network, or another server. "
                "Open the address in a browser on this machine to see it."
            )
        if reply.status >= 400 or spoken != str(PROTOCOL):
            if reply.status < 400:
                raise ProtocolMismatch(
                    f"the coordinator speaks protocol {printable(spoken, 20)} and this veilgp "
                    f"{PROTOCOL}: upgrade the older of the two"
                )
            error = error_of(reply.status, reply.headers, reply.body, self.clock.now())
            mark(error, Origin.COORDINATOR)
            raise TooLate(error) if reply.status in too_late else error
        if not 200 <= reply.status < 300 or reply.headers.get("content-encoding", "identity") != (
            "identity"
        ):
            raise MalformedAnswer(
                f"the coordinator answered in a way that does not belong here "
                f"(status {reply.status})"
            )
        return reply


def plain_object(body: bytes) -> dict[str, Any]:
    """Read a JSON object from octets that are not trusted."""
    try:
        plain = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedAnswer("the coordinator's answer is not JSON") from error
    if not isinstance(plain, dict):
        raise MalformedAnswer("the coordinator's answer is not a JSON object")
    return plain


def _why_again(answer: Reply | Lost) -> str | None:
    """Say why a request is to be asked again, if it is."""
    if isinstance(answer, Lost):
        return answer.reason
    again = answer.status >= 500 or answer.status == 408
    return f"status {answer.status}" if again else None

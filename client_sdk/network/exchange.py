"""A member's requests to the coordinator, without network I/O.

Requests are plain data (`Call`), and so are responses (`Reply` or `Lost`) and waits (`Pause`).
Signing, versions, limits, problems and retries are therefore written once, as generators. The two
drivers in transport.py (httpx, blocking or asynchronous) are loops of a few lines; tests are a
third driver.

    Call   → Reply | Lost
    Pause  → None

A request that is lost (no connection, a timeout, 408, or 5xx from a coordinator that restarts) is
repeated with growing waits for as long as `Patience` allows, each time signed again with a fresh
nonce. A 4xx is a response: the request is never repeated. Every response carries the protocol
version, so a proxy's page is recognised whatever its status is.
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
from privacy.errors import FrameError
from privacy.frames import MEDIA_TYPE, Frame, Limits
from privacy.identity import Identity, Randomness
from privacy.requests import NONCE_BYTES, sign_request

PROTOCOL = 2
HEADER = "veilgp-protocol"
MAX_PLAIN = 32 << 20
"""Bytes of the largest JSON response: a program may contain a public table."""
ITEM_LIMITS = Limits(
    head=MAX_PLAIN,
    parts={
        "message": 4 << 20,
        "delivery": 4 << 20,
        "last_task": 4 << 20,
        "last_certificate": 4 << 20,
        "total": 4 << 20,
        "total_body": 1 << 20,
        "witnesses": 4 << 20,
        "sealed_state": 4 << 20,
        "state_box": 256 << 20,
        "adverts": 4 << 20,
        "certificate": 4 << 20,
    },
)
"""The parts of an item, and the most bytes of each. Protocol messages have at most a few kB for
each of 200 members."""
MAX_STATE = 1 << 30
MAX_ARTIFACT = 1 << 30
LONGEST_POLL_S = 25

_OCTETS = "application/octet-stream"

T = TypeVar("T")


class TooLate(Exception):
    """The coordinator reports that the run has moved on; `error` is its response."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True)
class Call:
    """One request as it is sent. Its repr shows neither headers nor body."""

    method: str
    target: str
    headers: Mapping[str, str] = field(repr=False)
    parts: tuple[bytes | memoryview, ...] = field(repr=False)
    limit: int
    """Maximum number of bytes in the response."""
    timeout_s: float
    """Maximum time for the whole response."""

    @property
    def length(self) -> int:
        """The body's length in bytes."""
        return sum(memoryview(part).nbytes for part in self.parts)


@dataclass(frozen=True)
class Pause:
    """A wait of `seconds`."""

    seconds: float


@dataclass(frozen=True)
class Reply:
    """A response; header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


@dataclass(frozen=True)
class Lost:
    """No response arrived."""

    reason: str


@dataclass(frozen=True)
class SendResult:
    """The result of sending bytes: a conflict if they were too late, or the next item, if any."""

    conflict: Exception | None = None
    following: Frame | None = None


Effects = Generator[Call | Pause, Any, T]
"""A generator that yields requests and waits, and returns a T."""


@dataclass(frozen=True)
class Clock:
    """The current time, for signatures, and a monotonic clock, for durations."""

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    monotonic: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Patience:
    """Time limits: `deadline_s` in total (None: no limit), `outage_s` without any response.

    Waits double from `first_s` to `longest_s`. Each is shortened at random by up to half, so that
    hospitals do not reconnect at the same moment.
    """

    deadline_s: float | None = None
    outage_s: float = 3600.0
    first_s: float = 0.25
    longest_s: float = 30.0

    def wait(self, attempt: int, jitter: float) -> float:
        """Return the wait after attempt number `attempt` was lost; `jitter` is from 0 to 1."""
        longest = min(self.first_s * 2.0 ** min(attempt, 30), self.longest_s)
        return longest * (1.0 - jitter / 2)


class Exchange:
    """A conversation with one coordinator: a member's, or one without an identity, unsigned."""

    def __init__(
        self,
        identity: Identity | None,
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

    # -- requests

    def get(
        self, target: str, *, limit: int = MAX_PLAIN, timeout_s: float = 60.0
    ) -> Effects[bytes]:
        """Get bytes."""
        reply = yield from self._ask("GET", target, (), limit=limit, timeout_s=timeout_s)
        return reply.body

    def get_current(self, target: str, *, limit: int, timeout_s: float) -> Effects[bytes]:
        """Get bytes that exist only while they are needed; raise `TooLate` if they are gone."""
        reply = yield from self._ask(
            "GET", target, (), limit=limit, timeout_s=timeout_s, too_late=(404, 409)
        )
        return reply.body

    def get_json(self, target: str) -> Effects[dict[str, Any]]:
        """Get a JSON object."""
        return plain_object((yield from self.get(target)))

    def poll(self, target: str) -> Effects[dict[str, Any] | None]:
        """Get a JSON object; the coordinator delays its response until there is news."""
        reply = yield from self._ask("GET", target, (), timeout_s=LONGEST_POLL_S + 30.0)
        return None if reply.status == 204 else plain_object(reply.body)

    def poll_item(self, target: str) -> Effects[Frame | None]:
        """Request the next item; the coordinator delays its response until there is one."""
        reply = yield from self._ask(
            "GET", target, (), limit=ITEM_LIMITS.whole, timeout_s=LONGEST_POLL_S + 30.0
        )
        return _item(reply)

    def post(self, target: str, body: object, *, once: bool = False) -> Effects[bytes]:
        """Post a JSON object; `once` gives up at the first loss."""
        data = json.dumps(body).encode()
        kind = "application/json"
        reply = yield from self._ask("POST", target, (data,), kind=kind, once=once)
        return reply.body

    def send(self, target: str, *parts: bytes | memoryview, query: str = "") -> Effects[SendResult]:
        """Post bytes that are already on disk here: protocol messages and, from the door, vectors.

        The coordinator may respond with the next item, as to `poll_item`. A conflict (409) is
        returned, not raised: the run may have moved on while the bytes were in transit.
        """
        target = f"{target}?wait={LONGEST_POLL_S}{query}"
        try:
            reply = yield from self._ask(
                "POST",
                target,
                parts,
                kind=_OCTETS,
                limit=ITEM_LIMITS.whole,
                timeout_s=600.0,
                too_late=(409,),
            )
        except TooLate as late:
            return SendResult(conflict=late.error)
        return SendResult(following=_item(reply))

    def put(
        self, target: str, body: bytes, *, before: Callable[[], None] = lambda: None
    ) -> Effects[None]:
        """Put bytes that are on disk here; `before` runs before each attempt and may raise."""
        yield from self._ask("PUT", target, (body,), kind=_OCTETS, timeout_s=600.0, before=before)

    def delete(self, target: str) -> Effects[None]:
        """Request the deletion of a resource."""
        yield from self._ask("DELETE", target, ())

    # -- one request, until there is a response

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
                    f"the coordinator did not respond for {waited:.0f} s ({reason}). Nothing is "
                    "lost: check the network and the address, and join again"
                )
            jitter = int.from_bytes(self._entropy(4), "big") / 2**32
            wait = self._patience.wait(attempt, jitter)
            attempt += 1
            if self._notice is not None:
                self._notice(reason, wait)
            yield Pause(wait)

    def check_deadline(self) -> None:
        """Raise `DeadlinePassed` once the caller's deadline has passed."""
        deadline_s = self._patience.deadline_s
        if deadline_s is not None and self.clock.monotonic() - self._began > deadline_s:
            raise DeadlinePassed(
                f"the deadline of {deadline_s:g} s has passed. Nothing is lost: join again to "
                "continue"
            )

    def _headers(self, method: str, target: str, digest: bytes, kind: str | None) -> dict[str, str]:
        headers = {"Veilgp-Protocol": str(PROTOCOL), "Accept-Encoding": "identity"}
        if self._identity is not None:
            headers["Authorization"] = sign_request(
                self._identity,
                method=method,
                host=self._host,
                target=target,
                digest=digest,
                now_ms=int(self.clock.now().timestamp() * 1000),
                nonce=self._entropy(NONCE_BYTES),
            )
        return headers if kind is None else {**headers, "Content-Type": kind}

    def _accepted(self, reply: Reply, too_late: tuple[int, ...]) -> Reply:
        """Return a successful response of the coordinator; raise its error otherwise."""
        spoken = reply.headers.get(HEADER)
        if spoken is None:
            shown = printable(reply.headers.get("content-type", "nothing"), 60)
            raise NotACoordinator(
                f"the response (status {reply.status}, {shown}) is not from a veilgp coordinator: "
                "it may be a proxy's page, a sign-in page of this network, or another server. "
                "Open the address in a browser on this machine to see it."
            )
        if reply.status >= 400 or spoken != str(PROTOCOL):
            if reply.status < 400:
                raise ProtocolMismatch(
                    f"the coordinator uses protocol {printable(spoken, 20)} and this veilgp uses "
                    f"{PROTOCOL}: upgrade {older_side(spoken)}"
                )
            error = error_of(reply.status, reply.headers, reply.body, self.clock.now())
            mark(error, Origin.COORDINATOR)
            raise TooLate(error) if reply.status in too_late else error
        if not 200 <= reply.status < 300 or reply.headers.get("content-encoding", "identity") != (
            "identity"
        ):
            raise MalformedAnswer(
                f"the coordinator's response has an unexpected status or encoding "
                f"(status {reply.status})"
            )
        return reply


def older_side(spoken: str) -> str:
    """Return which side to upgrade if the coordinator uses another protocol."""
    newer = spoken.isascii() and spoken.isdigit() and int(spoken[:9]) > PROTOCOL
    return "veilgp here" if newer else "the coordinator"


def plain_object(body: bytes) -> dict[str, Any]:
    """Read a JSON object from untrusted bytes."""
    try:
        plain = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedAnswer("the coordinator's response is not JSON") from error
    if not isinstance(plain, dict):
        raise MalformedAnswer("the coordinator's response is not a JSON object")
    return plain


def _item(reply: Reply) -> Frame | None:
    """Read an item from an untrusted response; None if there is none."""
    if reply.status == 204:
        return None
    kind = reply.headers.get("content-type", "nothing")
    if kind != MEDIA_TYPE:
        raise MalformedAnswer(
            f"the coordinator's response is {printable(kind, 60)}, and not a frame ({MEDIA_TYPE})"
        )
    try:
        return Frame.read(reply.body, ITEM_LIMITS)
    except FrameError as error:
        raise MalformedAnswer(f"the coordinator's response is malformed: {error}") from error


def _why_again(answer: Reply | Lost) -> str | None:
    """Return why a request must be repeated, or None if it need not be."""
    if isinstance(answer, Lost):
        return answer.reason
    again = answer.status >= 500 or answer.status == 408
    return f"status {answer.status}" if again else None

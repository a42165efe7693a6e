"""The coordinator's problem+json as exceptions, of the same class if this side has it.

What comes from the network is not trusted. A problem can raise a named error and nothing else; its
text is shortened and cleared of control characters before it is shown.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache

from client_sdk.errors import ClientError, ProtocolMismatch, RefusedByCoordinator
from client_sdk.readable import printable
from kernels.errors import KernelsError
from privacy.errors import ClockSkew, PrivacyError

NamedError = KernelsError | PrivacyError | ClientError
_CLOCK_CODES = (ClockSkew.code, "clock_skew")


def error_of(status: int, headers: Mapping[str, str], body: bytes, now: datetime) -> Exception:
    """Return the exception for a problem response."""
    problem = _problem(body)
    code = printable(problem.get("code", f"http_{status}"), 100)
    detail = printable(problem.get("detail") or problem.get("title") or f"status {status}")
    if code == ProtocolMismatch.code:
        return ProtocolMismatch(f"the coordinator says: {detail}")
    if code in _CLOCK_CODES:
        theirs = printable(problem.get("time") or headers.get("date", "unknown"), 60)
        return ClockSkew(
            f"The clocks differ too much for signed requests: the coordinator's time is {theirs}, "
            f"this machine's is {now.isoformat(timespec='seconds')}. Correct the wrong clock, "
            f"preferably with NTP. ({detail})"
        )
    kind = _by_code().get(code)
    if kind is None:
        return RefusedByCoordinator(code, detail)
    return kind(f"the coordinator says: {detail}")


def _problem(body: bytes) -> dict[str, object]:
    try:
        plain = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return plain if isinstance(plain, dict) else {}


@cache
def _by_code() -> Mapping[str, type[NamedError]]:
    """Return all error classes whose constructor takes one sentence, by their code."""
    found: dict[str, type[NamedError]] = {}
    roots: tuple[type[NamedError], ...] = (KernelsError, PrivacyError, ClientError)
    for kind in (kind for root in roots for kind in _tree(root)):
        own = any(
            "__init__" in vars(each) for each in kind.__mro__ if each.__module__ != "builtins"
        )
        if not own:
            found.setdefault(kind.code, kind)
    return found


def _tree(root: type[NamedError]) -> Iterator[type[NamedError]]:
    yield root
    for child in root.__subclasses__():
        yield from _tree(child)

"""The checks of `veilgp doctor hospital`: whether a hospital is ready to take part.

Each check is one line: what was checked, whether it is in order, and if not, what to do. Nothing is
created or changed, and a link's secret is never shown or sent.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from client_sdk.errors import (
    CertificateRefused,
    ClientError,
    DealingLost,
    HomeExposed,
    HomeInUse,
    LinkError,
    MalformedAnswer,
    PolicyFileError,
    TransportError,
)
from client_sdk.gate.stated_policy import StatedPolicy
from client_sdk.home.home import Home
from client_sdk.network.exchange import (
    HEADER,
    PROTOCOL,
    Call,
    Clock,
    Effects,
    Lost,
    Reply,
    older_side,
    plain_object,
)
from client_sdk.network.links import SessionLink
from client_sdk.readable import printable
from privacy.errors import PrivacyError
from privacy.health_check import Check

if TYPE_CHECKING:
    from client_sdk.network.transport import Transport

LEAST_FREE = 256 << 20
"""Bytes of free disk space below which writing the journal may soon fail."""
MOST_SKEW_S = 60.0
"""Maximum clock difference accepted here; signed requests are refused at five minutes."""
_PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
_PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")


def of_home(path: str | os.PathLike[str] | None) -> Iterator[Check]:
    """Check that only this user can access the home, and that identity and journal match."""
    home = Home(path)
    directory = home.path
    if not directory.exists():
        yield Check("home", f"{directory} does not exist yet; the first join creates it")
        return
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        yield Check("home", f"{directory} cannot be used", "run as the user who owns it")
        return
    try:
        home.check_private()
    except HomeExposed as error:
        fix = f"chmod 700 {directory}, and chmod 600 on its files"
        yield Check("home", f"{error} [{error.code}]", fix)
        return
    yield Check("home", f"only its owner can access {directory}")
    if not any((directory / name).exists() for name in ("identity.key", "journal.sqlite")):
        yield Check("journal", "none yet; the first join creates it")
        return
    if not (directory / "identity.key").exists():
        yield Check(
            "journal",
            "there is a journal but no identity.key",
            "put the key back, or move the journal away and have a new identity confirmed",
        )
        return
    try:
        with home.open() as opened:
            records, _ = opened.store.journal()
            count, digits = len(records), opened.identity.fingerprint
    except DealingLost as error:
        yield Check(
            "dealing",
            f"{error} [{error.code}]",
            "put dealing.key back from a copy, or move the home away, create a new identity with "
            "`veilgp identity`, and have it confirmed",
        )
    except HomeInUse:
        yield Check("journal", "in use by another veilgp process, which has checked it")
    except (ClientError, PrivacyError) as error:
        yield Check(
            "journal",
            f"{error} [{error.code}]",
            "do not restore an old copy; move the home away, create a new identity with `veilgp "
            "identity`, and have it confirmed",
        )
    else:
        yield Check("journal", f"complete, {count} records, fingerprint {digits}")


def of_disk(path: str | os.PathLike[str] | None) -> Check:
    """Check that there is disk space for the journal."""
    place = Home(path).path
    there = next(each for each in (place, *place.absolute().parents) if each.exists())
    free = shutil.disk_usage(there).free
    fix = f"free at least {LEAST_FREE >> 20} MiB" if free < LEAST_FREE else None
    return Check("disk", f"{free >> 20:,} MiB free at {there}", fix)


def of_policy(file: Path, *, today: date) -> Check:
    """Check that the policy can be read and has not expired."""
    try:
        policy = StatedPolicy.read(file)
    except PolicyFileError as error:
        return Check("policy", str(error), "correct the file, or start with `veilgp policy draft`")
    if policy.expires is not None and policy.expires < today:
        said = f"{file} expired: it was valid until {policy.expires}"
        return Check("policy", said, "ask the person who set the date, and set a later one")
    until = "without an expiry date" if policy.expires is None else f"until {policy.expires}"
    allowed = ", ".join(policy.algorithms) or "nothing"
    return Check("policy", f"{file} allows {allowed}, {until}")


def of_proxy(environment: Mapping[str, str]) -> Check:
    """Check the proxy variables; passwords in them are not shown."""
    given = {name: environment[name] for name in _PROXIES if environment.get(name)}
    hosts = {name: _proxy_host(value) for name, value in given.items()}
    for name, host in hosts.items():
        if host is None:
            fix = f"set it as in {name}=http://proxy.example:3128, or unset it"
            return Check("proxy", f"{name} is not the address of a proxy", fix)
    if not hosts:
        return Check("proxy", "none is set: requests are sent directly")
    named = [f"{name} is {printable(str(host), 100)}" for name, host in hosts.items()]
    return Check("proxy", ", ".join(named))


def of_coordinator(
    link: str,
    *,
    ca: Path | None,
    allow_http: bool,
    clock: Clock,
    transport: "Transport | None" = None,
) -> Iterator[Check]:
    """Check that the coordinator is reachable and trusted, and compare protocol and clock."""
    try:
        parsed = SessionLink.parse(link, allow_http=allow_http)
    except LinkError as error:
        yield Check("link", str(error), "copy the whole link from the invitation, in quotes")
        return
    try:
        from client_sdk.network.transport import run  # loads httpx, which only a link needs

        answer = run(_asked(), parsed.origin, ca=ca, transport=transport)
    except CertificateRefused as error:
        fix = (
            "pass your organisation's certificate authority with --ca, or ask the coordinator's "
            "operator to renew the certificate"
        )
        yield Check("TLS", str(error), fix)
        return
    except TransportError as error:
        yield Check("coordinator", str(error), "check the address, and whether a proxy responds")
        return
    if isinstance(answer, Lost):
        said = f"{parsed.origin}: {answer.reason}"
        fix = "check the address, the firewall (outbound HTTPS is enough) and the proxy variables"
        yield Check("coordinator", said, fix)
        return
    secure = parsed.origin.startswith("https://")
    yield Check("TLS", "the certificate is trusted" if secure else "not used: http was allowed")
    yield _speaks(parsed.origin, answer)
    yield _clock(answer, clock.now())


def _proxy_host(address: str) -> str | None:
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
    except ValueError:
        return None
    return parts.hostname if parts.scheme in _PROXY_SCHEMES else None


def _asked() -> Effects[Reply | Lost]:
    headers = {"Veilgp-Protocol": str(PROTOCOL), "Accept-Encoding": "identity"}
    answer: Reply | Lost = yield Call("GET", "/protocol", headers, (), 1 << 16, 20.0)
    return answer


def _speaks(origin: str, answer: Reply) -> Check:
    spoken = answer.headers.get(HEADER)
    if spoken is None:
        return Check(
            "coordinator",
            f"the server at {origin} (status {answer.status}) is not a coordinator",
            "open the address in a browser on this machine: it may be a proxy's page, a sign-in "
            "page of this network, or another server",
        )
    if answer.status == 426 or spoken != str(PROTOCOL):
        said = f"it uses protocol {printable(spoken, 20)}, this veilgp uses {PROTOCOL}"
        return Check("coordinator", said, f"upgrade {older_side(spoken)}")
    try:
        version = printable(str(plain_object(answer.body).get("version")), 40)
    except MalformedAnswer as error:
        return Check("coordinator", str(error), "ask the coordinator's operator to check it")
    return Check("coordinator", f"{origin} responds, veilgp {version}, protocol {PROTOCOL}")


def _clock(answer: Reply, now: datetime) -> Check:
    try:
        theirs = parsedate_to_datetime(answer.headers.get("date", ""))
        ahead = (now - theirs).total_seconds()
    except (ValueError, TypeError):
        return Check("clock", "not compared: the coordinator's response has no date")
    said = f"{abs(ahead):.0f} s {'ahead of' if ahead >= 0 else 'behind'} the coordinator's"
    wrong = abs(ahead) > MOST_SKEW_S
    fix = "run NTP on this machine; at a difference of five minutes every request is refused"
    return Check("clock", said, fix if wrong else None)

"""`veilgp doctor hospital` shows each problem with its fix, and changes nothing."""

import ssl
from datetime import UTC, date, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from client_sdk.home.home import Home
from client_sdk.network.exchange import Clock
from client_sdk.terminal import doctor
from client_sdk.terminal.command import application

LINK = "https://veil.example/join/00000000-0000-0000-0000-000000000001#very-secret"
NOW = datetime(2027, 1, 15, 8, tzinfo=UTC)


def coordinator(
    *, date_s: float = 0.0, protocol: str | None = "2", status: int = 200
) -> httpx.MockTransport:
    def answer(request: httpx.Request) -> httpx.Response:
        assert "very-secret" not in str(request.url)
        assert "Authorization" not in request.headers
        headers = {"Date": format_datetime(NOW + timedelta(seconds=date_s), usegmt=True)}
        if protocol is not None:
            headers["Veilgp-Protocol"] = protocol
        plain = b'{"protocol": 2, "oldest": 2, "version": "9.8.7"}'
        return httpx.Response(status, headers=headers, stream=httpx.ByteStream(plain))

    return httpx.MockTransport(answer)


def checked(transport: httpx.BaseTransport, link: str = LINK) -> dict[str, doctor.Check]:
    clock = Clock(now=lambda: NOW)
    found = doctor.of_coordinator(link, ca=None, allow_http=False, clock=clock, transport=transport)
    return {check.name: check for check in found}


def failing(found: dict[str, doctor.Check]) -> set[str]:
    for check in found.values():
        assert "very-secret" not in check.line()
        assert check.is_well or check.line().endswith(f"Fix: {check.fix}")
        assert "\n" not in check.line()
    return {name for name, check in found.items() if not check.is_well}


def test_a_coordinator_that_is_well_is_reached(homes: Path) -> None:
    found = checked(coordinator())
    assert failing(found) == set()
    assert set(found) == {"TLS", "coordinator", "clock"}
    assert "9.8.7" in found["coordinator"].said


@pytest.mark.parametrize("date_s", [-3600.0, 90.0])
def test_a_clock_that_is_off_is_named(date_s: float) -> None:
    assert failing(checked(coordinator(date_s=date_s))) == {"clock"}


@pytest.mark.parametrize(
    "transport",
    [coordinator(protocol=None), coordinator(protocol="1"), coordinator(protocol="2", status=426)],
)
def test_something_else_than_our_coordinator_is_named(transport: httpx.BaseTransport) -> None:
    assert failing(checked(transport)) == {"coordinator"}


def test_no_connection_and_no_trust_are_different_lines() -> None:
    def away(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("away")

    def untrusted(_: httpx.Request) -> httpx.Response:
        refused = ssl.SSLCertVerificationError("refused")
        refused.verify_message = "self-signed certificate"
        raise httpx.ConnectError("tls") from refused

    assert failing(checked(httpx.MockTransport(away))) == {"coordinator"}
    assert failing(checked(httpx.MockTransport(untrusted))) == {"TLS"}


def test_a_link_that_is_none_is_named_without_its_secret() -> None:
    for link in ("http://veil.example/join/very-secret", LINK.replace("https", "http")):
        assert failing(checked(coordinator(), link)) == {"link"}


def test_the_home_is_checked_and_nothing_is_made(homes: Path) -> None:
    def lines(home: Path) -> dict[str, doctor.Check]:
        return {check.name: check for check in doctor.of_home(home)}

    assert failing(lines(homes / "new")) == set()
    assert not (homes / "new").exists()
    Home(homes / "A").identity()
    found = lines(homes / "A")
    assert failing(found) == set()
    assert "complete" in found["journal"].said
    (homes / "A").chmod(0o755)
    assert failing(lines(homes / "A")) == {"home"}
    (homes / "A").chmod(0o700)
    (homes / "A" / "journal.sqlite").chmod(0o640)
    assert failing(lines(homes / "A")) == {"home"}
    (homes / "A" / "journal.sqlite").chmod(0o600)
    with Home(homes / "A").open():
        assert "in use" in lines(homes / "A")["journal"].said
    (homes / "A" / "dealing.key").rename(homes / "dealing.key")
    assert failing(lines(homes / "A")) == {"dealing"}
    assert not (homes / "A" / "dealing.key").exists()
    (homes / "dealing.key").rename(homes / "A" / "dealing.key")
    (homes / "A" / "journal.sqlite").write_bytes(b"no journal at all" * 100)
    assert failing(lines(homes / "A")) == {"journal"}
    (homes / "A" / "identity.key").unlink()
    assert failing(lines(homes / "A")) == {"journal"}
    assert not (homes / "A" / "identity.key").exists()


def test_a_policy_that_is_wrong_or_over_is_named(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    today = date(2027, 1, 15)
    for text, well in (
        ('algorithms = ["linear"]\nexpires = 2027-01-15\n', True),
        ("expires = 2027-01-14\n", False),
        ("least_cohrt = 5\n", False),
        ("not TOML", False),
    ):
        file.write_text(text)
        assert doctor.of_policy(file, today=today).is_well is well, text
    assert not doctor.of_policy(tmp_path / "none.toml", today=today).is_well


def test_proxy_variables_are_named_without_their_password() -> None:
    assert doctor.of_proxy({}).is_well
    found = doctor.of_proxy({"HTTPS_PROXY": "http://user:hunter2@proxy.example:3128"})
    assert found.is_well
    assert "proxy.example" in found.said
    assert "hunter2" not in found.line()
    for wrong in ("ftp://user:hunter2@x", "http://", "http://[::1"):
        found = doctor.of_proxy({"https_proxy": wrong})
        assert not found.is_well
        assert "hunter2" not in found.line()


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.of_disk(tmp_path / "not" / "there").is_well
    monkeypatch.setattr(doctor, "LEAST_FREE", 1 << 62)
    assert not doctor.of_disk(tmp_path).is_well


def test_the_command_fails_if_a_line_does(homes: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> tuple[int, list[str]]:
        outcome = CliRunner().invoke(application(), ["doctor", "hospital", *arguments])
        return outcome.exit_code, outcome.output.splitlines()

    code, lines = run("--home", str(homes / "H"))
    assert code == 0
    assert all(line.startswith("ok    ") for line in lines)
    code, lines = run("--home", str(homes / "H"), "--policy", str(tmp_path / "none.toml"))
    assert code == 1
    assert [line[:4] for line in lines].count("FAIL") == 1

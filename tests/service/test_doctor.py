"""`veilgp doctor coordinator` names each problem with its fix, and creates nothing."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from typer.testing import CliRunner

from client_sdk.terminal.command import application
from service import readiness
from service.database.database import Database
from service.settings import Settings

NOW = 1_800_000_000.0


@pytest.fixture(autouse=True)
def same_mask() -> Iterator[None]:
    mask = os.umask(0o077)
    yield
    os.umask(mask)


def failing(settings: Settings) -> set[str]:
    found = list(readiness.everything(settings, now=NOW))
    for check in found:
        assert check.is_well or check.line().endswith(f"Fix: {check.fix}")
    return {check.name for check in found if not check.is_well}


def started(directory: Path) -> Path:
    directory.mkdir(mode=0o700)
    database = Database(Settings(data_dir=directory).url)
    database.migrate()
    database.close()
    return directory


def certificate(directory: Path, *, days: int) -> dict[str, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "gp.example")])
    now = datetime.fromtimestamp(NOW, UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=400))
        .not_valid_after(now + timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    files = {"tls_certificate": directory / "cert.pem", "tls_key": directory / "key.pem"}
    files["tls_certificate"].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files["tls_key"].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


def test_a_coordinator_that_has_started_is_well(tmp_path: Path) -> None:
    assert failing(Settings(data_dir=started(tmp_path / "data"))) == set()


def test_what_is_not_there_is_named_and_not_made(tmp_path: Path) -> None:
    assert failing(Settings(data_dir=tmp_path / "none")) == {"data directory", "database"}
    assert not (tmp_path / "none").exists()
    (tmp_path / "empty").mkdir(mode=0o700)
    assert failing(Settings(data_dir=tmp_path / "empty")) == {"database"}
    assert list((tmp_path / "empty").iterdir()) == []


def test_an_older_database_a_full_disk_and_an_open_directory_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = started(tmp_path / "data")
    database = Database(Settings(data_dir=directory).url)
    with database.changing() as connection:
        connection.exec_driver_sql("DELETE FROM alembic_version")
    database.close()
    monkeypatch.setattr(readiness, "LEAST_FREE", 1 << 62)
    directory.chmod(0o755)
    assert failing(Settings(data_dir=directory)) == {"migrations", "disk", "data directory"}


def test_certificates_are_checked(tmp_path: Path) -> None:
    directory = started(tmp_path / "data")
    files = certificate(tmp_path, days=90)
    assert failing(Settings(data_dir=directory, **files)) == set()
    files["tls_key"].chmod(0o644)
    assert failing(Settings(data_dir=directory, **files)) == {"TLS key"}
    assert failing(Settings(data_dir=directory, **certificate(tmp_path, days=3))) >= {"TLS"}
    files["tls_key"].write_text("no key")
    assert failing(Settings(data_dir=directory, **files)) >= {"TLS"}


def test_a_public_url_that_hospitals_would_refuse_is_named(tmp_path: Path) -> None:
    directory = started(tmp_path / "data")
    http = Settings(data_dir=directory, public_url="http://gp.example")
    assert failing(http) == {"public URL"}
    well = Settings(data_dir=directory, behind_tls_proxy=True, public_url="https://gp.example")
    assert failing(well) == set()


def test_a_database_that_is_away_is_named_without_its_password(tmp_path: Path) -> None:
    pytest.importorskip("psycopg", reason="PostgreSQL's driver is an extra")
    url = "postgresql+psycopg://me:hunter2@127.0.0.1:1/none"
    (tmp_path / "data").mkdir(mode=0o700)
    found = readiness.everything(Settings(data_dir=tmp_path / "data", database_url=url), now=NOW)
    (line,) = [check.line() for check in found if check.name == "database"]
    assert line.startswith("FAIL")
    assert "hunter2" not in line


def test_a_clock_before_this_software_is_wrong() -> None:
    assert readiness.of_clock(NOW).is_well
    assert not readiness.of_clock(0.0).is_well


def test_the_command_fails_if_a_line_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = EntryPoint("coordinator", "service.command:doctor", "veilgp.doctor")
    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda group, name: [plugin] if (group, name) == ("veilgp.doctor", "coordinator") else [],
    )

    def run(*arguments: str) -> tuple[int, list[str]]:
        outcome = CliRunner().invoke(application(), ["doctor", "coordinator", *arguments])
        return outcome.exit_code, outcome.output.splitlines()

    code, lines = run("--data-dir", str(started(tmp_path / "data")))
    assert code == 0, lines
    assert all(line.startswith("ok    ") for line in lines)
    (tmp_path / "data" / "veilgp.toml").write_text("prot = 1\n")
    code, (line,) = run("--data-dir", str(tmp_path / "data"))
    assert code == 1
    assert line.startswith("FAIL  settings: Unknown settings in")

"""Flags override the environment, which overrides the file; unknown settings are refused."""

from pathlib import Path

import pytest

from service.errors import SettingsError
from service.settings import load


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_flags_then_environment_then_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('port = 1\nhost = "127.0.0.3"\nlog_level = "error"')
    monkeypatch.setenv("VEILGP_PORT", "2")
    monkeypatch.setenv("VEILGP_HOST", "127.0.0.2")
    settings = load({"port": 3}, config=file)
    assert (settings.port, settings.host, settings.log_level) == (3, "127.0.0.2", "error")
    assert settings.max_body == 1 << 20


def test_the_file_is_named_or_lies_in_the_data_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "veilgp.toml").write_text("port = 5")
    assert load({"data_dir": tmp_path}).port == 5
    assert load({}).port == 8000
    named = tmp_path / "named.toml"
    named.write_text("port = 6")
    monkeypatch.setenv("VEILGP_CONFIG", str(named))
    assert load({"data_dir": tmp_path}).port == 6
    monkeypatch.setenv("VEILGP_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("VEILGP_CONFIG")
    assert load({}).port == 5


def test_unknown_keys_are_errors_that_list_the_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("prot = 1")
    with pytest.raises(SettingsError, match=r"prot\. Known settings: .*port"):
        load({}, config=file)
    monkeypatch.setenv("VEILGP_HOME", "/somewhere")
    load({})
    monkeypatch.setenv("VEILGP_PROT", "1")
    with pytest.raises(SettingsError, match=r"VEILGP_PROT\. Known variables: .*VEILGP_PORT"):
        load({})


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"port": 70000}, "port"),
        ({"host": "0.0.0.0"}, "without TLS"),  # noqa: S104
        ({"host": "gp.example"}, "without TLS"),
        ({"tls_key": "no-such-file"}, "does not exist"),
        ({"public_url": "ftp://x"}, "https://host"),
        ({"public_url": "https://x/prefix"}, "without a path"),
        ({"database_url": "mysql://root:hunter2@x"}, "sqlite"),
        ({"database_url": "postgresql+asyncpg://root:hunter2@x/y"}, "postgresql://"),
        ({"log_level": "loud"}, "log_level"),
        ({"max_body": 0}, "max_body"),
        ({"max_spool": 1000}, "max_spool"),
        ({"max_connections": 500}, "max_unauthenticated = 500 must be less"),
    ],
)
def test_what_is_impossible_is_named(flags: dict[str, object], says: str) -> None:
    with pytest.raises(SettingsError, match=says) as caught:
        load(flags)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_postgresql_is_reached_by_its_usual_address(scheme: str) -> None:
    settings = load({"database_url": f"{scheme}://me:hunter2@db.example/veilgp"})
    assert settings.url == "postgresql+psycopg://me:hunter2@db.example/veilgp"
    assert "hunter2" not in repr(settings)


def test_a_file_that_is_no_toml_or_not_there_is_named(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    with pytest.raises(SettingsError, match="cannot be read"):
        load({}, config=file)
    file.write_text("port: 1")
    with pytest.raises(SettingsError, match="not valid TOML"):
        load({}, config=file)


def test_certificate_and_key_belong_together(tmp_path: Path) -> None:
    pem = tmp_path / "a.pem"
    pem.touch()
    with pytest.raises(SettingsError, match="must be set together"):
        load({"tls_key": pem})
    open_to_all = {"host": "gp.example", "public_url": "https://gp.example"}
    assert load({"tls_key": pem, "tls_certificate": pem, **open_to_all}).tls_key == pem
    assert load({"behind_tls_proxy": True, **open_to_all}).host == "gp.example"


def test_a_coordinator_that_others_can_reach_knows_its_own_name(tmp_path: Path) -> None:
    pem = tmp_path / "a.pem"
    pem.touch()
    tls = {"tls_key": pem, "tls_certificate": pem}
    for flags in ({**tls, "host": "0.0.0.0"}, {"behind_tls_proxy": True}):  # noqa: S104
        with pytest.raises(SettingsError, match="public_url must be set"):
            load(flags)
        assert load({**flags, "public_url": "https://gp.example"})
    assert load({"host": "::1", **tls}).public_url is None

"""`veilgp serve` shows the admin token once, and only one can use a data directory."""

import logging
import os
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import typer
import uvicorn
from typer.testing import CliRunner

from client_sdk.terminal.command import application
from service import command
from service.database import data_directory
from service.database.database import Database
from service.http import tokens
from service.settings import Settings
from tests.postgres import Postgres


@pytest.fixture(autouse=True)
def never_listening(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Everything except the network; umask and logging are restored afterwards."""

    def run(server: uvicorn.Server) -> None:
        server.started = True

    monkeypatch.setattr(uvicorn.Server, "run", run)
    monkeypatch.chdir(tmp_path)
    mask, root = os.umask(0o022), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    os.umask(mask)
    root.handlers[:] = handlers
    root.setLevel(level)


def run(capsys: pytest.CaptureFixture[str], call: object, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises((SystemExit, typer.Exit)) as caught:
        call(arguments)
    error = caught.value
    code = error.exit_code if isinstance(error, typer.Exit) else error.code
    out = capsys.readouterr()
    return int(code or 0), out.out, out.err


def secret_in(output: str) -> str:
    (secret,) = [word for word in output.split() if word.startswith("vgp_admin_")]
    return secret


def is_valid(directory: Path, secret: str) -> bool:
    database = Database(Settings(data_dir=directory).url)
    with database.reading() as connection:
        found = tokens.find(connection, secret, now=0.0)
    database.close()
    return found is not None


def test_the_admins_token_is_shown_on_the_first_start_only(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ("--data-dir", str(tmp_path / "data"))
    code, first, _ = run(capsys, command.serve, *arguments)
    assert code == 0
    assert is_valid(tmp_path / "data", secret_in(first))
    code, second, _ = run(capsys, command.serve, *arguments)
    assert (code, second) == (0, "")


def test_of_several_replicas_the_first_shows_the_token(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    postgres: Postgres,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with postgres.database() as url:
        monkeypatch.setenv("VEILGP_DATABASE_URL", url)
        first, second = (
            run(capsys, command.serve, "--data-dir", str(tmp_path / name))[1] for name in "ab"
        )
    assert secret_in(first)
    assert second == ""


def test_a_reset_replaces_the_token(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    old = secret_in(run(capsys, command.serve, "--data-dir", str(tmp_path))[1])
    new = secret_in(run(capsys, command.token, "reset", "--data-dir", str(tmp_path))[1])
    assert not is_valid(tmp_path, old)
    assert is_valid(tmp_path, new)


def test_a_data_directory_has_one_coordinator(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with data_directory.held(tmp_path):
        code, out, err = run(capsys, command.serve, "--data-dir", str(tmp_path))
        assert (code, out) == (1, "")
        assert "data_dir.in_use" in err
    assert run(capsys, command.serve, "--data-dir", str(tmp_path))[0] == 0


def test_what_is_kept_is_its_owners_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run(capsys, command.serve, "--data-dir", str(tmp_path / "data"))
    files = [tmp_path / "data", *(tmp_path / "data").iterdir()]
    assert {file.stat().st_mode & 0o077 for file in files} == {0}


def test_a_limit_of_open_files_that_is_too_low_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command.resource, "getrlimit", lambda _: (1024, 1024))
    code, _, err = run(capsys, command.serve, "--data-dir", str(tmp_path))
    assert code == 1
    assert "LimitNOFILE" in err
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(command.resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(command.resource, "setrlimit", lambda _, limits: raised.append(limits))
    assert run(capsys, command.serve, "--data-dir", str(tmp_path))[0] == 0
    assert raised == [(1768, 4096)]


def test_a_wrong_setting_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, command.serve, "--host", "gp.example")
    assert code == 1
    assert "without TLS" in err
    assert "Traceback" not in err


def test_the_hospitals_command_finds_the_coordinators() -> None:
    outcome = CliRunner().invoke(application(), ["serve", "--help"])
    assert outcome.exit_code == 0
    assert "--data-dir" in outcome.output


def test_without_the_server_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = EntryPoint("serve", "no_such_package:serve", "veilgp.commands")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [missing])
    outcome = CliRunner().invoke(application(), ["serve", "--port", "1"])
    assert outcome.exit_code == 1
    assert "pip install 'veilgp[server]'" in outcome.output

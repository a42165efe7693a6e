"""The shell command exists, says its version, and refuses what it does not know."""

from importlib.metadata import version

from typer.testing import CliRunner

from client_sdk.terminal.command import application


def test_version_is_the_distributions() -> None:
    outcome = CliRunner().invoke(application(), ["--version"])
    assert outcome.exit_code == 0
    assert outcome.output.strip() == f"veilgp {version('veilgp')}"


def test_an_unknown_command_is_an_error() -> None:
    assert CliRunner().invoke(application(), ["no-such-command"]).exit_code == 2

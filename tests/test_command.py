"""The shell command exists, says its version, and refuses what it does not know."""

import re
from importlib.metadata import version
from pathlib import Path

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from client_sdk.terminal.command import application

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
BLOCKS = re.compile(r"^```[a-z ]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_version_is_the_distributions() -> None:
    outcome = CliRunner().invoke(application(), ["--version"])
    assert outcome.exit_code == 0
    assert outcome.output.strip() == f"veilgp {version('veilgp')}"


def test_an_unknown_command_is_an_error() -> None:
    assert CliRunner().invoke(application(), ["no-such-command"]).exit_code == 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_that_a_page_shows_exist(page: Path) -> None:
    shown = [line for block in BLOCKS.findall(page.read_text()) for line in commands_of(block)]
    assert shown or page.name not in {"README.md", "first-session.md", "two-machines.md"}
    for line in shown:
        command, words = get_command(application()), line.split()[1:]
        while words and isinstance(command, typer.core.TyperGroup):
            found = command.commands.get(words.pop(0))
            assert found is not None, f"no such command: {line}"
            command = found
        if "ignore_unknown_options" in command.context_settings:
            continue  # a command of the coordinator, which is passed all options
        known = {name for option in command.params for name in option.opts}
        stated = {word.partition("=")[0] for word in words if word.startswith("-")} - {"-"}
        assert stated <= known, f"no such option: {line}"


def commands_of(block: str) -> list[str]:
    """Return a block's lines that run `veilgp`, without comments and redirections."""
    lines = re.sub(r"\\\n\s*", "", block).splitlines()
    return [re.split(r" [#>]|&$", line)[0] for line in lines if line.startswith("veilgp ")]

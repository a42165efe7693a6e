"""`veilgp --help`: every command with one line, in the order of a study, and nothing swallowed."""

from typer.testing import CliRunner

from client_sdk.terminal import command
from client_sdk.terminal.command import application

WORKFLOW = [
    *("schema draft", "check", "identity", "roster", "doctor hospital"),
    *("policy draft", "approve", "join", "log", "ledger", "verify", "predict", "personal", "serve"),
]


def shown(*arguments: str) -> str:
    return CliRunner().invoke(application(), [*arguments]).output


def test_every_command_is_listed_in_the_order_of_a_study() -> None:
    lines = shown("--help").splitlines()
    found = [
        number
        for words in WORKFLOW
        for number, line in enumerate(lines)
        if line.startswith(f"  {words}  ")
    ]
    assert len(found) == len(WORKFLOW)
    assert found == sorted(found)


def test_a_line_of_the_list_is_one_line_of_a_terminal() -> None:
    for section in (*command._HOSPITAL, command._study()):
        for each in section.commands:
            assert 10 < len(each.summary) <= 56, each.words


def test_brackets_are_not_taken_for_markup() -> None:
    assert "veilgp[server]" in shown("--help")


def test_help_is_what_a_command_without_a_subcommand_shows() -> None:
    assert "Draft a table's schema" in shown("schema")
    assert "Usage: " in shown("schema", "draft", "-h")


def test_a_misspelt_command_is_an_error_that_says_so() -> None:
    outcome = CliRunner().invoke(application(), ["legder"])
    assert outcome.exit_code == 2
    assert "No such command" in outcome.output

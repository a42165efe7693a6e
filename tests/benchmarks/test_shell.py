"""The benchmark of the shell measures commands that work, and reports the slowest."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import shell
from client_sdk.terminal.command import application


def test_what_is_measured_is_a_command_that_does_its_work(tmp_path: Path) -> None:
    for name, command in shell._prepared(tmp_path).items():
        assert [*command[: len(shell._VEILGP)]] == shell._VEILGP
        outcome = CliRunner().invoke(application(), [*command[len(shell._VEILGP) :]])
        assert outcome.exit_code == 0, (name, outcome.output)


def test_the_figure_is_that_of_the_slowest_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds(command: Sequence[str]) -> float:
        return 0.5 if command == shell._IMPORT else 1.25 if "check" in command else 0.75

    monkeypatch.setattr(shell, "_seconds", seconds)
    figures = shell.run(Namespace(quick=True))
    assert figures["cli_over_pyarrow_import"] == 2.5
    assert figures["slowest"] == "check"
    assert figures["over_pyarrow_log"] == 1.5

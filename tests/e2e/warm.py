"""Processes that start warm: each is forked from one that has already imported torch.

Importing torch takes a process seconds, and the end-to-end tests start about fifty. A forked
process has its own memory, files and signals, and runs the module that its command line names from
the beginning. The command line itself, cold, is tested in tests/test_command.py, `make demo` and
the benchmarks.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(
    ["client_sdk.terminal.command", "client_sdk.joining", "service.command", "service.app"]
)


class Warm:
    """A forked process, with the interface of `subprocess.Popen`."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        python, option, *rest = command
        if (python, option) != (sys.executable, "-m"):
            raise ValueError("only a module of this Python can be forked")
        self._command = command
        self._process = _FORKING.Process(
            target=_run, args=(rest, log, {**os.environ, **environment})
        )
        self._process.start()

    @property
    def pid(self) -> int:
        pid = self._process.pid
        if pid is None:
            raise ValueError("the process has not started")
        return pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(self._command, timeout or 0.0)
        return code

    def send_signal(self, what: int) -> None:
        if self._process.pid is not None and self.poll() is None:
            os.kill(self._process.pid, what)


def _run(arguments: list[str], log: Path, environment: dict[str, str]) -> None:
    with log.open("ab") as words:
        os.dup2(words.fileno(), 1)
        os.dup2(words.fileno(), 2)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = arguments
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)

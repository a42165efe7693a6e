"""docs/first-session.md runs as it is printed: five terminals on one machine, real processes.

A block of the page says after its language whose terminal it is typed into: `sh admin`, `sh north`
or `sh each hospital`. Not run is `sh install`: the package is that of these tests. The port is
exchanged for a free one. `veilgp join` is left running, as the page says.
"""

import csv
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.federation import free_port

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "first-session.md"
HOSPITALS = ("north", "south", "east", "west")
PORT = "8765"
BLOCK = re.compile(r"^```sh ([a-z ]+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
PATIENCE_S = 900.0
"""Of one block, on a machine that does much else."""


@dataclass(frozen=True, eq=False)
class Terminal:
    """A shell that ends at the first command that fails."""

    name: str
    folder: Path
    shell: subprocess.Popen[str]
    typed: list[Path]
    """A file for each block, which says that it has ended."""

    @property
    def words(self) -> str:
        """What all commands so far have printed."""
        return (self.folder / f"{self.name}.terminal").read_text()

    def type(self, block: str) -> None:
        """Start a block after the one before it, without waiting for it."""
        assert self.shell.stdin is not None
        script = self.folder / f"{self.name}-{len(self.typed)}.block"
        script.write_text(block)
        ended = script.with_suffix(".ended")
        self.typed.append(ended)
        self.shell.stdin.write(f"source {script} < /dev/null\ntouch {ended}\n")
        self.shell.stdin.flush()

    def wait(self) -> None:
        """Wait until everything that was typed has ended."""
        give_up = time.monotonic() + PATIENCE_S
        while self.typed and not self.typed[-1].exists():
            assert self.shell.poll() is None, f"{self.name}: a command failed\n{self.words}"
            assert time.monotonic() < give_up, f"{self.name}: no end\n{self.words}"
            time.sleep(0.1)


@contextmanager
def terminals(folder: Path) -> Iterator[dict[str, Terminal]]:
    """Open a terminal for the admin and each hospital; end all that they started on exit."""
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment = {**os.environ, **threads, "PATH": programs, "PYTHONPATH": str(ROOT)}
    opened: dict[str, Terminal] = {}
    try:
        for name in ("admin", *HOSPITALS):
            with (folder / f"{name}.terminal").open("w") as words:
                shell = subprocess.Popen(
                    ["bash", "-e", "-o", "pipefail"],
                    stdin=subprocess.PIPE,
                    stdout=words,
                    stderr=words,
                    text=True,
                    cwd=folder,
                    env=environment,
                    start_new_session=True,
                )
            opened[name] = Terminal(name, folder, shell, [])
        yield opened
    finally:
        for terminal in opened.values():
            with suppress(ProcessLookupError):  # nothing of it runs any more
                os.killpg(terminal.shell.pid, signal.SIGKILL)
            with suppress(BrokenPipeError):
                terminal.shell.communicate()


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="needs curl and jq")
def test_the_first_session_ends_with_a_prediction_and_its_interval(tmp_path: Path) -> None:
    page = PAGE.read_text().replace(PORT, str(free_port()))
    with terminals(tmp_path) as opened:
        for whose, block in BLOCK.findall(page):
            if whose == "install":
                continue
            typed_into = HOSPITALS if whose == "each hospital" else (whose,)
            for name in typed_into:
                opened[name].type(block)
            if not block.startswith("veilgp join"):
                for name in typed_into:
                    opened[name].wait()
        words = {name: terminal.words for name, terminal in opened.items()}
    assert "the run is done" in words["admin"]
    for name in HOSPITALS:
        assert re.search(rf"\d+ rows of {name}\.csv have no target, .* left out", words[name])
    predicted = words["north"][words["north"].index('"stay.mean"') :].splitlines()[:4]
    rows = [*csv.DictReader(predicted)]
    assert len(rows) == 3
    for row in rows:
        expected, lower, upper = (float(row[f"stay.{name}"]) for name in ("mean", "lower", "upper"))
        assert 0 < expected < 20
        assert expected - 8 < lower < expected < upper < expected + 8

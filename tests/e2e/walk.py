"""A page of docs as a walk: its commands are typed into terminals, as they are printed.

A block of the page says after its language whose terminal it is typed into: `sh admin`, `sh north`
or `sh each hospital`. Not run is `sh install`: the package is that of these tests. The port is
exchanged for a free one. `veilgp join` is left running, as the pages say.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.federation import free_port

ROOT = Path(__file__).parents[2]
NEEDS_CURL = pytest.mark.skipif(
    not (shutil.which("curl") and shutil.which("jq")), reason="needs curl and jq"
)
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
def _terminals(folder: Path, hospitals: Sequence[str]) -> Iterator[dict[str, Terminal]]:
    """Open a terminal for the admin and each hospital; end all that they started on exit."""
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment = {**os.environ, **threads, "PATH": programs, "PYTHONPATH": str(ROOT)}
    opened: dict[str, Terminal] = {}
    try:
        for name in ("admin", *hospitals):
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


def walked(page: Path, folder: Path, hospitals: Sequence[str]) -> Mapping[str, str]:
    """Type all commands of a page, and return what each terminal has printed."""
    text = page.read_text().replace(PORT, str(free_port()))
    with _terminals(folder, hospitals) as opened:
        for whose, block in BLOCK.findall(text):
            if whose == "install":
                continue
            typed_into = hospitals if whose == "each hospital" else (whose,)
            for name in typed_into:
                opened[name].type(block)
            if not block.startswith("veilgp join"):
                for name in typed_into:
                    opened[name].wait()
        return {name: terminal.words for name, terminal in opened.items()}

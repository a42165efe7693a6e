"""The coordinator's directory: its owner's alone, and one coordinator's at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from service.errors import DirectoryInUse

_LOCK = "lock"


def prepare(directory: Path) -> None:
    """Make the directory, closed to other users, where there is none."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Keep others out until the end, or until this process dies, however it does.

    Two coordinators on one SQLite file would each believe that what they hold in memory is true.
    """
    prepare(directory)
    descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DirectoryInUse(
                f"Another coordinator runs on {directory}. Stop it, or give this one a data "
                "directory of its own."
            ) from None
        yield
    finally:
        os.close(descriptor)

"""The coordinator's data directory: closed to other users, used by one coordinator at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from service.errors import DirectoryInUse

_LOCK = "lock"


def prepare(directory: Path) -> None:
    """Create the directory, closed to other users, if it does not exist."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Lock the directory until exit, or until this process dies in any way.

    Two coordinators on one SQLite file would each rely on their own state in memory.
    """
    prepare(directory)
    descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DirectoryInUse(
                f"Another coordinator is using the data directory {directory}. Stop it, or start "
                "this one with another data_dir."
            ) from None
        yield
    finally:
        os.close(descriptor)

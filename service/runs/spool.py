"""Room for vectors that are arriving: one of each member of a session at a time, and a total.

A member is authorised and may still be broken, or broken into: what it sends without end must not
fill the disk that the others' runs are on. Counted in this process; each replica has its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import SpooledTemporaryFile

from service.errors import SpoolFull, UploadUnderWay

_IN_MEMORY = 256 << 10
"""Of each vector; what is longer waits on disk."""


class Spool:
    """A directory's room for vectors, used from one event loop."""

    def __init__(self, directory: Path, most: int) -> None:
        self._directory = directory
        self._most = most
        self._taken = 0
        self._arriving: set[tuple[str, bytes]] = set()

    @contextmanager
    def room(
        self, session_id: str, key: bytes, octets: int
    ) -> Iterator[SpooledTemporaryFile[bytes]]:
        """Give a member room for as many octets as it announces, while it sends them."""
        who = session_id, key
        if who in self._arriving:
            raise UploadUnderWay(
                "A vector of this member is arriving already, over another connection: it is "
                "taken, or given up, before the next one."
            )
        if self._taken + octets > self._most:
            raise SpoolFull(
                f"The vectors that are arriving now fill the {self._most} octets that this "
                "coordinator has for them (max_spool); try again when one of them is here."
            )
        self._arriving.add(who)
        self._taken += octets
        try:
            with SpooledTemporaryFile(_IN_MEMORY, dir=str(self._directory)) as file:
                yield file
        finally:
            self._taken -= octets
            self._arriving.remove(who)

"""Disk space for uploads: one upload at a time for each member of a session, and a total limit.

A member is authorised but may be faulty or compromised: its uploads must not fill the disk that
other runs need. The space is counted in this process; each replica has its own spool.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import SpooledTemporaryFile

from service.errors import SpoolFull, UploadUnderWay

_IN_MEMORY = 256 << 10
"""Bytes of an upload that stay in memory; longer uploads are written to disk."""


class Spool:
    """The space for uploads in a directory, used from one event loop."""

    def __init__(self, directory: Path, most: int) -> None:
        self._directory = directory
        self._most = most
        self._taken = 0
        self._arriving: set[tuple[str, bytes]] = set()

    @contextmanager
    def room(
        self, session_id: str, key: bytes, octets: int
    ) -> Iterator[SpooledTemporaryFile[bytes]]:
        """Yield a file and reserve the announced number of bytes until the upload ends."""
        who = session_id, key
        if who in self._arriving:
            raise UploadUnderWay(
                "Another upload of this member is still being received over another connection; "
                "try again when it has ended."
            )
        if self._taken + octets > self._most:
            raise SpoolFull(
                f"Current uploads use up the coordinator's {self._most} bytes for uploads "
                "(max_spool); try again when one of them has ended."
            )
        self._arriving.add(who)
        self._taken += octets
        try:
            with SpooledTemporaryFile(_IN_MEMORY, dir=str(self._directory)) as file:
                yield file
        finally:
            self._taken -= octets
            self._arriving.remove(who)

"""Decisions of a named person at the hospital about a data source; nothing is sent."""

import os

from client_sdk.errors import PolicyFileError, SessionError
from client_sdk.home.home import Home
from client_sdk.network.links import SessionLink
from client_sdk.tables.hospital_table import site_of
from kernels.rounds.program import Program
from privacy.securesum.steady import check_approved_by


def approve_table(
    session: str,
    data: object,
    *,
    by: str,
    home: str | os.PathLike[str] | None = None,
    source: str = "table",
    allow_http: bool = False,
) -> None:
    """Approve a data source's table as it is now; nothing is sent.

    Two exact sums over tables that differ by one patient reveal that patient: the person named in
    `by` takes responsibility for that. The table is read as the session's program reads it.
    """
    link = SessionLink.parse(session, allow_http=allow_http)
    with Home(home).open() as opened:
        known = opened.store.session(str(link.session))
        if known is None or not known.member:
            raise SessionError("this hospital has not joined this session: join it first")
        table = site_of(Program.from_json(known.program), data, opened.dealing)
        opened.keep(opened.client.approve_table(source, table.digest, approved_by=by))


def choose_row_band(
    rows: int,
    *,
    by: str,
    home: str | os.PathLike[str] | None = None,
    source: str = "table",
) -> None:
    """Choose the row band of a data source (`gate.row_band`), or another one than before.

    Answers will take longer, or less long, than they did, which the coordinator can see: the person
    named in `by` takes responsibility for that.
    """
    check_approved_by(by)
    if type(rows) is not int or rows < 1 or rows & (rows - 1):
        raise PolicyFileError(f"a row band must be a power of two, not {rows!r:.60}")
    with Home(home).open() as opened:
        opened.store.keep_row_band(source, rows, by=by)
